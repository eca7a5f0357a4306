/* config/sandbox/keeper.c: the process that begins the children. It stays as it was when the
 * program began: without threads, documents or keys, in a directory that is empty. It reaps its
 * children and tells how they ended; one whose asker has closed its control socket is killed. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/sandbox/sandbox_private.h"

struct kept_child {
    pid_t pid;
    int control;
    bool killed;
};

/* Descriptors that are polled: the socket of jobs, signals, then the control sockets. */
enum { POLL_JOBS, POLL_SIGNALS, POLL_CHILDREN };

struct keeper {
    struct kept_child *children; /* [n] */
    struct pollfd *polled;       /* [POLL_CHILDREN + n] */
    int n, capacity;
    int jobs, signals;
    size_t have;         /* address space */
    const char *refused; /* is missing for all children */
    int refused_errno;
};

/* The beginning. */

/* Nothing of what the program was told stays in the memory that children inherit. */
static void forget_secrets(char **argv) {
    extern char **environ;
    const char *path = getenv("PATH");
    char *kept = path ? xstrdup(path) : NULL;
    for (char **at = environ; at && *at; at++) explicit_bzero(*at, strlen(*at));
    clearenv();
    if (kept) setenv("PATH", kept, 1);
    free(kept);
    for (char **at = argv; at && *at; at++) explicit_bzero(*at, strlen(*at));
}

static bool enter_new_directory(const char *within) {
    char name[64];
    snprintf(name, sizeof name, "%s/retro-empty-XXXXXX", within);
    if (mkdtemp(name) == NULL) return false;
    bool entered = chdir(name) == 0;
    return rmdir(name) == 0 && entered;
}

/* A relative name leads nowhere: the directory is empty, and has no name any more. */
static bool enter_empty_directory(void) {
    static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm", "/run"};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++)
        if (enter_new_directory(places[i])) return true;
    return false;
}

static bool may_map(size_t limit, struct rlimit old) {
    struct rlimit tried = {.rlim_cur = limit, .rlim_max = old.rlim_max};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (setrlimit(RLIMIT_AS, &tried) != 0) return true;
    void *bytes = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes != MAP_FAILED) munmap(bytes, page);
    return bytes != MAP_FAILED;
}

/* The address space of this process, found by limits on it, since /proc may not be mounted. */
static size_t measure_address_space(void) {
    struct rlimit old;
    size_t low = 0, high = (size_t)1 << 47;
    if (getrlimit(RLIMIT_AS, &old) != 0) return 0;
    if (old.rlim_max < high) high = old.rlim_max;
    while (high - low > (1 << 16)) {
        size_t middle = low + (high - low) / 2;
        if (may_map(middle, old))
            high = middle;
        else
            low = middle;
    }
    setrlimit(RLIMIT_AS, &old);
    return high;
}

static int open_signals(void) {
    sigset_t set;
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    signal(SIGINT, SIG_IGN); /* for the program, which ends the socket */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Standard streams lead nowhere, the socket becomes descriptor 3, all others are closed. */
static void keep_socket(int fd) {
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++) dup2(null, i);
    if (fd != 3) dup2(fd, 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    close_from(4);
}

/* libarchive hands out names of members in the letters of the locale alone, and loses others. No
 * other category is set: numbers are written as before. */
static void know_letters(void) {
    static const char *const names[] = {"C.UTF-8", "C.utf8", "en_US.UTF-8"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (setlocale(LC_CTYPE, names[i])) return;
}

static void keeper_open(struct keeper *keeper, int fd, char **argv) {
    keep_socket(fd);
    forget_secrets(argv);
    prctl(PR_SET_NAME, "retro-keeper", 0, 0, 0);
    know_letters();
    *keeper = (struct keeper){.jobs = 3, .signals = open_signals()};
    keeper->refused = enter_empty_directory() ? calls_compile() : "an empty directory in /tmp";
    keeper->refused_errno = errno;
    keeper->have = measure_address_space();
}

/* Children. */

static void tell_end(int control, enum control_kind kind, int value, const char *what) {
    struct control_record record = {.kind = kind, .value = value};
    memcpy(record.what, what, strnlen(what, sizeof record.what - 1));
    send(control, &record, sizeof record, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(control);
}

static void reap_children(struct keeper *keeper) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < keeper->n; i++) {
            if (keeper->children[i].pid != pid) continue;
            tell_end(keeper->children[i].control, CONTROL_ENDED, status, "");
            keeper->children[i] = keeper->children[keeper->n - 1];
            keeper->n--;
            break;
        }
}

/* The job and its descriptors; false at the end of the program. */
static bool receive_job(int fd, struct keeper_job *job, int fds[KEEPER_FDS]) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(KEEPER_FDS * sizeof(int))];
    } control;
    struct iovec part = {job, sizeof *job};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR) n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = n == (ssize_t)sizeof *job ? CMSG_FIRSTHDR(&message) : NULL;
    if (head == NULL || head->cmsg_len != CMSG_LEN(KEEPER_FDS * sizeof(int))) return false;
    memcpy(fds, CMSG_DATA(head), KEEPER_FDS * sizeof(int));
    return true;
}

