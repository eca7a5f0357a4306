/* config/base/process.h: how a program begins and ends; for files with a main. */
#pragma once

/* First thing in a main that writes files: a standard stream that is closed leaves its number to the next file opened,
 * and messages would go into that. From here on reading such a stream finds its end, and writing to it fails. */
void standard_streams_open(void);

/* Ends main: returns the program's exit code. Standard output is flushed first; when not all of it could be written,
 * stderr says so, and a code of 0 becomes 1. A program that has failed leaves here, without the destructors of
 * libraries: where memory is short (ulimit -v) OpenBLAS, which comes with FAISS, could not start its threads, and its
 * destructor waits for them without end. Nothing is lost: what was printed is flushed, the rest goes with the process.
 */
int process_end(int code);
