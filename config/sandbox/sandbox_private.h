/* config/sandbox/sandbox_private.h: between the program's side, the keeper and its children. */
#pragma once

#include <sys/types.h>

#include "config/sandbox/sandbox.h"

/* A job on the keeper's socket, with three descriptors. */
struct keeper_job {
    uint64_t input, memory;
    int32_t seconds, n_arguments;
    sandbox_work *work, *prepare;
    bool opens_files;
    _Alignas(16) char bytes[SANDBOX_OPTIONS_BYTES]; /* the options, or the arguments, each with its
                                                       NUL */
};
enum keeper_fd { KEEPER_INPUT, KEEPER_OUTPUT, KEEPER_CONTROL, KEEPER_FDS };

/* On a job's control socket, from the child before its work and from the keeper at its end. */
enum control_kind { CONTROL_REFUSED = 1, CONTROL_MISSING, CONTROL_ENDED };
struct control_record {
    int32_t kind;
    int32_t value; /* errno; of an end the status as waitpid has it */
    char what[56]; /* is refused */
};

/* The keeper's whole life; fd is its socket. */
_Noreturn void keeper_serve(int fd, char **argv);
/* A child's; `have` is the address space of the keeper. */
_Noreturn void child_begin(const struct keeper_job *job, const int fds[KEEPER_FDS], size_t have);

/* The exit code of a child that has no memory left. */
enum { CODE_NO_MEMORY = 125 };
/* From here on a child that runs out of `memory` bytes ends by that code, whoever asked for more:
 * xmalloc, the stack, or a library that aborts or reads what NULL points to. */
void exhaustion_watch(size_t memory);

/* Closes all descriptors from `first` on. */
void close_from(unsigned first);

/* Confinement. NULL: done, else what the kernel refuses, with errno set. */

/* No new privileges from here on: the first, which the others need. */
const char *confine_privileges(void);
/* No capability, and nobody's identity where it was root's and all users may reach the file
 * `needed`. Where they may not, Landlock has to confine root, and is asked for. */
const char *confine_identity(const char *needed);
/* `memory` bytes of address space, so many seconds of processor time, no file that is written, no
 * process. */
const char *confine_limits(size_t memory, int seconds);
/* Files that programs and libraries need can be read, and `program` begun; NULL: none. Without
 * Landlock nothing changes. */
const char *confine_files(const char *program);
/* No file can be opened any more. */
const char *confine_no_files(void);

enum calls_list { CALLS_OF_WORK, CALLS_OF_LIBRARY, CALLS_OF_PROGRAM, CALLS_LISTS };
/* Compiles the lists; to be called in the keeper, once. */
const char *calls_compile(void);
/* From here on a call that is not on the list fails, or ends the process. */
const char *confine_calls(enum calls_list list);
