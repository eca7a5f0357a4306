/* tests/unit/test_sandbox.c: what a process in the sandbox can do when a foreign file has taken it
 * over. Every attack runs as a parser of ours does, and as a program that is begun by name: a copy
 * of this one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "config/sandbox/sandbox.h"
#include "retro/pictures/picture.h"
#include "tests/folder.h"

enum { MEMORY = 64 << 20, SECONDS = 60 };

static char secret[] = "the secret of the parent";

struct target {
    int parent, keeper_socket;
    char *secret;    /* there */
    char folder[64]; /* which the attacker's user may write */
};

/* Attacks: true when one got what it wanted. */

static bool may_open(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    char byte;
    return fd >= 0 && ((flags & O_CREAT) || read(fd, &byte, 1) == 1);
}
static bool open_shadow(const struct target *t) {
    (void)t;
    return may_open("/etc/shadow", O_RDONLY);
}
static bool open_passwd(const struct target *t) {
    (void)t;
    return may_open("/etc/passwd", O_RDONLY);
}
static bool open_memory(const struct target *t) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", t->parent);
    int fd = open(path, O_RDONLY);
    char byte;
    return fd >= 0 && pread(fd, &byte, 1, (off_t)(uintptr_t)t->secret) == 1;
}
static bool open_environment(const struct target *t) {
    (void)t;
    return may_open("/proc/self/environ", O_RDONLY);
}
static bool open_status(const struct target *t) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", t->parent);
    return may_open(path, O_RDONLY);
}
static bool open_relative(const struct target *t) {
    (void)t;
    return may_open("../etc/passwd", O_RDONLY) || may_open("../../etc/passwd", O_RDONLY) ||
           may_open("etc/passwd", O_RDONLY);
}
static bool make_file(const struct target *t) {
    char path[96];
    snprintf(path, sizeof path, "%s/made-%d", t->folder, getpid());
    return may_open(path, O_WRONLY | O_CREAT) || may_open("made", O_WRONLY | O_CREAT) ||
           mkdir("made", 0700) == 0;
}
static bool change_file(const struct target *t) {
    char path[96];
    snprintf(path, sizeof path, "%s/open", t->folder);
    int fd = open(path, O_WRONLY | O_TRUNC);
    return fd >= 0 || truncate(path, 0) == 0 || unlink(path) == 0;
}
static bool link_file(const struct target *t) {
    char path[96];
    snprintf(path, sizeof path, "%s/link-%d", t->folder, getpid());
    return symlink("/etc/passwd", path) == 0 || link("/etc/passwd", path) == 0;
}
static bool copy_socket(const struct target *t) {
    int process = (int)syscall(SYS_pidfd_open, t->parent, 0);
    return process >= 0 && syscall(SYS_pidfd_getfd, process, t->keeper_socket, 0) >= 0;
}
static bool trace_parent(const struct target *t) {
    return ptrace(PTRACE_SEIZE, t->parent, NULL, NULL) == 0;
}
static bool read_parent(const struct target *t) {
    char byte;
    struct iovec here = {&byte, 1}, there = {t->secret, 1};
    return process_vm_readv(t->parent, &here, 1, &there, 1, 0) == 1;
}
static bool write_parent(const struct target *t) {
    char byte = 't';
    struct iovec here = {&byte, 1}, there = {t->secret, 1};
    return process_vm_writev(t->parent, &here, 1, &there, 1, 0) == 1;
}
static bool kill_parent(const struct target *t) { return kill(t->parent, SIGWINCH) == 0; }
static bool tgkill_parent(const struct target *t) {
    return syscall(SYS_tgkill, t->parent, t->parent, SIGWINCH) == 0;
}
static bool kill_all(const struct target *t) {
    (void)t;
    return kill(-1, SIGWINCH) == 0;
}
static bool queue_signal(const struct target *t) {
    return sigqueue(t->parent, SIGWINCH, (union sigval){0}) == 0;
}
static bool own_signal(const struct target *t) { return fcntl(1, F_SETOWN, t->parent) == 0; }
static bool change_modes(const struct target *t) {
    (void)t;
    return fchmod(0, 0777) == 0 || fchmod(1, 0777) == 0;
}
static bool change_attributes(const struct target *t) {
    (void)t;
    return fsetxattr(1, "user.a", "a", 1, 0) == 0 || fsetxattr(0, "user.a", "a", 1, 0) == 0;
}
static bool write_input(const struct target *t) {
    (void)t;
    return pwrite(0, "x", 1, 0) == 1;
}
static bool open_socket(const struct target *t) {
    (void)t;
    return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}
