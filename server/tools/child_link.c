/* server/tools/child_link.c: a server of tools that is a process of ours: a message is a line. See
 * tool_link.h. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/tools/tool_link.h"

enum { READ_BYTES = 64 << 10, CLOSED_MOST = 64 << 10 };

/* Waiting. */

enum status tool_wait_check(const struct tool_wait *wait, struct error *e) {
    if (atomic_load(wait->stopped)) return error_set(e, STATUS_CANCELLED, "the server is stopping");
    if (atomic_load(wait->unwanted))
        return error_set(e, STATUS_CANCELLED, "nobody waits for it any more");
    if (time_now() > wait->deadline)
        return error_set(e, STATUS_BUSY,
                         "no answer came in time (tools.timeout, "
                         "tools.max_seconds)");
    return STATUS_OK;
}

enum status tool_wait_lock(const struct tool_wait *wait, pthread_mutex_t *lock, struct error *e) {
    while (pthread_mutex_trylock(lock) != 0) {
        if (tool_wait_check(wait, e)) return e->status;
        usleep(1000);
    }
    return STATUS_OK;
}

/* Starting. */

static const char *const environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
                                          "HOME=/nonexistent", NULL};

/* All descriptors above standard error. glibc has one action for them since 2.34. With an older one
 * each that the process may have gets its own, and no other thread can open one that is missed. */
