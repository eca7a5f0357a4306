/* server/http/http.c: bytes to request, answer to bytes. The only file that includes libmicrohttpd.
 *
 * A few library threads serve all connections, so nothing here waits: when an answer has no bytes yet, the connection
 * is suspended, and the answer's waker, called by the engine or the retrieval thread, resumes it. Meanwhile the watcher
 * looks for clients that leave. Traps of the library that shape this file: the first call of the access handler must
 * not answer; a body may come in pieces of one byte; a suspended connection sees no disconnect and has no time-out;
 * stopping with suspended connections is a bug; with epoll, whose events come once, it reads what a client sent last
 * and never learns that the client closed right behind it, so it polls. */
#include "server/http/http.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/watcher.h"

enum {
    HTTP_THREADS = 4,
    HEADER_BYTES = 16 << 10,     /* limit of request line and headers: more gets 431 */
    CONNECTION_BYTES = 64 << 10, /* the library's buffers of one connection; it refuses headers beyond this itself */
    DISCARD_FACTOR = 16,         /* a body over the limit is read and dropped up to this many times it, then cut */
    STREAM_BLOCK = 4 << 10,
    OTHER_FILES = 128 /* open files beside connections: threads, ranks, and what starting reads */
};

struct http {
    struct http_options o;
    struct MHD_Daemon *daemon;
    struct watcher *watcher;
    int port;
    uint64_t id_base;
    atomic_uint_fast64_t n_requests;
    atomic_int active; /* exchanges with an answer that is not yet sent */
};

/* One request and its answer. */
struct exchange {
    struct http *http;
    struct MHD_Connection *connection;
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
    for (int i = 0; i < a->n_headers; i++) MHD_add_response_header(response, a->headers[i].name, a->headers[i].value);
    MHD_add_response_header(response, "x-request-id", x->id);
    if (atomic_load(&x->http->o.api->draining)) MHD_add_response_header(response, "Connection", "close");
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

static const char *header(const struct exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* What this file refuses before api.c sees the request. */
static struct answer *refuse(const struct exchange *x, size_t body_size) {
    struct failure f = {0};
    size_t limit = (size_t)x->http->o.max_body_bytes;
    size_t headers = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    const char *encoding = header(x, "Content-Encoding");
    if (headers > HEADER_BYTES)
        failure_set(&f, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", NULL,
                    "request line and headers have %zu bytes, the limit is %d", headers, HEADER_BYTES);
    else if (body_size > limit)
        failure_set(&f, MHD_HTTP_CONTENT_TOO_LARGE, "body_too_large", NULL,
                    "the body has %zu bytes, the limit is %zu (option server.max_body_bytes)", body_size, limit);
    else if (body_size > 0 && encoding && strcasecmp(encoding, "identity") != 0)
        failure_set(&f, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", NULL,
                    "the body is encoded as %.100s, send it as it is", encoding);
    return f.http ? answer_failure(&f) : NULL;
}

/* The headers that say where a body ends. */
struct framing {
    int lengths, codings;
    const char *coding; /* the last one */
};

static enum MHD_Result count_framing(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    struct framing *f = context;
    (void)kind;
    f->lengths += strcasecmp(name, "Content-Length") == 0;
    if (strcasecmp(name, "Transfer-Encoding") != 0) return MHD_YES;
    f->codings++;
    f->coding = value;
    return MHD_YES;
}

/* Where a body ends must be beyond doubt. The library takes the first of several lengths and ignores codings that it
 * does not know; a proxy that reads them otherwise would take what follows the body for another client's request
 * (RFC 9112, 6.3). */
static struct answer *refuse_framing(struct MHD_Connection *connection) {
    struct framing found = {0};
    struct failure f;
    MHD_get_connection_values(connection, MHD_HEADER_KIND, count_framing, &found);
    if (found.lengths + found.codings == 0) return NULL;
    if (found.lengths + found.codings == 1 && (found.lengths || strcasecmp(found.coding, "chunked") == 0)) return NULL;
    failure_set(&f, MHD_HTTP_BAD_REQUEST, "ambiguous_body", NULL,
                "%d Content-Length and %d Transfer-Encoding headers: send one length, or the one coding chunked",
                found.lengths, found.codings);
    return answer_failure(&f);
}

/* From here to completed() the exchange is active: stopping waits for it. A request whose body never came is not. */
static void set_answer(struct exchange *x, struct answer *answer) {
    x->answer = answer;
    if (answer) atomic_fetch_add(&x->http->active, 1);
}

/* Connections from one address are one client. Of an IPv6 address the first half counts: the rest is the client's to
 * choose. */
static uint64_t client_number(const struct exchange *x) {
    const struct sockaddr *address =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    uint64_t number = 0;
    if (address->sa_family == AF_INET)
        memcpy(&number, &((const struct sockaddr_in *)address)->sin_addr, sizeof(struct in_addr));
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
        memcpy(&number, six->s6_addr + (IN6_IS_ADDR_V4MAPPED(six) ? sizeof number : 0), sizeof number);
    }
    return number;
}

static void open_answer(struct exchange *x, const char *method, const char *path) {
    set_answer(x, refuse(x, x->received));
    if (x->answer) return;
    struct argument_list list = {0};
    MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, add_argument, &list);
    struct api_request r = {.method = method,
                            .path = path,
                            .content_type = header(x, "Content-Type"),
                            .body = x->body.data ? x->body.data : "",
                            .size = x->body.size,
                            .arguments = list.items,
                            .n_arguments = list.n,
                            .client = client_number(x)};
    set_answer(x, api_open(x->http->o.api, &r, (struct waker){wake, x}));
    free(list.items);
    buffer_free(&x->body);
}