static bool open_local_socket(const struct target *t) {
    (void)t;
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}
static bool open_pair(const struct target *t) {
    int ends[2];
    (void)t;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0;
}
static bool open_packets(const struct target *t) {
    (void)t;
    return socket(AF_NETLINK, SOCK_RAW, 0) >= 0 || socket(AF_PACKET, SOCK_RAW, 0) >= 0;
}
static bool begin_process(const struct target *t) {
    (void)t;
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    return pid > 0;
}
static bool begin_other(const struct target *t) {
    (void)t;
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    return pid > 0;
}
static bool begin_made_program(const struct target *t) {
    (void)t;
    return syscall(SYS_memfd_create, "x", 0) >= 0;
}
static bool use_ring(const struct target *t) {
    struct io_uring_params p = {0};
    (void)t;
    return syscall(SYS_io_uring_setup, 4, &p) >= 0;
}
static bool use_faults(const struct target *t) {
    (void)t;
    return syscall(SYS_userfaultfd, O_CLOEXEC | 1) >= 0;
}
static bool use_bpf(const struct target *t) {
    union bpf_attr a = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    (void)t;
    return syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a) >= 0;
}
static bool use_mount(const struct target *t) {
    (void)t;
    return mount("none", "/tmp", "tmpfs", 0, NULL) == 0;
}
static bool use_namespace(const struct target *t) {
    (void)t;
    return unshare(CLONE_NEWUSER) == 0;
}
static bool use_keys(const struct target *t) {
    (void)t;
    return syscall(SYS_keyctl, 0, -3, 1) >= 0;
}
static bool use_handles(const struct target *t) {
    union {
        struct file_handle handle;
        char bytes[sizeof(struct file_handle) + 128];
    } u = {.handle = {.handle_bytes = 128}};
    int mount_id;
    (void)t;
    return name_to_handle_at(AT_FDCWD, "/etc/passwd", &u.handle, &mount_id, 0) == 0;
}
static bool use_handles_open(const struct target *t) {
    union {
        struct file_handle handle;
        char bytes[sizeof(struct file_handle) + 128];
    } u = {.handle = {.handle_bytes = 8, .handle_type = 1}};
    (void)t;
    return open_by_handle_at(AT_FDCWD, &u.handle, O_RDONLY) >= 0 || errno == ESTALE;
}
static bool leave_root(const struct target *t) {
    (void)t;
    return chroot("/tmp") == 0;
}
static bool become_root(const struct target *t) {
    (void)t;
    return setuid(0) == 0 && geteuid() == 0 && open_shadow(t);
}
static bool raise_limits(const struct target *t) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    (void)t;
    return setrlimit(RLIMIT_AS, &limit) == 0;
}
static bool limit_parent(const struct target *t) {
    struct rlimit limit = {1 << 20, 1 << 20};
    return prlimit(t->parent, RLIMIT_NOFILE, NULL, &limit) == 0;
}
static bool take_memory(const struct target *t) {
    (void)t;
    size_t taken = 0, block = 1 << 20;
    char *at;
    while (taken <= 3u * MEMORY && (at = mmap(NULL, block, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED) {
        *at = 1;
        taken += block;
    }
    return taken > 3u * MEMORY;
}
static bool open_watch(const struct target *t) {
    (void)t;
    return syscall(SYS_fanotify_init, 0, 0) >= 0 || syscall(SYS_inotify_init1, 0) >= 0;
}

static const struct attack {
    const char *name;
    bool (*run)(const struct target *t);
    bool works; /* as root, without a sandbox */
} attacks[] = {{"open /etc/shadow", open_shadow, true},
               {"open /etc/passwd", open_passwd, true},
               {"open the parent's memory", open_memory, true},
               {"open the environment", open_environment, false},
               {"open the parent's status", open_status, true},
               {"open a relative path", open_relative, false},
               {"make a file", make_file, true},
               {"change a file", change_file, true},
               {"link a file", link_file, true},
               {"copy a descriptor of the parent", copy_socket, true},
               {"trace the parent", trace_parent, false},
               {"read the parent's memory", read_parent, true},
               {"write the parent's memory", write_parent, true},
               {"kill the parent", kill_parent, true},
               {"tgkill the parent", tgkill_parent, true},
               {"kill everything", kill_all, true},
               {"queue a signal", queue_signal, true},
               {"have the kernel signal the parent", own_signal, false},
               {"change modes", change_modes, true},
               {"change attributes", change_attributes, false},
               {"write the input", write_input, false},
               {"a socket", open_socket, true},
               {"a local socket", open_local_socket, true},
               {"a pair of sockets", open_pair, true},
               {"raw sockets", open_packets, false},
               {"fork", begin_process, true},
               {"clone", begin_other, true},
               {"a program in memory", begin_made_program, true},
               {"io_uring", use_ring, false},
               {"userfaultfd", use_faults, false},
               {"bpf", use_bpf, false},
               {"mount", use_mount, false},
               {"unshare", use_namespace, false},
               {"keyctl", use_keys, false},
               {"name_to_handle_at", use_handles, false},
               {"open_by_handle_at", use_handles_open, false},
               {"chroot", leave_root, false},
               {"setuid", become_root, true},
               {"raise limits", raise_limits, true},
               {"limit the parent", limit_parent, false},
               {"memory over the limit", take_memory, true},
               {"watch files", open_watch, true}};

static void say(bool breach) {
    if (write(1, breach ? "breach" : "refused", breach ? 6 : 7) < 0) _exit(2);
}

/* The sandbox. */

struct attack_options {
    struct target target;
    int attack;
};

static void run_attack(const struct sandbox_call *call) {
    const struct attack_options *o = call->options;
    say(attacks[o->attack].run(&o->target));
}

/* Runs a job, takes what it writes, and how it ends. */
static enum status run_job(const struct sandbox_job *job, struct buffer *out, struct error *e) {
    struct sandbox_child c;
    char block[4096];
    size_t got = sizeof block;
    int code;
    buffer_clear(out);
    if (sandbox_begin(&c, job, e)) return e->status;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && got == sizeof block && out->size < 1 << 20) {
        status = sandbox_read(&c, block, sizeof block, &got, e);
        if (status == STATUS_OK) buffer_append(out, block, got);
    }
    struct error end;
    enum status ended = sandbox_end(&c, &code, &end);
    buffer_append(out, "", 0);
    if (status == STATUS_OK && ended) *e = end, status = ended;
    return status;
}

static struct target make_target(void) {
    struct target t = {.parent = getpid(), .keeper_socket = 0, .secret = secret};
    char path[FOLDER_PATH_SIZE];
    snprintf(t.folder, sizeof t.folder, "%s/open-to-all", test_folder);
    if (mkdir(t.folder, 0777) == 0) chmod(t.folder, 0777);
    folder_path(path, test_folder, "open-to-all/open");
    folder_write(test_folder, "open-to-all/open", "text", 4);
    chmod(path, 0666);
    return t;
}

/* Without a sandbox they do what they say: else the tests below would prove nothing. */
static bool works_alone(const struct attack *a, const struct target *t) {
    int ends[2], code;
    char said[8] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        say(a->run(t));
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], said, 6);
    close(ends[0]);
    waitpid(pid, &code, 0);
    return n == 6 && memcmp(said, "breach", 6) == 0;
}

