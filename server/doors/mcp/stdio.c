/* server/doors/mcp/stdio.c: see stdio.h. */
#include "server/doors/mcp/stdio.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/text.h"
#include "server/doors/mcp/listen.h"

static const double last_seconds = 1.8; /* for answers after the end of the input */
enum { READ_BYTES = 64 << 10, MOST_HELD = 256 };

/* An answer that is not complete. */
struct waiting {
    struct waiting *next;
    struct answer *answer;
};

struct loop {
    const struct mcp_stdio *of;
    struct mcp_session *session;
    struct buffer input;
    bool skips;         /* the rest of a line that was too long */
    bool ended, broken; /* the input; the output */
    double end;         /* with `ended`: until then answers are waited for */
    struct waiting *waiting;
    struct buffer held[MOST_HELD]; /* lines that wait for the documents */
    int n_held;
    bool streams; /* a session that shook hands is told of changes */
};

static void wake(void *context) {
    const struct loop *loop = context;
    uint64_t one = 1;
    ssize_t n = write(loop->of->wake, &one, sizeof one);
    (void)n; /* a counter that is full can be read as well */
}

/* Output. */

/* Whether the output takes more; false: the program is to end. */
static bool wait_for_output(struct loop *loop) {
    struct pollfd fds[] = {{.fd = loop->of->output, .events = POLLOUT},
                           {.fd = loop->of->stop, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0)
        if (errno != EINTR) return false;
    return !(fds[1].revents & POLLIN);
}

static void write_out(struct loop *loop, const struct buffer *out) {
    size_t sent = 0;
    while (sent < out->size && !loop->broken) {
        if (!wait_for_output(loop)) {
            loop->broken = true;
            return;
        }
        ssize_t n = write(loop->of->output, out->data + sent, out->size - sent);
        if (n > 0) sent += (size_t)n;
        loop->broken = n < 0 && errno != EINTR && errno != EAGAIN;
    }
}

/* Writes the bytes that there are of an answer; true: it is over. */
static bool go_on(struct loop *loop, struct answer *answer) {
    struct buffer out = {0};
    enum answer_progress progress;
    do progress = answer->ops->poll(answer, &out);
    while (progress == ANSWER_MORE);
    if (!answer->stream && out.size > 0) buffer_append_string(&out, "\n");
    write_out(loop, &out);
    buffer_free(&out);
    return progress == ANSWER_COMPLETE;
}

static void go_on_all(struct loop *loop) {
    struct waiting **at = &loop->waiting;
    while (*at) {
        struct waiting *waiting = *at;
        if (!go_on(loop, waiting->answer)) {
            at = &waiting->next;
            continue;
        }
        *at = waiting->next;
        answer_close(waiting->answer);
        free(waiting);
    }
}

static void follow(struct loop *loop, struct answer *answer) {
    struct waiting *waiting = xcalloc(1, sizeof *waiting);
    waiting->answer = answer;
    struct waiting **at = &loop->waiting;
    while (*at) at = &(*at)->next;
    *at = waiting;
}

/* Answers that will come by themselves. */
static bool waits_for_answers(const struct loop *loop) {
    for (const struct waiting *waiting = loop->waiting; waiting; waiting = waiting->next)
        if (!waiting->answer->listens) return true;
    return loop->n_held > 0;
}

/* Lines. */

static void ask(struct loop *loop, struct text_span line) {
    follow(loop, mcp_ask(&(struct mcp_request){.mcp = loop->of->mcp,
                                               .text = line,
                                               .who = loop->of->who,
                                               .session = loop->session,
                                               .waker = {wake, loop}}));
}

static void refuse(struct loop *loop, struct text_span line, const char *why) {
    struct mcp_fault fault = {0}, unread = {0};
    struct mcp_message message = {0};
    struct buffer out = {0};
    struct json *json = line.size > 0 ? mcp_body_parse(line, &unread) : NULL;
    if (json) mcp_message_read(&message, json, &unread);
    mcp_fault_set(&fault, line.size > 0 ? MCP_INTERNAL : MCP_NO_REQUEST, "%s", why);
    mcp_fault_write(&fault, message.id.data, &out);
    buffer_append_string(&out, "\n");
    write_out(loop, &out);
    buffer_free(&out);
    mcp_fault_free(&fault);
    mcp_fault_free(&unread);
    mcp_message_free(&message);
    json_close(json);
}

static void take_line(struct loop *loop, struct text_span line) {
    int documents = atomic_load(loop->of->documents);
    while (line.size > 0 && is_blank(line.text[line.size - 1])) line.size--;
    if (line.size == 0) return;
    if (documents == MCP_DOCUMENTS_OPEN || !mcp_looks_at_documents(line)) {
        ask(loop, line);
    } else if (documents == MCP_DOCUMENTS_FAILED) {
        refuse(loop, line, loop->of->problem);
    } else if (loop->n_held == MOST_HELD) {
        refuse(loop, line, "too many requests wait for the documents, which are being opened");
    } else {
        loop->held[loop->n_held] = (struct buffer){0};
        buffer_append(&loop->held[loop->n_held], line.text, line.size);
        loop->n_held++;
    }
}

/* Lines that waited, once the documents are open or cannot be. */
static void take_held(struct loop *loop) {
    int n = loop->n_held;
    if (n == 0 || atomic_load(loop->of->documents) == MCP_DOCUMENTS_OPENING) return;
    loop->n_held = 0;
    for (int i = 0; i < n; i++) {
        take_line(loop, (struct text_span){loop->held[i].data, loop->held[i].size});
        buffer_free(&loop->held[i]);
    }
}

static void take_lines(struct loop *loop) {
    size_t from = 0;
    char *newline;
    while (from < loop->input.size &&
           (newline = memchr(loop->input.data + from, '\n', loop->input.size - from)) != NULL) {
        size_t size = (size_t)(newline - loop->input.data) - from;
        if (!loop->skips) take_line(loop, (struct text_span){loop->input.data + from, size});
        loop->skips = false;
        from += size + 1;
    }
    struct buffer rest = {0};
    buffer_append(&rest, loop->input.data + from, loop->input.size - from);
    buffer_free(&loop->input);
    loop->input = rest;
    if (loop->input.size <= loop->of->most) return;
    if (!loop->skips)
        refuse(loop, (struct text_span){0}, "the line is too long (option server.max_body_bytes)");
    loop->skips = true;
    buffer_clear(&loop->input);
}

static void end_input(struct loop *loop) {
    if (!loop->skips && loop->input.size > 0)
        take_line(loop, (struct text_span){loop->input.data, loop->input.size});
    buffer_free(&loop->input);
    loop->ended = true;
    loop->end = time_now() + last_seconds;
}

/* Only what came anew is searched for the end of a line: a long one comes in many pieces. */
static void read_input(struct loop *loop) {
    char bytes[READ_BYTES];
    ssize_t n = read(loop->of->input, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        end_input(loop);
        return;
    }
    buffer_append(&loop->input, bytes, (size_t)n);
    if (memchr(bytes, '\n', (size_t)n) || loop->input.size > loop->of->most) take_lines(loop);
}

/* A client that shook hands is told of changes without asking. */
static void open_stream(struct loop *loop) {
    struct mcp_stream stream = {.lines = true, .after = -1, .waker = {wake, loop}};
    struct mcp_fault fault = {0};
    if (loop->streams || atomic_load(loop->of->documents) != MCP_DOCUMENTS_OPEN) return;
    if (!mcp_session_has_shaken(loop->of->mcp, loop->session)) return;
    struct answer *answer = mcp_stream_open(loop->of->mcp, loop->session, &stream, &fault);
    if (answer) follow(loop, answer);
    mcp_fault_free(&fault);
    loop->streams = true;
}

/* False: the program is to end. */
static bool wait_for_news(struct loop *loop) {
    struct pollfd fds[] = {{.fd = loop->ended ? -1 : loop->of->input, .events = POLLIN},
                           {.fd = loop->of->wake, .events = POLLIN},
                           {.fd = loop->of->stop, .events = POLLIN}};
    double left = loop->ended ? loop->end - time_now() : 0;
    uint64_t count;
    if (loop->ended && (left <= 0 || !waits_for_answers(loop))) return false;
    int n = poll(fds, ARRAY_COUNT(fds), loop->ended ? (int)(left * 1000) + 1 : -1);
    if (n < 0) return errno == EINTR;
    if (fds[2].revents & POLLIN) return false;
    if (fds[1].revents & POLLIN) n = (int)read(loop->of->wake, &count, sizeof count);
    if (fds[0].revents) read_input(loop);
    return true;
}

void mcp_stdio_run(const struct mcp_stdio *stdio) {
    struct loop loop = {.of = stdio};
    struct mcp_fault fault = {0};
    loop.session = mcp_session_open(stdio->mcp, stdio->who, mcp_newest_old_version, &fault);
    CHECK(loop.session != NULL); /* it is the only one */
    while (!loop.broken && wait_for_news(&loop)) {
        take_held(&loop);
        open_stream(&loop);
        go_on_all(&loop);
    }
    while (loop.waiting) {
        struct waiting *waiting = loop.waiting;
        loop.waiting = waiting->next;
        answer_close(waiting->answer);
        free(waiting);
    }
    for (int i = 0; i < loop.n_held; i++) buffer_free(&loop.held[i]);
    buffer_free(&loop.input);
    mcp_session_release(stdio->mcp, loop.session);
}
