/* server/http/http.c: bytes to request, answer to bytes. The only file that includes libmicrohttpd.
 *
 * A few library threads serve all connections, so nothing here waits: when an answer has no bytes yet, the connection
 * is suspended, and the answer's waker, called by the engine or the retrieval thread, resumes it. Meanwhile the watcher
 * looks for clients that leave. Traps of the library that shape this file: the first call of the access handler must
 * not answer; a body may come in pieces of one byte; a suspended connection sees no disconnect and has no time-out;
 * stopping with suspended connections is a bug; with epoll, whose events come once, it reads what a client sent last
 * and never learns that the client closed right behind it, so it polls; it answers before a body or after it, never in
 * its midst; it takes heads that are malformed (head.h) and clients without end (connection.h). */
#include "server/http/http.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/connection.h"
#include "server/http/head.h"
#include "server/http/listen.h"
#include "server/http/refusal.h"
#include "server/http/watcher.h"

enum {
    HTTP_THREADS = 4,
    HEADER_BYTES = 16 << 10,     /* limit of request line and headers: more gets 431 */
    CLIENT_CLOSED_REQUEST = 499, /* for the log: no answer reaches a client that has left */
    CONNECTION_BYTES = 64 << 10, /* the library's buffers of one connection; it refuses headers beyond this itself */
    STREAM_BLOCK = 4 << 10
};

struct http {
    struct http_options o;
    struct MHD_Daemon *daemon;
    struct watcher *watcher;
    struct connections *connections;
    int port;
    uint64_t id_base;
    atomic_uint_fast64_t n_requests;
    atomic_int active; /* exchanges with an answer that is not yet sent */
};

/* One request and its answer. */
struct exchange {
    struct http *http;
    struct MHD_Connection *connection;
    struct connection *life;
    const char *target; /* in the library's bytes, and its size there: both before they are decoded */
    size_t target_size;
    bool begun; /* its head is complete */
    bool last;  /* the connection ends with this answer */
    int cut;    /* status of a refusal that was sent past the library; 0: none */
    char id[32];
    double started;
    char method[16], path[128]; /* for the log */
    struct buffer body;
    size_t received; /* of the body, kept or not */
    struct answer *answer;
    struct buffer out; /* of the answer: polled, of which `sent` bytes are gone */
    size_t sent;
    bool complete;
    pthread_mutex_t lock; /* guards ready and suspended */
    bool ready, suspended;
    atomic_bool gone; /* the client left */
    bool watched;
    struct watch watch;
};

/* Waiting. */

static void wake(void *context) {
    struct exchange *x = context;
    pthread_mutex_lock(&x->lock);
    if (x->suspended)
        MHD_resume_connection(x->connection);
    else
        x->ready = true;
    x->suspended = false;
    pthread_mutex_unlock(&x->lock);
}

/* Called by the watcher: the engine drops the work at once, the library finds the closed socket when resumed. */
static void client_gone(void *context) {
    struct exchange *x = context;
    atomic_store(&x->gone, true);
    x->answer->ops->cancel(x->answer);
    wake(x);
}

static void watch(struct exchange *x) {
    if (x->watched) return;
    x->watched = true;
    x->watch.fd = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    x->watch.gone = client_gone;
    x->watch.context = x;
    watcher_add(x->http->watcher, &x->watch);
}

/* False when something came in since the last poll: poll again. */
static bool suspend(struct exchange *x) {
    watch(x);
    pthread_mutex_lock(&x->lock);
    bool must_wait = !x->ready;
    x->ready = false;
    if (must_wait) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return must_wait;
}

/* Sending. */

static void add_headers(const struct exchange *x, struct MHD_Response *response) {
    const struct answer *a = x->answer;
    MHD_add_response_header(response, "Content-Type", a->stream ? "text/event-stream" : "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "x-request-id", x->id);
    if (a->stream) MHD_add_response_header(response, "X-Accel-Buffering", "no");
    if (a->allow) MHD_add_response_header(response, "Allow", a->allow);
    if (a->http == MHD_HTTP_SERVICE_UNAVAILABLE) MHD_add_response_header(response, "Retry-After", "1");
    if (x->last || atomic_load(&x->http->o.api->draining)) MHD_add_response_header(response, "Connection", "close");
}

static enum MHD_Result send_response(struct exchange *x, struct MHD_Response *response) {
    if (response == NULL) return MHD_NO;
    add_headers(x, response);
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)x->answer->http, response);
    MHD_destroy_response(response);
    return result;
}

