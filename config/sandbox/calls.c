/* config/sandbox/calls.c: lists of the system calls that a process may make: the only file that
 * includes libseccomp.
 *
 * A call that is on no list fails with EPERM: libraries probe for what they can do without, as
 * terminals, threads and caches, and take it as a machine on which that is missing. fontconfig
 * changes the mode of its cache's folder where the cache is older than the fonts, and abort() sends
 * a signal before it ends the process by itself. A call that no library makes ends the process: who
 * makes it has taken the process over, and gets no second try. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "config/sandbox/sandbox_private.h"

/* Names that a machine does not have are passed over. */
static const char *const of_both[] = {
    "read",           "write",        "writev",       "lseek",        "close",
    "fstat",          "brk",          "munmap",       "mremap",       "madvise",
    "rt_sigreturn",   "futex",        "exit",         "exit_group",   "getrandom",
    "clock_gettime",  "clock_getres", "gettimeofday", "time",         "sched_yield",
    "getpid",         "gettid",       "sigaltstack",  "rt_sigaction", "rt_sigprocmask",
    "restart_syscall"};

/* Metadata tells no content; files are Landlock's. */
static const char *const of_reader[] = {"newfstatat",
                                        "stat",
                                        "lstat",
                                        "statx",
                                        "statfs",
                                        "fstatfs",
                                        "access",
                                        "faccessat",
                                        "faccessat2",
                                        "readlink",
                                        "readlinkat",
                                        "getcwd",
                                        "chdir",
                                        "fchdir",
                                        "getdents64",
                                        "pread64",
                                        "readv",
                                        "preadv",
                                        "pwrite64",
                                        "fadvise64",
                                        "dup",
                                        "dup2",
                                        "dup3",
                                        "poll",
                                        "ppoll",
                                        "select",
                                        "pselect6",
                                        "arch_prctl",
                                        "set_tid_address",
                                        "set_robust_list",
                                        "rseq",
                                        "uname",
                                        "sysinfo",
                                        "getuid",
                                        "geteuid",
                                        "getgid",
                                        "getegid",
                                        "getppid",
                                        "umask",
                                        "times",
                                        "getrusage",
                                        "getrlimit",
                                        "nanosleep",
                                        "clock_nanosleep",
                                        "sched_getaffinity"};

static const char *const of_program[] = {"execve", "mmap", "mprotect"};

static const char *const ends_process[] = {"ptrace",
                                           "process_vm_readv",
                                           "process_vm_writev",
                                           "process_madvise",
                                           "process_mrelease",
                                           "kcmp",
                                           "pidfd_open",
                                           "pidfd_getfd",
                                           "pidfd_send_signal",
                                           "rt_sigqueueinfo",
                                           "rt_tgsigqueueinfo",
                                           "execveat",
                                           "memfd_create",
                                           "memfd_secret",
                                           "mount",
                                           "umount2",
                                           "move_mount",
                                           "open_tree",
                                           "fsopen",
                                           "fsmount",
                                           "fsconfig",
                                           "fspick",
                                           "mount_setattr",
                                           "pivot_root",
                                           "chroot",
                                           "unshare",
                                           "setns",
                                           "bpf",
                                           "perf_event_open",
                                           "userfaultfd",
                                           "io_uring_setup",
                                           "io_uring_enter",
                                           "io_uring_register",
                                           "io_setup",
                                           "io_submit",
                                           "keyctl",
                                           "add_key",
                                           "request_key",
                                           "name_to_handle_at",
                                           "open_by_handle_at",
                                           "fanotify_init",
                                           "quotactl",
                                           "quotactl_fd",
                                           "init_module",
                                           "finit_module",
                                           "delete_module",
                                           "kexec_load",
                                           "kexec_file_load",
                                           "reboot",
                                           "swapon",
                                           "swapoff",
                                           "acct",
                                           "personality",
                                           "iopl",
                                           "ioperm",
                                           "modify_ldt",
                                           "seccomp",
                                           "setuid",
                                           "setgid",
                                           "setreuid",
                                           "setregid",
                                           "setresuid",
                                           "setresgid",
                                           "setgroups",
                                           "capset",
                                           "sethostname",
                                           "setdomainname",
                                           "settimeofday",
                                           "clock_settime",
                                           "syslog",
                                           "vhangup",
                                           "lookup_dcookie",
                                           "mknod",
                                           "mknodat",
                                           "vmsplice",
                                           "tee",
                                           "splice"};

/* Compiled in the keeper, for all of its children. */
static struct sock_fprog lists[CALLS_LISTS];