/* Pieces of any size, down to one byte. What is over the limit is counted and dropped. */
static enum MHD_Result receive_body(struct exchange *x, const char *bytes, size_t *size) {
    size_t limit = (size_t)x->http->o.max_body_bytes;
    x->received += *size;
    if (x->received > limit * DISCARD_FACTOR) return MHD_NO;
    if (x->received > limit)
        buffer_free(&x->body);
    else
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

/* The first call only makes the exchange. Refused here, which closes the connection: a body without a clear end, and
 * one that is announced as too large when the client asks before sending it (Expect: 100-continue) or when it is too
 * long to be dropped. */
static enum MHD_Result begin(struct http *h, struct MHD_Connection *connection, const char *path, const char *method,
                             struct exchange **out) {
    struct exchange *x = xcalloc(1, sizeof *x);
    x->http = h;
    x->connection = connection;
    x->started = time_now();
    snprintf(x->id, sizeof x->id, "req-%016llx",
             (unsigned long long)(h->id_base + atomic_fetch_add(&h->n_requests, 1)));
    copy_printable(x->method, sizeof x->method, method);
    copy_printable(x->path, sizeof x->path, path);
    pthread_mutex_init(&x->lock, NULL);
    *out = x;
    set_answer(x, refuse_framing(connection));
    if (x->answer) return respond(x);
    const char *length = header(x, "Content-Length");
    size_t announced = length ? strtoull(length, NULL, 10) : 0, limit = (size_t)h->o.max_body_bytes;
    if (announced <= limit || (announced <= limit * DISCARD_FACTOR && header(x, "Expect") == NULL)) return MHD_YES;
    set_answer(x, refuse(x, announced));
    return respond(x);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *bytes, size_t *size, void **state) {
    struct exchange *x = *state;
    (void)version;
    if (x == NULL) return begin(context, connection, path, method, (struct exchange **)state);
    if (*size > 0) return receive_body(x, bytes, size);
    if (x->answer == NULL) open_answer(x, method, path);
    return respond(x);
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
    log_info("%s %s %s %d %.0f ms%s", x->id, x->method, x->path, x->answer ? x->answer->http : 0,
             1000 * (time_now() - x->started), reason == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : " (client left)");
    if (x->answer) {
        answer_close(x->answer);
        atomic_fetch_sub(&h->active, 1);
    }
    buffer_free(&x->body);
    buffer_free(&x->out);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* The server. */

static void log_library(void *context, const char *format, va_list arguments) {
    char text[400];
    (void)context;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\r\n")] = '\0';
    log_debug("libmicrohttpd: %s", text);
}

static enum status bind_to(const struct addrinfo *a, int *out, struct error *e) {
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, a->ai_addr, a->ai_addrlen) == 0) {
        *out = fd;
        return STATUS_OK;
    }
    enum status status = error_errno(e, "listen");
    if (fd >= 0) close(fd);
    return status;
}

/* At the limit the library asks for the next connection again and again, as fast as it can. */
enum status http_reserve(int max_connections, struct error *e) {
    struct rlimit limit;
    rlim_t need = (rlim_t)max_connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return error_errno(e, "limit of open files");
    if (limit.rlim_cur >= need) return STATUS_OK;
    if (limit.rlim_max < need)
        return error_set(e, STATUS_INVALID,
                         "server.max_connections %d needs %llu open files, this process may have %llu: lower it or "
                         "raise the limit (ulimit -n, LimitNOFILE)",
                         max_connections, (unsigned long long)need, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? STATUS_OK : error_errno(e, "limit of open files");
}

enum status http_bind(const char *host, int port, int *fd, struct error *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char text[8];
    snprintf(text, sizeof text, "%d", port);
    int failed = getaddrinfo(host, text, &hints, &found);
    if (failed) return error_set(e, STATUS_INVALID, "server.host %s: %s", host, gai_strerror(failed));
    enum status status = bind_to(found, fd, e);
    freeaddrinfo(found);
    return status ? error_prefix(e, "server.host %s, server.port %d", host, port) : STATUS_OK;
}

/* Two programs may have bound one address as long as neither listens; then the second learns it here. */
static enum status start_listening(struct http *h, int fd, struct error *e) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char port[8] = "0";
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
        getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0)
        h->port = atoi(port);
    return listen(fd, SOMAXCONN) == 0 ? STATUS_OK : error_errno(e, "server.port %d: listen", h->port);
}

enum status http_open(struct http **out, const struct http_options *o, struct error *e) {
    struct http *h = xcalloc(1, sizeof *h);
    h->o = *o;
    CHECK(getrandom(&h->id_base, sizeof h->id_base, 0) == sizeof h->id_base);
    enum status status = watcher_open(&h->watcher, e);
    if (status == STATUS_OK) status = start_listening(h, o->socket, e);
    if (status == STATUS_OK) {
        h->daemon = MHD_start_daemon(
            MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, h,
            MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET, o->socket,
            MHD_OPTION_NOTIFY_COMPLETED, completed, h, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections,
            MHD_OPTION_THREAD_POOL_SIZE, (unsigned)min_int(HTTP_THREADS, o->max_connections),
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)CONNECTION_BYTES, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
            MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
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
    watcher_close(h->watcher);
    free(h);
}