/* The library asks for more bytes of a stream. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t max) {
    struct exchange *x = context;
    (void)position;
    while (x->sent == x->out.size) {
        buffer_clear(&x->out);
        x->sent = 0;
        if (x->complete) return MHD_CONTENT_READER_END_OF_STREAM;
        if (atomic_load(&x->gone)) return MHD_CONTENT_READER_END_WITH_ERROR;
        enum answer_progress progress = x->answer->ops->poll(x->answer, &x->out);
        x->complete = progress == ANSWER_COMPLETE;
        if (progress == ANSWER_WAITING && suspend(x)) return 0;
    }
    size_t n = x->out.size - x->sent < max ? x->out.size - x->sent : max;
    memcpy(bytes, x->out.data + x->sent, n);
    x->sent += n;
    return (ssize_t)n;
}

static enum MHD_Result respond(struct exchange *x) {
    if (x->answer->stream)
        return send_response(x,
                             MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL));
    while (!x->complete) {
        if (atomic_load(&x->gone)) return MHD_NO;
        enum answer_progress progress = x->answer->ops->poll(x->answer, &x->out);
        x->complete = progress == ANSWER_COMPLETE;
        if (progress == ANSWER_WAITING && suspend(x)) return MHD_YES;
    }
    return send_response(x, MHD_create_response_from_buffer(x->out.size, x->out.data, MHD_RESPMEM_PERSISTENT));
}

/* Receiving. */

/* The library hands on what it decoded as C strings, which a NUL would cut: it becomes a byte that is in no UTF-8, so
 * that it is in no path that there is, and is refused in a field. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text) {
    (void)context, (void)connection;
    for (char *at = text; (at = strstr(at, "%00")) != NULL;) memcpy(at, "%FF", 3);
    return MHD_http_unescape(text);
}

struct argument_list {
    struct query_argument *items;
    int n, capacity;
};

static enum MHD_Result add_argument(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    struct argument_list *list = context;
    (void)kind;
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n++] = (struct query_argument){name, value ? value : ""};
    return MHD_YES;
}

struct field_list {
    struct head_field *items;
    int n, capacity;
};

static const char *header(const struct exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result add_field(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                 const char *value, size_t value_size) {
    struct field_list *list = context;
    (void)kind;
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n++] = (struct head_field){name, value, name_size, value_size};
    return MHD_YES;
}

static bool check_head(const struct exchange *x, const char *method, const char *version, struct failure *f) {
    struct field_list list = {0};
    size_t size = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    if (size > HEADER_BYTES)
        return failure_set(f, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", NULL,
                           "request line and headers have %zu bytes, the limit is %d", size, HEADER_BYTES);
    MHD_get_connection_values_n(x->connection, MHD_HEADER_KIND, add_field, &list);
    struct head head = {.method = method,
                        .target = x->target,
                        .version = version,
                        .target_size = x->target_size,
                        .size = size,
                        .fields = list.items,
                        .n_fields = list.n};
    bool ok = head_check(&head, f);
    free(list.items);
    return ok;
}

static bool body_too_large(const struct exchange *x, const char *size, struct failure *f) {
    return failure_set(f, MHD_HTTP_CONTENT_TOO_LARGE, "body_too_large", NULL,
                       "the body has %s bytes, the limit is %d (option server.max_body_bytes)", size,
                       x->http->o.max_body_bytes);
}

/* Operators see the server when all connections are busy. */
static bool is_for_operators(const char *path) { return strcmp(path, "/health") == 0; }

/* What is refused before the body comes. */
static bool check_request(struct exchange *x, const char *method, const char *path, const char *version,
                          struct failure *f) {
    if (!check_head(x, method, version, f)) return false;
    const char *length = header(x, "Content-Length"), *coding = header(x, "Transfer-Encoding");
    const char *encoding = header(x, "Content-Encoding");
    size_t announced = length ? strtoull(length, NULL, 10) : 0;
    if (announced > (size_t)x->http->o.max_body_bytes) return body_too_large(x, length, f);
    if ((announced > 0 || coding) && encoding && strcasecmp(encoding, "identity") != 0)
        return failure_set(f, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", NULL,
                           "the body is encoded as %.100s, send it as it is", encoding);
    if (connection_in_reserve(x->life) && !is_for_operators(path))
        return failure_set(f, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                           "%d requests are in work, the limit is server.max_connections", x->http->o.connections.max);
    return true;
}