static void test_attacks_work(void **state) {
    (void)state;
    struct target t = make_target();
    if (geteuid() != 0) skip();
    for (size_t i = 0; i < ARRAY_COUNT(attacks); i++)
        if (attacks[i].works && attacks[i].run != kill_all && !works_alone(&attacks[i], &t))
            print_message("without a sandbox, too, this is refused: %s\n", attacks[i].name);
}

static void expect_refused(const char *how, const struct attack *a, enum status status,
                           const struct buffer *out, const struct error *e) {
    bool said = status == STATUS_OK && strcmp(out->data, "refused") == 0;
    bool ended = status == STATUS_INVALID && out->size == 0;
    if (!said && !ended)
        fail_msg("%s: %s: \"%s\", %s", how, a->name, out->data, status ? e->text : "no error");
}

static void test_work(void **state) {
    (void)state;
    struct buffer out = {0};
    for (size_t i = 0; i < ARRAY_COUNT(attacks); i++) {
        struct attack_options options = {.target = make_target(), .attack = (int)i};
        struct error e = {0};
        struct sandbox_job job = {.name = "file",
                                  .input = {"bytes", 5},
                                  .work = run_attack,
                                  .options = {(const char *)&options, sizeof options},
                                  .limits = {.memory = MEMORY, .seconds = SECONDS}};
        expect_refused("work", &attacks[i], run_job(&job, &out, &e), &out, &e);
    }
    assert_string_equal(secret, "the secret of the parent");
    buffer_free(&out);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* A copy that any user may begin. */
static void copy_program(char path[FOLDER_PATH_SIZE]) {
    char command[3 * FOLDER_PATH_SIZE];
    folder_path(path, test_folder, "program");
    chmod(test_folder, 0711);
    snprintf(command, sizeof command, "cp /proc/%d/exe %s && chmod 755 %s", getpid(), path, path);
    assert_int_equal(system(command), 0);
}

static enum status run_program(const char *program, const char *what, const char *number,
                               struct buffer *out, struct error *e) {
    struct target t = make_target();
    char parent[16], address[24];
    snprintf(parent, sizeof parent, "%d", t.parent);
    snprintf(address, sizeof address, "%p", (void *)t.secret);
    char *argv[] = {(char *)(uintptr_t)program,
                    (char *)(uintptr_t)what,
                    (char *)(uintptr_t)number,
                    parent,
                    address,
                    t.folder,
                    NULL};
    struct sandbox_job job = {.name = "file",
                              .input = {"bytes", 5},
                              .argv = argv,
                              .limits = {.memory = MEMORY, .seconds = SECONDS}};
    return run_job(&job, out, e);
}

static void try_program(const char *path, struct buffer *out) {
    char number[8];
    struct error e = {0};
    if (run_program(path, "--echo", "0", out, &e)) fail_msg("%s", e.text);
    assert_string_equal(out->data, "bytes");
    for (size_t i = 0; i < ARRAY_COUNT(attacks); i++) {
        snprintf(number, sizeof number, "%zu", i);
        expect_refused("program", &attacks[i], run_program(path, "--attack", number, out, &e), out,
                       &e);
    }
}

static void test_program(void **state) {
    (void)state;
    char path[FOLDER_PATH_SIZE];
    struct buffer out = {0};
    struct error e = {0};
    if (SANITIZED) skip();
    copy_program(path);
    try_program(path, &out);
    /* Root's programs lie in folders that root alone enters, too. */
    chmod(test_folder, 0700);
    if (sandbox_landlock_version() > 0) try_program(path, &out);
    chmod(test_folder, 0711);
    assert_string_equal(secret, "the secret of the parent");
    /* Of the environment there is nothing but the locale. */
    assert_int_equal(run_program(path, "--environment", "0", &out, &e), STATUS_OK);
    assert_string_equal(out.data, "LC_ALL=C.UTF-8\n");
    buffer_free(&out);
}

/* A program that is not there is told by name. */
static void test_missing(void **state) {
    (void)state;
    struct buffer out = {0};
    struct error e = {0};
    char *argv[] = {(char[]){"retro-no-such-program"}, NULL};
    struct sandbox_job job = {.name = "a.x",
                              .argv = argv,
                              .package = "nothing",
                              .limits = {.memory = MEMORY, .seconds = SECONDS}};
    assert_int_equal(run_job(&job, &out, &e), STATUS_UNSUPPORTED);
    assert_string_equal(
        e.text, "a.x: it needs the program retro-no-such-program; install the package nothing");
    buffer_free(&out);
}

/* Ends: time, memory, output, cancelling. */

static void write_for_ever(const struct sandbox_call *call) {
    char block[4096] = {0};
    while (write(call->output, block, sizeof block) > 0) continue;
}

static void compute_for_ever(const struct sandbox_call *call) {
    for (volatile int i = call->output; i >= 0; i ^= 1) continue;
}

static void wait_for_ever(const struct sandbox_call *call) {
    volatile int word = 0;
    (void)call;
    for (;;) syscall(SYS_futex, &word, 0, 0, NULL, NULL, 0);
}

static void crash(const struct sandbox_call *call) {
    __builtin_trap();
    (void)call;
}

/* As a library does that gives up. */
static void give_up(const struct sandbox_call *call) {
    (void)call;
    abort();
}

/* The ways in which code meets a memory that is out. Blocks are small, so that the last one that is
 * refused leaves next to nothing. */
static void fill_memory(void) {
    for (volatile char *block = malloc(4096); block; block = malloc(4096)) *block = 1;
}

static void ask_checked(const struct sandbox_call *call) {
    (void)call;
    for (;;) xmalloc(1 << 20);
}

static void use_null(const struct sandbox_call *call) {
    volatile char *volatile none = NULL;
    (void)call;
    fill_memory();
    *none = 1;
}

static void give_up_hungry(const struct sandbox_call *call) {
    fill_memory();
    give_up(call);
}

static void trap_hungry(const struct sandbox_call *call) {
    (void)call;
    fill_memory();
    __asm__ volatile(
#if defined __x86_64__
        "int3"
#else
        "brk #0"
#endif
    );
}

static int go_deep(int depth) {
    volatile char room[1 << 14] = {0};
    return depth > 0 ? go_deep(depth - 1) + room[depth & 1023] : 0;
}

static void grow_stack_hungry(const struct sandbox_call *call) {
    (void)call;
    fill_memory();
    go_deep(1 << 16);
}

/* As fontconfig does where its cache is older than the fonts: each is refused, and none ends the
 * process. */
static void repair_cache(const struct sandbox_call *call) {
    const char *folder = "/var/cache";
    bool done = chmod(folder, 0755) == 0 || chown(folder, getuid(), getgid()) == 0 ||
                mkdir("cache", 0755) == 0 || setxattr(folder, "user.a", "a", 1, 0) == 0 ||
                link("a", "b") == 0 || unlink("b") == 0;
    (void)call;
    say(done);
}

static struct sandbox_job job_of(sandbox_work *work, int seconds) {
    return (struct sandbox_job){.name = "file",
                                .input = {"bytes", 5},
                                .work = work,
                                .limits = {.memory = MEMORY, .seconds = seconds}};
}

static void test_memory_that_is_out(void **state) {
    sandbox_work *const works[] = {ask_checked, use_null, give_up_hungry, trap_hungry,
                                   grow_stack_hungry};
    struct buffer out = {0};
    struct error e = {0};
    (void)state;
    if (SANITIZED) skip();
    for (size_t i = 0; i < ARRAY_COUNT(works); i++) {
        struct sandbox_job job = job_of(works[i], SECONDS);
        enum status status = run_job(&job, &out, &e);
        if (status != STATUS_TOO_LARGE) fail_msg("%zu: %d, %s", i, (int)status, e.text);
        assert_non_null(strstr(e.text, "file: reading it needs more than"));
    }
    buffer_free(&out);
}

static void test_ends(void **state) {
    (void)state;
    struct buffer out = {0};
    struct error e = {0};
    struct sandbox_job job = job_of(write_for_ever, SECONDS);
    run_job(&job, &out, &e); /* stops reading after a mebibyte */
    job = job_of(compute_for_ever, 1);
    assert_int_equal(run_job(&job, &out, &e), STATUS_INVALID);
    assert_string_equal(e.text, "file: reading it takes over 1 seconds");
    job = job_of(wait_for_ever, 1);
    assert_int_equal(run_job(&job, &out, &e), STATUS_INVALID);
    assert_string_equal(e.text, "file: reading it takes over 1 seconds");
    job = job_of(wait_for_ever, SECONDS);
    job.limits.until = time_now() + 0.1;
    assert_int_equal(run_job(&job, &out, &e), STATUS_INVALID);
    assert_string_equal(e.text, "file: the time for all of the files is over");
    atomic_bool cancelled = true;
    job = job_of(wait_for_ever, SECONDS);
    job.limits.cancelled = &cancelled;
    assert_int_equal(run_job(&job, &out, &e), STATUS_CANCELLED);
    job = job_of(crash, SECONDS);
    assert_int_equal(run_job(&job, &out, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "ended by signal"));
    job = job_of(give_up, SECONDS);
    assert_int_equal(run_job(&job, &out, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "ended by signal"));
    buffer_free(&out);
}

static void test_repairs(void **state) {
    (void)state;
    struct buffer out = {0};
    struct error e;
    struct sandbox_job job = job_of(repair_cache, SECONDS);
    if (run_job(&job, &out, &e)) fail_msg("%s", e.text);
    assert_string_equal(out.data, "refused");
    buffer_free(&out);
}

/* Children know nothing of one another, and descriptors of this process do not pile up. */
static void test_many(void **state) {
    (void)state;
    struct sandbox_child children[16];
    struct sandbox_job job = job_of(wait_for_ever, SECONDS);
    struct error e;
    int code, before = dup(0);
    close(before);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < ARRAY_COUNT(children); i++)
            assert_int_equal(sandbox_begin(&children[i], &job, &e), STATUS_OK);
        for (size_t i = 0; i < ARRAY_COUNT(children); i++) {
            sandbox_kill(&children[i]);
            assert_int_equal(sandbox_end(&children[i], &code, &e), STATUS_INVALID);
        }
    }
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
}

