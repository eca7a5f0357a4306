/* config/sandbox/sandbox.h: processes of their own for work on foreign bytes. Such a process has
 * its input, an end of a pipe that it writes to, and nothing else: no file, no network, no other
 * process, no privilege, and limits on memory and time. Bytes that it hands over are to be judged
 * like foreign ones.
 *
 * They are begun by one process, the keeper, which is forked before the program has threads or
 * secrets, and which ends with it. docs/files.md says what holds on which kernel. */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"

struct sandbox_limits {
    size_t memory; /* bytes that the process may take */
    int seconds;   /* of its processor's time, and of waiting for it */
    double until;  /* time_now() when it is ended; 0: no such time */
    /* true: it is ended, with STATUS_CANCELLED; NULL: never. */
    const atomic_bool *cancelled, *stopped;
};

/* The job as work sees it; all of it lies in its own process. */
struct sandbox_call {
    struct text_span input;
    const void *options; /* a copy of the job's */
    int output;          /* descriptor that is written to */
};
typedef void sandbox_work(const struct sandbox_call *call);
/* In the process: all of the bytes to its output. It ends where nobody reads any more. */
void sandbox_write(int output, const void *bytes, size_t size);

enum { SANDBOX_OPTIONS_BYTES = 8192 };

/* A function of this program, or another program. */
struct sandbox_job {
    const char *name;       /* of the input, for errors */
    struct text_span input; /* copied; a program finds it on its standard input */
    sandbox_work *work;     /* NULL: the program */
    sandbox_work *prepare;  /* called before, while libraries' own files can be read; NULL: nothing
                               to prepare */
    bool opens_files; /* its library opens files of its own while it works, as fonts: it reads those
                         that programs read */
    struct text_span options; /* of at most SANDBOX_OPTIONS_BYTES */
    char *const *argv;        /* of the program, which is looked for in PATH; all of at most
                                 SANDBOX_OPTIONS_BYTES */
    const char *package;      /* of Debian, that the program comes in */
    struct sandbox_limits limits;
};

struct sandbox_child {
    const struct sandbox_job *job; /* borrowed */
    int output, control;
    double waited; /* seconds */
    bool killed;
};

/* Starts the keeper. To be called once, at the beginning of a program that has or will have threads
 * or secrets; others get one with their first job. argv is the program's, which is cleared in the
 * keeper together with the environment; NULL: it is left. */
enum status sandbox_start(char **argv, struct error *e);
/* Landlock's version in this kernel; 0: it has none, and only the filter of system calls, the user
 * and the empty directory keep a process from files. */
int sandbox_landlock_version(void);

/* A child that was begun is read, and ended. */
enum status sandbox_begin(struct sandbox_child *child, const struct sandbox_job *job,
                          struct error *e);
/* *got is less than size at the end alone. STATUS_INVALID when it takes too long, STATUS_CANCELLED.
 */
enum status sandbox_read(struct sandbox_child *child, void *bytes, size_t size, size_t *got,
                         struct error *e);
/* Appends so many bytes; *whole is false where the process ended before them. As sandbox_read. */
enum status sandbox_append(struct sandbox_child *child, size_t size, struct buffer *out,
                           bool *whole, struct error *e);
void sandbox_kill(struct sandbox_child *child);
/* Waits for its end. STATUS_OK and its exit code, or how it failed: STATUS_TOO_LARGE where it ran
 * out of memory, STATUS_INVALID for a signal and for another limit, STATUS_UNSUPPORTED where the
 * program is not installed, or the kernel refuses what the process is confined by. */
enum status sandbox_end(struct sandbox_child *child, int *code, struct error *e);