/* From here to completed() the exchange is active: stopping waits for it. A request whose body never came is not. */
static void set_answer(struct exchange *x, struct answer *answer) {
    x->answer = answer;
    atomic_fetch_add(&x->http->active, 1);
}

static void open_answer(struct exchange *x, const char *method, const char *path) {
    struct argument_list list = {0};
    MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, add_argument, &list);
    struct api_request r = {.method = method,
                            .path = path,
                            .content_type = header(x, "Content-Type"),
                            .body = x->body.data ? x->body.data : "",
                            .size = x->body.size,
                            .arguments = list.items,
                            .n_arguments = list.n};
    set_answer(x, api_open(x->http->o.api, &r, (struct waker){wake, x}));
    free(list.items);
    buffer_free(&x->body);
}

/* Answers in the midst of a body. MHD_NO: the library closes the connection. */
static enum MHD_Result cut_body(struct exchange *x) {
    struct failure f;
    struct buffer bytes = {0};
    body_too_large(x, "more", &f);
    refusal_write(&f, x->id, &bytes);
    connection_reply(x->life, bytes.data, bytes.size);
    buffer_free(&bytes);
    x->cut = f.http;
    return MHD_NO;
}

/* Pieces of any size, down to one byte. */
static enum MHD_Result receive_body(struct exchange *x, const char *bytes, size_t *size) {
    connection_progress(x->life, *size);
    if (x->body.size + *size > (size_t)x->http->o.max_body_bytes) return cut_body(x);
    buffer_append(&x->body, bytes, *size);
    *size = 0;
    return MHD_YES;
}

/* Copies for the log; a path may hold anything, a line of the log may not. */
static void copy_printable(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
    for (; *to; to++)
        if ((unsigned char)*to <= ' ' || (unsigned char)*to >= 0x7F) *to = '?';
}

