/* config/sandbox/confine.c: what a child gives up before its work: identity, privileges, limits,
 * descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/sandbox/sandbox_private.h"

/* The user that owns nothing, on every system. */
enum { NOBODY = 65534 };
/* Descriptors of a child: standard streams, then this; as many more may be open. */
enum { FD_CONTROL = 3, MOST_DESCRIPTORS = 64 };

/* Identity. */

static bool become_nobody(void) {
    return setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
           setresuid(NOBODY, NOBODY, NOBODY) == 0;
}

static bool all_may_enter(const char *folder) {
    struct stat facts;
    return stat(folder, &facts) == 0 && (facts.st_mode & S_IXOTH);
}

/* Whether every user may enter all folders on the way to a file. */
static bool all_may_reach(const char *path) {
    char folder[4096] = "/";
    for (const char *at = strchr(path + 1, '/'); path[0] == '/' && at; at = strchr(at + 1, '/')) {
        if (!all_may_enter(folder) || (size_t)(at - path) >= sizeof folder) return false;
        memcpy(folder, path, (size_t)(at - path));
        folder[at - path] = '\0';
    }
    return all_may_enter(folder);
}

/* Where there are none, a service manager may refuse the call. */
static bool drop_capabilities(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}},
                                  has[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &head, has) == 0 && memcmp(has, none, sizeof none) == 0) return true;
    return syscall(SYS_capset, &head, none) == 0;
}

const char *confine_privileges(void) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? NULL : "to give up privileges";
}

const char *confine_identity(const char *needed) {
    /* A container may have no other user than root, or folders that root alone enters; there
     * Landlock has to do. */
    bool other = geteuid() != 0 || (all_may_reach(needed) && become_nobody());
    if (!other && sandbox_landlock_version() == 0)
        return "another user than root, and has no Landlock";
    prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0,
          0); /* root alone may, and needs it */
    if (!drop_capabilities()) return "to give up capabilities";
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? NULL : "to keep its memory from others";
}

/* Limits. */

static const char *lower_limit(int resource, rlim_t most, const char *name) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) return name;
    if (limit.rlim_max > most) limit.rlim_max = most;
    if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &limit) == 0 ? NULL : name;
}

const char *confine_limits(size_t memory, int seconds) {
    const char *refused = lower_limit(RLIMIT_AS, memory, "a limit on memory");
    if (refused == NULL) refused = lower_limit(RLIMIT_CPU, (rlim_t)seconds, "a limit on time");
    if (refused == NULL) refused = lower_limit(RLIMIT_FSIZE, 0, "a limit on files");
    if (refused == NULL) refused = lower_limit(RLIMIT_NPROC, 0, "a limit on processes");
    if (refused == NULL)
        refused = lower_limit(RLIMIT_NOFILE, MOST_DESCRIPTORS, "a limit on descriptors");
    if (refused == NULL) refused = lower_limit(RLIMIT_MEMLOCK, 0, "a limit on locked memory");
    if (refused == NULL) refused = lower_limit(RLIMIT_MSGQUEUE, 0, "a limit on queues");
    return refused ? refused : lower_limit(RLIMIT_CORE, 0, "a limit on core files");
}

/* The child. */

static _Noreturn void tell_control(enum control_kind kind, const char *what) {
    struct control_record record = {.kind = kind, .value = errno};
    memcpy(record.what, what, strnlen(what, sizeof record.what - 1));
    send(FD_CONTROL, &record, sizeof record, MSG_NOSIGNAL);
    _exit(1);
}

static void refuse_when(const char *refused) {
    if (refused) tell_control(CONTROL_REFUSED, refused);
}

/* glibc has a name for the call since 2.34, and kernels before 5.9 have no such call. */
void close_from(unsigned first) {
    struct rlimit most;
    if (syscall(__NR_close_range, first, ~0U, 0) == 0 || getrlimit(RLIMIT_NOFILE, &most) != 0)
        return;
    for (rlim_t i = first; i < most.rlim_cur; i++) close((int)i);
}

/* Input, output and nothing become the standard streams; all others but the control socket are
 * closed. */
static void take_descriptors(const int fds[KEEPER_FDS]) {
    int high[KEEPER_FDS];
    /* Out of the way of one another. */
    for (int i = 0; i < KEEPER_FDS; i++) high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDERR_FILENO);
    if (null < 0) close(STDERR_FILENO);
    dup2(high[KEEPER_INPUT], STDIN_FILENO);
    dup2(high[KEEPER_OUTPUT], STDOUT_FILENO);
    dup3(high[KEEPER_CONTROL], FD_CONTROL, O_CLOEXEC);
    close_from(FD_CONTROL + 1);
}

static void run_work(const struct keeper_job *job, size_t have) {
    struct sandbox_call call = {
        .input = {"", job->input}, .options = job->bytes, .output = STDOUT_FILENO};
    if (job->input > 0) {
        void *input = mmap(NULL, job->input, PROT_READ, MAP_PRIVATE, STDIN_FILENO, 0);
        if (input == MAP_FAILED) tell_control(CONTROL_REFUSED, "memory for the input");
        call.input.text = input;
    }
    close(STDIN_FILENO);
    refuse_when(confine_files(NULL));
    refuse_when(confine_identity("/"));
    refuse_when(confine_limits(have + job->input + job->memory, job->seconds));
    if (job->prepare) job->prepare(&call);
    if (!job->opens_files) refuse_when(confine_no_files());
    exhaustion_watch(job->memory);
    refuse_when(confine_calls(job->opens_files ? CALLS_OF_LIBRARY : CALLS_OF_WORK));
    close(FD_CONTROL);
    job->work(&call);
}

/* The path of a program, as a shell would find it; NULL: there is none. */
static const char *find_program(const char *name, char path[4096]) {
    const char *at = getenv("PATH");
    if (strchr(name, '/')) return access(name, X_OK) == 0 ? name : NULL;
    while (at && *at) {
        size_t size = strcspn(at, ":");
        if (size > 0 && *at == '/' && size + strlen(name) + 2 <= 4096) {
            memcpy(path, at, size);
            path[size] = '/';
            memcpy(path + size + 1, name, strlen(name) + 1);
            if (access(path, X_OK) == 0) return path;
        }
        at += size + (at[size] == ':');
    }
    return NULL;
}

static void run_program(const struct keeper_job *job) {
    char path[4096], *environment[] = {(char[]){"LC_ALL=C.UTF-8"}, NULL};
    char **argv = xcalloc((size_t)job->n_arguments + 1, sizeof *argv);
    const char *at = job->bytes;
    for (int i = 0; i < job->n_arguments; i++) {
        argv[i] = (char *)(uintptr_t)at;
        at += strlen(at) + 1;
    }
    const char *program = find_program(argv[0], path);
    if (program == NULL) tell_control(CONTROL_MISSING, "");
    refuse_when(confine_files(program));
    refuse_when(confine_identity(program));
    refuse_when(confine_limits(job->memory, job->seconds));
    refuse_when(confine_calls(CALLS_OF_PROGRAM));
    execve(program, argv, environment);
    _exit(126);
}

_Noreturn void child_begin(const struct keeper_job *job, const int fds[KEEPER_FDS], size_t have) {
    take_descriptors(fds);
    refuse_when(confine_privileges());
    if (job->work)
        run_work(job, have);
    else
        run_program(job);
    _exit(0);
}