/* Pictures. */

/* A file decoded here and there; returns the seconds that it took there. */
static double compare_picture(const char *name) {
    struct buffer bytes = {0};
    struct picture here, there;
    struct error e_here = {0}, e_there = {0};
    char path[200];
    snprintf(path, sizeof path, "tests/pictures/%s", name);
    if (file_read(path, 1 << 24, &bytes, &e_here)) fail_msg("%s", e_here.text);
    struct text_span file = {bytes.data, bytes.size};
    enum status status = picture_decode(&here, file, &picture_default_rules, &e_here);
    double began = time_now();
    assert_int_equal(picture_read(&there, file, &picture_default_rules, &e_there), status);
    double took = time_now() - began;
    assert_string_equal(e_here.text, e_there.text);
    assert_int_equal(here.width, there.width);
    assert_int_equal(here.height, there.height);
    if (here.pixels)
        assert_memory_equal(here.pixels, there.pixels,
                            3 * (size_t)here.width * (size_t)here.height);
    picture_free(&here);
    picture_free(&there);
    buffer_free(&bytes);
    return took;
}

/* In a process of their own pictures have the same pixels, and damaged ones the same words. */
static void test_pictures(void **state) {
    (void)state;
    DIR *folder = opendir("tests/pictures");
    double seconds = 0;
    int n = 0;
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (entry->d_type != DT_REG) continue;
        seconds += compare_picture(entry->d_name);
        n++;
    }
    closedir(folder);
    assert_true(n > 10);
    print_message("%d pictures, %.2f ms each\n", n, 1000 * seconds / n);
}

