/* config/sandbox/sandbox.c: the program's side: jobs go to the keeper through a socket, with the
 * input as a file in memory, the pipe that the child writes to, and a socket that tells its end,
 * and ends it when it is closed. */
#include "config/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/sandbox/sandbox_private.h"

/* How often it is asked whether anybody waits. */
enum { LOOK_MILLISECONDS = 50, CODE_NOT_BEGUN = 126 };

static int keeper_socket = -1;
static pthread_mutex_t keeper_lock = PTHREAD_MUTEX_INITIALIZER;

/* The keeper. */

static enum status start_keeper(char **argv, struct error *e) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return error_errno(e, "a pair of sockets");
    pid_t pid = fork();
    if (pid == 0) keeper_serve(ends[1], argv);
    close(ends[1]);
    if (pid < 0) {
        error_errno(e, "fork");
        close(ends[0]);
        return e->status;
    }
    keeper_socket = ends[0];
    return STATUS_OK;
}

enum status sandbox_start(char **argv, struct error *e) {
    pthread_mutex_lock(&keeper_lock);
    enum status status = keeper_socket < 0 ? start_keeper(argv, e) : STATUS_OK;
    pthread_mutex_unlock(&keeper_lock);
    return status;
}

/* A job. */

static enum status open_input(struct text_span bytes, const char *name, int *fd, struct error *e) {
    *fd = memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0) return error_errno(e, "%s: a file in memory", name);
    for (size_t at = 0; at < bytes.size;) {
        ssize_t n = write(*fd, bytes.text + at, bytes.size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            error_errno(e, "%s: a file in memory", name);
            close(*fd);
            return e->status;
        }
        at += (size_t)n;
    }
    lseek(*fd, 0, SEEK_SET);
    fcntl(*fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    return STATUS_OK;
}

static enum status write_arguments(struct keeper_job *message, const struct sandbox_job *job,
                                   struct error *e) {
    size_t at = 0;
    for (int i = 0; job->argv[i]; i++) {
        size_t size = strlen(job->argv[i]) + 1;
        if (size > sizeof message->bytes - at)
            return error_set(e, STATUS_TOO_LARGE, "%s: the arguments of %s are too long", job->name,
                             job->argv[0]);
        memcpy(message->bytes + at, job->argv[i], size);
        at += size;
        message->n_arguments = i + 1;
    }
    return STATUS_OK;
}

static enum status make_message(struct keeper_job *message, const struct sandbox_job *job,
                                struct error *e) {
    *message = (struct keeper_job){.input = job->input.size,
                                   .memory = job->limits.memory,
                                   .seconds = job->limits.seconds,
                                   .work = job->work,
                                   .prepare = job->prepare,
                                   .opens_files = job->opens_files};
    if (job->work == NULL) return write_arguments(message, job, e);
    CHECK(job->options.size <= sizeof message->bytes);
    if (job->options.size > 0) memcpy(message->bytes, job->options.text, job->options.size);
    return STATUS_OK;
}

static enum status send_job(const struct keeper_job *job, const int fds[KEEPER_FDS]) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(KEEPER_FDS * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {(void *)(uintptr_t)job, sizeof *job};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(KEEPER_FDS * sizeof(int));
    memcpy(CMSG_DATA(head), fds, KEEPER_FDS * sizeof(int));
    ssize_t n = sendmsg(keeper_socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR) n = sendmsg(keeper_socket, &message, MSG_NOSIGNAL);
    return n < 0 ? STATUS_IO : STATUS_OK;
}

static void close_all(int *fds, int n) {
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0) close(fds[i]);
}

