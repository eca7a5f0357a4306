/* retrieval/extract/extract_filter.h: the limits under which foreign bytes are parsed. Both functions are called in a
 * child process and hold for it and all it starts; they allocate nothing. NULL: done, else what the kernel refused,
 * with errno set. */
#pragma once

#include <stddef.h>

/* `memory` more bytes of address space than `have`, so many seconds of processor time, no file that is written, no core
 * file. */
const char *filter_limit(size_t have, size_t memory, int seconds);
/* From here on the process computes, reads and writes what it has open, allocates, and ends; every other system call
 * fails. */
const char *filter_close(void);
/* For a program that is about to begin: it opens files to read them and begins no process; it opens no file to write
 * and no socket. */
const char *filter_program(void);
