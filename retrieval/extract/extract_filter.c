/* retrieval/extract/extract_filter.c: resource limits, and filters of system calls (seccomp). A call that is refused
 * fails with EPERM: libraries take it as a machine on which something is missing. See extract_filter.h. */
#include "retrieval/extract/extract_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "config/base/base.h"

#if defined(__x86_64__)
#define FILTER_MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_MACHINE AUDIT_ARCH_AARCH64
#else
#error "system calls are numbered differently on every machine: name this one"
#endif

static const char *lower_limit(int resource, rlim_t most, const char *name) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) return name;
    if (limit.rlim_max > most) limit.rlim_max = most;
    if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &limit) == 0 ? NULL : name;
}

const char *filter_limit(size_t have, size_t memory, int seconds) {
    const char *refused = lower_limit(RLIMIT_AS, have + memory, "a limit on memory");
    if (refused == NULL) refused = lower_limit(RLIMIT_CPU, (rlim_t)seconds, "a limit on time");
    if (refused == NULL) refused = lower_limit(RLIMIT_FSIZE, 0, "a limit on files");
    return refused ? refused : lower_limit(RLIMIT_CORE, 0, "a limit on core files");
}

enum { MAX_RULES = 160 };

struct filter_rules {
    struct sock_filter rules[MAX_RULES];
    unsigned short n;
};

static void add_rule(struct filter_rules *p, struct sock_filter rule) {
    CHECK(p->n < MAX_RULES);
    p->rules[p->n] = rule;
    p->n++;
}

static void add_load(struct filter_rules *p, size_t offset) {
    add_rule(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void add_return(struct filter_rules *p, uint32_t action) {
    add_rule(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static const uint32_t refusal = SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA);

/* Another machine's calls, as 32-bit ones on x86-64, end the process. Leaves the number of the call loaded. */
static void begin_program(struct filter_rules *p) {
    add_load(p, offsetof(struct seccomp_data, arch));
    add_rule(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FILTER_MACHINE, 1, 0));
    add_return(p, SECCOMP_RET_KILL_PROCESS);
    add_load(p, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    /* Numbers of the x32 machine stand for the same calls. */
    add_rule(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
    add_return(p, SECCOMP_RET_KILL_PROCESS);
#endif
}

static void add_call(struct filter_rules *p, long call, uint32_t action) {
    add_rule(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1));
    add_return(p, action);
}

static const char *install(const struct filter_rules *p) {
    struct sock_fprog program = {.len = p->n, .filter = (struct sock_filter *)(uintptr_t)p->rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "to give up privileges";
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 ? NULL
                                                                           : "a filter of system calls (seccomp)";
}

const char *filter_close(void) {
    static const long allowed[] = {SYS_read,
                                   SYS_write,
                                   SYS_writev,
                                   SYS_lseek,
                                   SYS_close,
                                   SYS_fstat,
                                   SYS_brk,
                                   SYS_mmap,
                                   SYS_munmap,
                                   SYS_mremap,
                                   SYS_mprotect,
                                   SYS_madvise,
                                   SYS_rt_sigreturn,
                                   SYS_futex,
                                   SYS_getrandom,
                                   SYS_clock_gettime,
                                   SYS_gettimeofday,
                                   SYS_sched_yield,
                                   SYS_rt_sigprocmask,
                                   SYS_sigaltstack,
                                   SYS_getpid,
                                   SYS_gettid,
                                   SYS_tgkill,
                                   SYS_rt_sigaction,
                                   SYS_exit,
                                   SYS_exit_group,
                                   SYS_restart_syscall};
    struct filter_rules p = {.n = 0};
    begin_program(&p);
    for (size_t i = 0; i < ARRAY_COUNT(allowed); i++) add_call(&p, allowed[i], SECCOMP_RET_ALLOW);
    add_return(&p, refusal);
    return install(&p);
}

/* Refuses a call that opens a file when its flags, in that argument, say more than reading. */
static void add_open(struct filter_rules *p, long call, int flags_argument) {
    const uint32_t writes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
    add_rule(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4));
    /* The lower half of the argument: machines here are little endian. */
    add_load(p, offsetof(struct seccomp_data, args) + (size_t)flags_argument * sizeof(uint64_t));
    add_rule(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, writes, 0, 1));
    add_return(p, refusal);
    add_return(p, SECCOMP_RET_ALLOW);
}

const char *filter_program(void) {
    static const long refused[] = {
        SYS_socket,
        SYS_socketpair,
        SYS_connect,
        SYS_bind,
        SYS_sendto,
        SYS_sendmsg,
        SYS_ptrace,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_clone,
        SYS_clone3,
        SYS_unlinkat,
        SYS_renameat2,
        SYS_renameat,
        SYS_mkdirat,
        SYS_mknodat,
        SYS_linkat,
        SYS_symlinkat,
        SYS_fchmodat,
        SYS_fchownat,
        SYS_truncate,
        SYS_utimensat,
        SYS_kill,
        SYS_tkill,
        SYS_mount,
        SYS_umount2,
        SYS_chroot,
        SYS_setns,
        SYS_unshare,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_keyctl,
        SYS_add_key,
        SYS_io_uring_setup,
        SYS_openat2,
        SYS_memfd_create,
        SYS_setxattr,
        SYS_shmget,
        SYS_msgget,
        SYS_userfaultfd,
#if defined(__x86_64__)
        SYS_fork,
        SYS_vfork,
        SYS_creat,
        SYS_unlink,
        SYS_rmdir,
        SYS_rename,
        SYS_mkdir,
        SYS_mknod,
        SYS_link,
        SYS_symlink,
        SYS_chmod,
        SYS_chown,
        SYS_lchown,
        SYS_utime,
        SYS_utimes,
#endif
    };
    struct filter_rules p = {.n = 0};
    begin_program(&p);
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) add_call(&p, refused[i], refusal);
    add_open(&p, SYS_openat, 2);
#if defined(__x86_64__)
    add_open(&p, SYS_open, 1);
#endif
    add_return(&p, SECCOMP_RET_ALLOW);
    return install(&p);
}