static void follow_keeper(pid_t keeper) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != keeper) _exit(1); /* it is gone already */
}

static void begin_child(struct keeper *the_keeper, const struct keeper_job *job,
                        const int fds[KEEPER_FDS]) {
    pid_t keeper = getpid(), pid = the_keeper->refused ? -1 : fork();
    if (pid == 0) {
        follow_keeper(keeper);
        child_begin(job, fds, the_keeper->have);
    }
    close(fds[KEEPER_INPUT]);
    close(fds[KEEPER_OUTPUT]);
    if (pid < 0) {
        tell_end(fds[KEEPER_CONTROL], CONTROL_REFUSED,
                 the_keeper->refused ? the_keeper->refused_errno : errno,
                 the_keeper->refused ? the_keeper->refused : "another process");
        return;
    }
    the_keeper->children = xgrow(the_keeper->children, the_keeper->n, &the_keeper->capacity,
                                 sizeof *the_keeper->children);
    the_keeper->children[the_keeper->n] = (struct kept_child){pid, fds[KEEPER_CONTROL], false};
    the_keeper->n++;
}

static void poll_all(struct keeper *keeper) {
    keeper->polled =
        xrealloc(keeper->polled, (POLL_CHILDREN + (size_t)keeper->n) * sizeof *keeper->polled);
    keeper->polled[POLL_JOBS] = (struct pollfd){.fd = keeper->jobs, .events = POLLIN};
    keeper->polled[POLL_SIGNALS] = (struct pollfd){.fd = keeper->signals, .events = POLLIN};
    for (int i = 0; i < keeper->n; i++)
        keeper->polled[POLL_CHILDREN + i] =
            (struct pollfd){.fd = keeper->children[i].killed ? -1 : keeper->children[i].control,
                            .events = POLLRDHUP};
    while (poll(keeper->polled, POLL_CHILDREN + (nfds_t)keeper->n, -1) < 0 && errno == EINTR)
        continue;
}

/* A child whose asker has gone. It stays in the list until it is reaped, and is asked about no
 * more. */
static void kill_unwanted(struct keeper *keeper) {
    for (int i = 0; i < keeper->n; i++) {
        if (!(keeper->polled[POLL_CHILDREN + i].revents & (POLLRDHUP | POLLHUP | POLLERR)))
            continue;
        kill(keeper->children[i].pid, SIGKILL);
        keeper->children[i].killed = true;
    }
}

_Noreturn void keeper_serve(int fd, char **argv) {
    static struct keeper_job job;
    struct signalfd_siginfo info;
    struct keeper keeper;
    int fds[KEEPER_FDS];
    bool goes_on = true;
    keeper_open(&keeper, fd, argv);
    while (goes_on) {
        poll_all(&keeper);
        kill_unwanted(&keeper);
        if (keeper.polled[POLL_SIGNALS].revents)
            while (read(keeper.signals, &info, sizeof info) > 0) reap_children(&keeper);
        if (keeper.polled[POLL_JOBS].revents) {
            goes_on = receive_job(keeper.jobs, &job, fds);
            if (goes_on) begin_child(&keeper, &job, fds);
        }
    }
    for (int i = 0; i < keeper.n; i++) kill(keeper.children[i].pid, SIGKILL);
    _exit(0);
}