static int run_as_program(char **argv) {
    extern char **environ;
    struct target t = {.parent = atoi(argv[3])};
    if (strcmp(argv[1], "--echo") == 0) {
        char bytes[64];
        ssize_t n = read(0, bytes, sizeof bytes);
        return n < 0 || write(1, bytes, (size_t)n) != n;
    }
    if (strcmp(argv[1], "--environment") == 0) {
        for (char **at = environ; *at; at++) printf("%s\n", *at);
        return 0;
    }
    sscanf(argv[4], "%p", (void **)&t.secret);
    snprintf(t.folder, sizeof t.folder, "%s", argv[5]);
    say(attacks[atoi(argv[2])].run(&t));
    return 0;
}

static int set_up(void **state) {
    (void)state;
    strcpy(test_folder, "/tmp/retro-test-XXXXXX"); /* where programs may be begun */
    return mkdtemp(test_folder) == NULL;
}

int main(int argc, char **argv) {
    if (argc > 5) return run_as_program(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attacks_work),
                                       cmocka_unit_test(test_work),
                                       cmocka_unit_test(test_program),
                                       cmocka_unit_test(test_missing),
                                       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_repairs),
                                       cmocka_unit_test(test_pictures),
                                       cmocka_unit_test(test_memory_that_is_out)};
    return cmocka_run_group_tests(tests, set_up, folder_tear_down);
}
