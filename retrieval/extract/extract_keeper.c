/* retrieval/extract/extract_keeper.c: jobs go to the keeper through a socket, with the file's bytes as a file in memory
 * and the pipe that the parser writes to. See extract_keeper.h. */
#include "retrieval/extract/extract_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "retrieval/extract/extract_private.h"

enum { KEEPER_NAME_BYTES = 4096 };

struct keeper_job {
    int32_t kind, seconds;
    uint64_t limit, memory, size;
    char name[KEEPER_NAME_BYTES];
};

static int keeper_socket = -1;

bool keeper_is_there(void) { return keeper_socket >= 0; }

/* The keeper's side. */

/* The bytes and the pipe of a job; false at the end. */
static bool receive_job(int fd, struct keeper_job *job, int fds[2]) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {job, sizeof *job};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR) n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = n == (ssize_t)sizeof *job ? CMSG_FIRSTHDR(&message) : NULL;
    if (head == NULL || head->cmsg_len != CMSG_LEN(2 * sizeof(int))) return false;
    memcpy(fds, CMSG_DATA(head), 2 * sizeof(int));
    return true;
}

static _Noreturn void run_job(const struct keeper_job *job, const int fds[2]) {
    void *bytes = job->size > 0 ? mmap(NULL, job->size, PROT_READ, MAP_PRIVATE, fds[0], 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) _exit(1);
    struct extract_file f = {.name = job->name,
                             .bytes = {bytes, job->size},
                             .kind = (enum document_kind)job->kind,
                             .limits = {.bytes = job->limit, .seconds = job->seconds, .memory = job->memory}};
    signal(SIGCHLD, SIG_DFL);
    child_parse(&f, fds[1], child_address_space());
}

static _Noreturn void serve_jobs(int fd) {
    struct keeper_job job;
    int fds[2], null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(null, i);
    dup2(fd, 3);
    close_range(4, ~0U, 0);
    signal(SIGCHLD, SIG_IGN); /* the kernel buries them */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    while (receive_job(3, &job, fds)) {
        if (fork() == 0) run_job(&job, fds);
        close(fds[0]);
        close(fds[1]);
    }
    _exit(0);
}

enum status extract_keeper_start(struct error *e) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return error_errno(e, "a pair of sockets");
    pid_t pid = fork();
    if (pid == 0) serve_jobs(ends[1]);
    close(ends[1]);
    if (pid < 0) {
        error_errno(e, "fork");
        close(ends[0]);
        return e->status;
    }
    keeper_socket = ends[0];
    return STATUS_OK;
}

/* The program's side. */

enum status keeper_begin(const struct extract_file *f, int output, struct error *e) {
    struct keeper_job job = {.kind = (int32_t)f->kind,
                             .seconds = f->limits.seconds,
                             .limit = f->limits.bytes,
                             .memory = f->limits.memory,
                             .size = f->bytes.size};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {&job, sizeof job};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    int fds[2] = {-1, output};
    memcpy(job.name, f->name, strnlen(f->name, sizeof job.name - 1));
    if (child_open_input(f->bytes, f->name, &fds[0], e)) return e->status;

    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(head), fds, sizeof fds);
    ssize_t n = sendmsg(keeper_socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR) n = sendmsg(keeper_socket, &message, MSG_NOSIGNAL);
    if (n < 0) error_errno(e, "%s: the process that begins parsers", f->name);
    close(fds[0]);
    return n < 0 ? e->status : STATUS_OK;
}