/* The request line came, and nothing of it is decoded yet. The library hands the result to handle(). */
static void *make_exchange(void *context, const char *target, struct MHD_Connection *connection) {
    struct http *h = context;
    struct exchange *x = xcalloc(1, sizeof *x);
    x->http = h;
    x->connection = connection;
    x->life = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->started = time_now();
    x->target = target;
    x->target_size = target ? target_measure(target) : 0;
    snprintf(x->id, sizeof x->id, "req-%016llx",
             (unsigned long long)(h->id_base + atomic_fetch_add(&h->n_requests, 1)));
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

/* The head is complete. What is refused here ends the connection, since its body is not read. */
static enum MHD_Result begin(struct exchange *x, const char *path, const char *method, const char *version) {
    struct failure f;
    x->begun = true;
    copy_printable(x->method, sizeof x->method, method);
    copy_printable(x->path, sizeof x->path, path);
    if (!connection_enter(x->life, CONNECTION_BODY)) return MHD_NO;
    if (check_request(x, method, path, version, &f)) return MHD_YES;
    x->last = true;
    connection_linger(x->life);
    set_answer(x, answer_failure(&f));
    return respond(x);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *bytes, size_t *size, void **state) {
    struct exchange *x = *state;
    (void)context, (void)connection;
    if (!x->begun) return begin(x, path, method, version);
    if (*size > 0) return receive_body(x, bytes, size);
    if (x->answer == NULL) {
        if (!connection_enter(x->life, CONNECTION_ANSWER)) return MHD_NO;
        open_answer(x, method, path);
    }
    return respond(x);
}

/* Status for the log, and why it is not the one that the client was sent. */
static int status_of(const struct exchange *x, enum MHD_RequestTerminationCode reason, const char **why) {
    enum connection_end end = connection_why(x->life);
    bool answered = x->answer != NULL, ended = reason == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    *why = "";
    if (x->cut) return x->cut;
    if (answered && ended) return x->answer->http;
    if (end == CONNECTION_TOO_SLOW) return *why = " (the body came too slowly)", MHD_HTTP_REQUEST_TIMEOUT;
    if (reason == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN)
        return *why = " (the server stopped)", MHD_HTTP_SERVICE_UNAVAILABLE;
    if (reason == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED && answered)
        return *why = " (the client read nothing for server.connection_timeout)", CLIENT_CLOSED_REQUEST;
    if (reason == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED)
        return *why = " (the body did not come)", MHD_HTTP_REQUEST_TIMEOUT;
    if (!answered && (ended || reason == MHD_REQUEST_TERMINATED_WITH_ERROR))
        return *why = " (refused by libmicrohttpd)", MHD_HTTP_BAD_REQUEST;
    return *why = " (the client left)", CLIENT_CLOSED_REQUEST;
}

static void log_exchange(const struct exchange *x, enum MHD_RequestTerminationCode reason) {
    const char *why;
    int status = status_of(x, reason, &why);
    double ms = 1000 * (time_now() - x->started);
    log_info("%s %s %s %d %.0f ms%s", x->id, x->begun ? x->method : "-", x->begun ? x->path : "-", status, ms, why);
}

/* The one place where an exchange ends, however it ends. */
static void completed(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode reason) {
    struct http *h = context;
    struct exchange *x = *state;
    (void)connection;
    if (x == NULL) return;
    *state = NULL;
    if (x->watched) watcher_remove(h->watcher, &x->watch);
    /* A head that came too late is told of when the connection closes, with or without an exchange. */
    if (connection_why(x->life) != CONNECTION_LATE) log_exchange(x, reason);
    connection_enter(x->life, CONNECTION_IDLE);
    if (x->answer) {
        x->answer->ops->close(x->answer);
        atomic_fetch_sub(&h->active, 1);
    }
    buffer_free(&x->body);
    buffer_free(&x->out);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static void follow_connection(void *context, struct MHD_Connection *connection, void **state,
                              enum MHD_ConnectionNotificationCode what) {
    struct http *h = context;
    struct connection *life = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *state = connection_open(h->connections, fd);
        return;
    }
    if (connection_why(life) == CONNECTION_LATE)
        log_info("- - - %d (the headers did not come)", MHD_HTTP_REQUEST_TIMEOUT);
    if (connection_why(life) == CONNECTION_UNUSED) log_debug("an idle connection was closed");
    connection_close(life);
}

/* The server. */

static void log_library(void *context, const char *format, va_list arguments) {
    char text[400];
    (void)context;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\r\n")] = '\0';
    log_debug("libmicrohttpd: %s", text);
}

static struct MHD_Daemon *start_daemon(struct http *h) {
    const struct http_options *o = &h->o;
    return MHD_start_daemon(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, h,
        MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET, o->socket, MHD_OPTION_URI_LOG_CALLBACK,
        make_exchange, h, MHD_OPTION_NOTIFY_COMPLETED, completed, h, MHD_OPTION_NOTIFY_CONNECTION, follow_connection, h,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(o->connections.max + CONNECTION_RESERVE), MHD_OPTION_THREAD_POOL_SIZE,
        (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->connections.idle_timeout,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

enum status http_open(struct http **out, const struct http_options *o, struct error *e) {
    struct http *h = xcalloc(1, sizeof *h);
    h->o = *o;
    CHECK(getrandom(&h->id_base, sizeof h->id_base, 0) == sizeof h->id_base);
    enum status status = watcher_open(&h->watcher, e);
    if (status == STATUS_OK) status = connections_open(&h->connections, &o->connections, e);
    if (status == STATUS_OK) status = http_listen(o->socket, &h->port, e);
    if (status == STATUS_OK) {
        h->daemon = start_daemon(h);
        if (h->daemon == NULL)
            status = error_set(e, STATUS_IO, "libmicrohttpd did not start; log.level debug tells why");
    }
    if (status) {
        close(o->socket);
        http_close(h);
    } else {
        *out = h;
    }
    return status;
}

int http_port(const struct http *h) { return h->port; }

void http_quiesce(struct http *h) {
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd == MHD_INVALID_SOCKET) return;
    shutdown(fd, SHUT_RDWR); /* at once: a thread that polls it keeps a closed one listening for a moment */
    close(fd);
}

int http_active(struct http *h) { return atomic_load(&h->active); }

void http_close(struct http *h) {
    if (h == NULL) return;
    if (h->daemon) MHD_stop_daemon(h->daemon);
    connections_close(h->connections);
    watcher_close(h->watcher);
    free(h);
}
