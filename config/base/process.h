/* config/base/process.h: how a program ends; for files with a main. */
#pragma once

#include <stdio.h>
#include <unistd.h>

/* What main returns, in a program that may open FAISS. One that has failed leaves here, without the destructors of
 * libraries: where memory is short (ulimit -v) OpenBLAS could not start its threads, and its destructor waits for them
 * without end. Nothing is lost: what was printed is flushed, the rest goes with the process. */
static inline int process_end(int code) {
    if (code == 0) return 0;
    fflush(NULL);
    _exit(code);
}