/* The child's ends are closed here when it has them. */
static enum status hand_over(struct sandbox_child *child, const struct keeper_job *message,
                             int input, struct error *e) {
    int pipes[2] = {-1, -1}, ends[2] = {-1, -1};
    enum status status = STATUS_OK;
    if (pipe2(pipes, O_CLOEXEC) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        status = error_errno(e, "%s: a pipe", child->job->name);
    int fds[KEEPER_FDS] = {
        [KEEPER_INPUT] = input, [KEEPER_OUTPUT] = pipes[1], [KEEPER_CONTROL] = ends[1]};
    if (status == STATUS_OK && send_job(message, fds))
        status = error_errno(e, "%s: the process that begins parsers", child->job->name);
    close_all((int[]){pipes[1], ends[1]}, 2);
    if (status) close_all((int[]){pipes[0], ends[0]}, 2);
    child->output = pipes[0];
    child->control = ends[0];
    return status;
}

enum status sandbox_begin(struct sandbox_child *child, const struct sandbox_job *job,
                          struct error *e) {
    struct keeper_job message;
    int input;
    *child = (struct sandbox_child){.job = job, .output = -1, .control = -1};
    if (sandbox_start(NULL, e) || make_message(&message, job, e)) return e->status;
    if (open_input(job->input, job->name, &input, e)) return e->status;
    enum status status = hand_over(child, &message, input, e);
    close(input);
    return status;
}

/* Reading. */

enum status sandbox_append(struct sandbox_child *child, size_t size, struct buffer *out,
                           bool *whole, struct error *e) {
    char block[1 << 14];
    *whole = true;
    while (size > 0 && *whole) {
        size_t got, n = size < sizeof block ? size : sizeof block;
        if (sandbox_read(child, block, n, &got, e)) return e->status;
        buffer_append(out, block, got);
        *whole = got == n;
        size -= got;
    }
    buffer_append(out, "", 0);
    return STATUS_OK;
}

void sandbox_kill(struct sandbox_child *child) {
    if (!child->killed) shutdown(child->control, SHUT_WR);
    child->killed = true;
}

static bool is_set(const atomic_bool *flag) { return flag && atomic_load(flag); }

/* Milliseconds that are left; the first of two times counts. */
static double count_left(const struct sandbox_child *child, double now) {
    const struct sandbox_limits *limits = &child->job->limits;
    double left = limits->seconds - child->waited;
    if (limits->until > 0 && limits->until - now < left) left = limits->until - now;
    return left * 1000;
}

static enum status stop_waiting(struct sandbox_child *child, double now, struct error *e) {
    const struct sandbox_limits *limits = &child->job->limits;
    sandbox_kill(child);
    if (limits->until > 0 && now >= limits->until)
        return error_set(e, STATUS_INVALID, "%s: the time for all of the files is over",
                         child->job->name);
    return error_set(e, STATUS_INVALID, "%s: reading it takes over %d seconds", child->job->name,
                     limits->seconds);
}

/* Waits for bytes or the end. The reader's own work between two reads counts nothing. */
static enum status await_bytes(struct sandbox_child *child, struct error *e) {
    for (;;) {
        double began = time_now(), left = count_left(child, began);
        struct pollfd pollfd = {.fd = child->output, .events = POLLIN};
        if (left <= 0) return stop_waiting(child, began, e);
        if (is_set(child->job->limits.cancelled) || is_set(child->job->limits.stopped)) {
            sandbox_kill(child);
            return error_set(e, STATUS_CANCELLED, "%s: interrupted", child->job->name);
        }
        int ready = poll(&pollfd, 1, left < LOOK_MILLISECONDS ? (int)left + 1 : LOOK_MILLISECONDS);
        child->waited += time_now() - began;
        if (ready > 0) return STATUS_OK;
        if (ready < 0 && errno != EINTR) return error_errno(e, "%s: poll", child->job->name);
    }
}

void sandbox_write(int output, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(output, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1); /* nobody reads any more */
        at += n;
        size -= (size_t)n;
    }
}

enum status sandbox_read(struct sandbox_child *child, void *bytes, size_t size, size_t *got,
                         struct error *e) {
    *got = 0;
    while (*got < size) {
        if (await_bytes(child, e)) return e->status;
        ssize_t n = read(child->output, (char *)bytes + *got, size - *got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return error_errno(e, "%s: reading from the process that parses it", child->job->name);
        if (n == 0) return STATUS_OK;
        *got += (size_t)n;
    }
    return STATUS_OK;
}

/* The end. */

static enum status tell_signal(const struct sandbox_child *child, int number, struct error *e) {
    size_t mebibytes = child->job->limits.memory >> 20;
    if (number == SIGXCPU || number == SIGKILL)
        return error_set(e, STATUS_INVALID, "%s: reading it takes over %d seconds",
                         child->job->name, child->job->limits.seconds);
    if (number == SIGSYS)
        return error_set(e, STATUS_INVALID,
                         "%s: it made its parser ask for what no parser needs, and was stopped",
                         child->job->name);
    return error_set(e, STATUS_INVALID,
                     "%s: its parser ended by signal %d (%s): it is damaged, or takes more than "
                     "%zu MiB of memory",
                     child->job->name, number, strsignal(number), mebibytes);
}

static enum status judge_record(const struct sandbox_child *child, struct control_record *record,
                                int *code, struct error *e) {
    const char *command = child->job->argv ? child->job->argv[0] : NULL;
    record->what[sizeof record->what - 1] = '\0';
    if (record->kind == CONTROL_MISSING)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: it needs the program %s; install the package %s", child->job->name,
                         command, child->job->package ? child->job->package : command);
    if (record->kind == CONTROL_REFUSED || record->kind != CONTROL_ENDED)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: the kernel refuses %s (%s), and without it no foreign file is read",
                         child->job->name,
                         record->kind == CONTROL_REFUSED ? record->what : "to say",
                         strerror(record->value));
    if (WIFSIGNALED(record->value)) return tell_signal(child, WTERMSIG(record->value), e);
    *code = WEXITSTATUS(record->value);
    if (command == NULL && *code == CODE_NO_MEMORY)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: reading it needs more than %zu MiB of memory, which is the limit",
                         child->job->name, child->job->limits.memory >> 20);
    if (command && *code == CODE_NOT_BEGUN)
        return error_set(e, STATUS_UNSUPPORTED, "%s: %s does not begin", child->job->name, command);
    return STATUS_OK;
}

/* The first record says all: behind a refusal there is but the child's end. */
enum status sandbox_end(struct sandbox_child *child, int *code, struct error *e) {
    struct control_record record = {0};
    *code = 0;
    close(child->output); /* a child that still writes ends by it */
    ssize_t n = recv(child->control, &record, sizeof record, 0);
    while (n < 0 && errno == EINTR) n = recv(child->control, &record, sizeof record, 0);
    close(child->control);
    if (n != (ssize_t)sizeof record)
        return error_set(e, STATUS_INTERNAL, "%s: the process that begins parsers has ended",
                         child->job->name);
    return judge_record(child, &record, code, e);
}