static enum status close_others(posix_spawn_file_actions_t *actions, struct error *e) {
    __typeof__(&posix_spawn_file_actions_addclose) found = NULL;
    struct rlimit limit;
    *(void **)&found = dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np");
    if (found) {
        found(actions, STDERR_FILENO + 1);
        return STATUS_OK;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return error_errno(e, "limit of open files");
    if (limit.rlim_cur > CLOSED_MOST)
        return error_set(e, STATUS_UNSUPPORTED,
                         "this system's C library is older than glibc 2.34 and starts no server of "
                         "tools where a process may have more than %d open files: lower the limit "
                         "(ulimit -n, LimitNOFILE)",
                         CLOSED_MOST);
    for (int i = STDERR_FILENO + 1; i < (int)limit.rlim_cur; i++)
        posix_spawn_file_actions_addclose(actions, i);
    return STATUS_OK;
}

static enum status spawn(struct child_link *link, char *const *argv, const int theirs[2],
                         struct error *e) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (close_others(&actions, e)) {
        posix_spawn_file_actions_destroy(&actions);
        return e->status;
    }
    posix_spawn_file_actions_addchdir_np(&actions, "/");
    posix_spawnattr_init(&attributes);
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawn(&pid, argv[0], &actions, &attributes, argv,
                             (char *const *)(uintptr_t)environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return error_set(e, STATUS_IO, "cannot be started: %.200s: %s", argv[0], strerror(failed));
    link->pid = pid;
    return STATUS_OK;
}

static void close_both(const int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

enum status child_link_open(struct child_link *link, char *const *argv, struct error *e) {
    int to[2], from[2];
    *link = (struct child_link){.to = -1, .from = -1};
    if (pipe2(to, O_CLOEXEC)) return error_errno(e, "a pipe");
    if (pipe2(from, O_CLOEXEC)) {
        close_both(to);
        return error_errno(e, "a pipe");
    }
    enum status status = spawn(link, argv, (const int[2]){to[0], from[1]}, e);
    close(to[0]);
    close(from[1]);
    link->to = to[1];
    link->from = from[0];
    fcntl(link->to, F_SETFL, O_NONBLOCK);
    fcntl(link->from, F_SETFL, O_NONBLOCK);
    if (status) child_link_close(link);
    return status;
}

void child_link_close(struct child_link *link) {
    if (link->to >= 0) close(link->to);
    if (link->from >= 0) close(link->from);
    if (link->pid > 0) {
        kill(-link->pid, SIGKILL);
        while (waitpid(link->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    buffer_free(&link->unread);
    *link = (struct child_link){.to = -1, .from = -1};
}

/* Lines. */

/* Until the end is ready, or somebody has to look. */
static void look(int end, short events) {
    struct pollfd pollfd = {.fd = end, .events = events};
    poll(&pollfd, 1, TOOL_LOOK_MILLISECONDS);
}

static enum status ended(struct error *e) {
    return error_set(e, STATUS_IO, "the process has ended");
}

static enum status write_line(const struct child_link *link, struct text_span text,
                              const struct tool_wait *wait, struct error *e) {
    struct buffer line = {0};
    buffer_append(&line, text.text, text.size);
    buffer_append(&line, "\n", 1);
    enum status status = STATUS_OK;
    for (size_t at = 0; at < line.size && status == STATUS_OK;) {
        ssize_t n = write(link->to, line.data + at, line.size - at);
        if (n > 0) at += (size_t)n;
        if (n < 0 && errno != EAGAIN && errno != EINTR) status = ended(e);
        if (n < 0 && status == STATUS_OK) look(link->to, POLLOUT);
        if (status == STATUS_OK) status = tool_wait_check(wait, e);
    }
    buffer_free(&line);
    return status;
}

/* The next line that is there whole; its text NULL: none is. */
static struct text_span next_line(struct child_link *link) {
    const struct buffer *unread = &link->unread;
    size_t from = link->taken + link->seen;
    const char *end =
        unread->size > from ? memchr(unread->data + from, '\n', unread->size - from) : NULL;
    if (end == NULL) {
        link->seen = unread->size - link->taken;
        return (struct text_span){0};
    }
    struct text_span line = {unread->data + link->taken,
                             (size_t)(end - unread->data) - link->taken};
    link->taken += line.size + 1;
    link->seen = 0;
    return line;
}

/* Drops the bytes that were read as lines. */
static void drop_taken(struct child_link *link) {
    struct buffer rest = {0};
    if (link->taken == 0) return;
    buffer_append(&rest, link->unread.data + link->taken, link->unread.size - link->taken);
    buffer_free(&link->unread);
    link->unread = rest;
    link->taken = 0;
}

static enum status read_more(struct child_link *link, const struct tool_wait *wait, size_t *left,
                             struct error *e) {
    char bytes[READ_BYTES];
    ssize_t n = read(link->from, bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return ended(e);
    if (n < 0) {
        look(link->from, POLLIN);
        return tool_wait_check(wait, e);
    }
    if ((size_t)n > *left)
        return error_set(e, STATUS_TOO_LARGE, "it sent more than %zu bytes (option %s)", wait->most,
                         wait->most_option);
    *left -= (size_t)n;
    buffer_append(&link->unread, bytes, (size_t)n);
    return tool_wait_check(wait, e);
}

/* A request of the server's is refused at once, or it would wait for us as we for it. */
static enum status take_line(struct child_link *link, struct text_span line, int64_t id,
                             const struct tool_wait *wait, struct tool_reply *out,
                             struct error *e) {
    struct buffer refusal = {0};
    enum status status = tool_reply_read(out, line, id, e);
    if (status == STATUS_OK && out->kind == TOOL_REPLY_REQUEST) {
        tool_reply_put_refusal(out, &refusal);
        status = write_line(link, (struct text_span){refusal.data, refusal.size}, wait, e);
        buffer_free(&refusal);
    }
    return status;
}

static enum status read_answer(struct child_link *link, int64_t id, const struct tool_wait *wait,
                               struct tool_reply *out, struct error *e) {
    size_t left = wait->most;
    for (;;) {
        struct text_span line = next_line(link);
        if (line.text == NULL) {
            drop_taken(link);
            if (read_more(link, wait, &left, e)) return e->status;
            continue;
        }
        if (take_line(link, line, id, wait, out, e)) return e->status;
        if (out->kind == TOOL_REPLY_ANSWER) return STATUS_OK;
        tool_reply_free(out);
    }
}

enum status child_link_ask(struct child_link *link, const struct tool_message *message,
                           const struct tool_wait *wait, struct tool_reply *out, struct error *e) {
    *out = (struct tool_reply){0};
    if (write_line(link, message->text, wait, e)) return e->status;
    return message->id ? read_answer(link, message->id, wait, out, e) : STATUS_OK;
}