static int add_name(scmp_filter_ctx filter, uint32_t action, const char *name) {
    int call = seccomp_syscall_resolve_name(name);
    return call >= 0 ? seccomp_rule_add(filter, action, call, 0) : 0;
}

static int add_names(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t n) {
    int fault = 0;
    for (size_t i = 0; i < n && fault == 0; i++) fault = add_name(filter, action, names[i]);
    return fault;
}

/* Allowed where these bits of an argument are zero. */
static int add_without(scmp_filter_ctx filter, const char *name, unsigned argument,
                       scmp_datum_t bits) {
    int call = seccomp_syscall_resolve_name(name);
    if (call < 0) return 0;
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1,
                            SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, bits, 0));
}

/* Commands that set an owner or a signal would reach other processes. */
static int add_fcntl(scmp_filter_ctx filter) {
    static const int commands[] = {F_GETFD, F_SETFD, F_GETFL, F_DUPFD, F_DUPFD_CLOEXEC};
    int call = seccomp_syscall_resolve_name("fcntl"), fault = 0;
    for (size_t i = 0; i < ARRAY_COUNT(commands) && fault == 0; i++)
        fault = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, call, 1,
            SCMP_CMP(1, SCMP_CMP_MASKED_EQ, UINT32_MAX, (scmp_datum_t)commands[i]));
    return fault;
}

/* Its own limits are read, and no one's are set. */
static int add_prlimit(scmp_filter_ctx filter) {
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name("prlimit64"), 2,
                            SCMP_CMP(0, SCMP_CMP_MASKED_EQ, UINT32_MAX, 0),
                            SCMP_CMP(2, SCMP_CMP_EQ, 0, 0));
}

static int add_work(scmp_filter_ctx filter) {
    int fault = add_without(filter, "mmap", 2, PROT_EXEC);
    return fault ? fault : add_without(filter, "mprotect", 2, PROT_EXEC);
}

/* Files are opened for reading. */
static int add_reader(scmp_filter_ctx filter) {
    const scmp_datum_t writes = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
    int fault = add_names(filter, SCMP_ACT_ALLOW, of_reader, ARRAY_COUNT(of_reader));
    if (fault == 0) fault = add_without(filter, "openat", 2, writes);
    if (fault == 0) fault = add_without(filter, "open", 1, writes);
    if (fault == 0) fault = add_fcntl(filter);
    return fault ? fault : add_prlimit(filter);
}

static int add_library(scmp_filter_ctx filter) {
    int fault = add_work(filter);
    return fault ? fault : add_reader(filter);
}

static int add_program(scmp_filter_ctx filter) {
    int fault = add_names(filter, SCMP_ACT_ALLOW, of_program, ARRAY_COUNT(of_program));
    return fault ? fault : add_reader(filter);
}

/* Another machine's calls, as 32-bit ones on x86-64, end the process. */
static int fill_list(scmp_filter_ctx filter, enum calls_list list) {
    int fault = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (fault == 0) fault = add_names(filter, SCMP_ACT_ALLOW, of_both, ARRAY_COUNT(of_both));
    if (fault == 0)
        fault = add_names(filter, SCMP_ACT_KILL_PROCESS, ends_process, ARRAY_COUNT(ends_process));
    if (fault) return fault;
    if (list == CALLS_OF_WORK) return add_work(filter);
    return list == CALLS_OF_LIBRARY ? add_library(filter) : add_program(filter);
}

/* The kernel's form of a list, by way of a file in memory. */
static int export_list(scmp_filter_ctx filter, struct sock_fprog *out) {
    int fd = memfd_create("calls", MFD_CLOEXEC),
        fault = fd < 0 ? -errno : seccomp_export_bpf(filter, fd);
    off_t size = fault == 0 ? lseek(fd, 0, SEEK_END) : 0;
    if (fault == 0) {
        out->len = (unsigned short)((size_t)size / sizeof *out->filter);
        out->filter = xmalloc((size_t)size);
        if (pread(fd, out->filter, (size_t)size, 0) != size) fault = -EIO;
    }
    if (fd >= 0) close(fd);
    return fault;
}

const char *calls_compile(void) {
    int fault = 0;
    for (int i = 0; i < CALLS_LISTS && fault == 0; i++) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        fault = filter ? fill_list(filter, (enum calls_list)i) : -ENOMEM;
        if (fault == 0) fault = export_list(filter, &lists[i]);
        if (filter) seccomp_release(filter);
    }
    errno = -fault;
    return fault ? "to compile a filter of system calls (libseccomp)" : NULL;
}

const char *confine_calls(enum calls_list list) {
    bool done =
        lists[list].filter && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &lists[list], 0, 0) == 0;
    return done ? NULL : "a filter of system calls (seccomp)";
}
