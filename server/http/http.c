/* server/http/http.c: answers to bytes, and what the library calls from a connection's first byte to its last.
 * receive.c has the bytes to request.
 *
 * A few library threads serve all connections, so nothing here waits or reads a request: while its answer is made
 * (work.c), and when a stream has no bytes yet, the connection is suspended, and resumed by the request thread or by
 * the answer's waker. Meanwhile the watcher looks for clients that leave. Traps of the library that shape this file:
 * the first call of the access handler must not answer; a body may come in pieces of one byte; a suspended connection
 * sees no disconnect and has no time-out; stopping with suspended connections is a bug; with epoll, whose events come
 * once, it reads what a client sent last and never learns that the client closed right behind it, so it polls; it
 * answers before a body or after it, never in its midst; it words errors of its own (library_words.c); it takes heads
 * that are malformed (head.h) and clients without end (connection.h). */
#include "server/http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/exchange.h"
#include "server/http/listen.h"
#include "server/http/tls.h"

enum {
    HTTP_THREADS = 4,
    CLIENT_CLOSED_REQUEST = 499, /* for the log: no answer reaches a client that has left */
    CONNECTION_BYTES = 64 << 10, /* the library's buffers of one connection; it refuses headers beyond this itself */
    STREAM_BLOCK = 4 << 10
};

/* Waiting. */

static void watch(struct exchange *x) {
    if (x->watched) return;
    x->watched = true;
    x->watch.fd = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    x->watch.gone = exchange_leave;
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
    const struct api *api = x->http->o.api;
    if (x->last || atomic_load(&api->leaving) || atomic_load(&api->draining))
        MHD_add_response_header(response, "Connection", "close");
}

static enum MHD_Result send_response(struct exchange *x, struct MHD_Response *response) {
    if (response == NULL) return MHD_NO;
    add_headers(x, response);
    enum MHD_Result result = library_queue(x->connection, (unsigned)x->answer->http, response);
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
    x->bytes_out += n;
    return (ssize_t)n;
}

enum MHD_Result exchange_respond(struct exchange *x) {
    while (exchange_is_away(x))
        if (suspend(x)) return MHD_YES;
    if (x->answer == NULL) return MHD_NO; /* the client left before it was opened */
    while (!x->complete && !x->answer->stream) {
        if (atomic_load(&x->gone)) return MHD_NO;
        enum answer_progress progress = x->answer->ops->poll(x->answer, &x->out);
        x->complete = progress == ANSWER_COMPLETE;
        if (progress == ANSWER_WAITING && suspend(x)) return MHD_YES;
    }
    if (x->answer->stream)
        return send_response(x,
                             MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL));
    x->bytes_out = x->out.size;
    return send_response(x, MHD_create_response_from_buffer(x->out.size, x->out.data, MHD_RESPMEM_PERSISTENT));
}

/* One request, from its head to its end. */

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *bytes, size_t *size, void **state) {
    struct exchange *x = *state;
    (void)context, (void)connection;
    if (!x->begun) return exchange_begin(x, path, method, version);
    if (*size > 0) return exchange_receive(x, bytes, size);
    if (!x->active) {
        if (!connection_enter(x->life, CONNECTION_ANSWER)) return MHD_NO;
        exchange_ask(x, method, path);
    }
    return exchange_respond(x);
}

struct outcome {
    int status;
    const char *why; /* "", or why it is not the one that the client was sent */
};

static struct outcome exchange_outcome(const struct exchange *x, enum MHD_RequestTerminationCode reason) {
    bool answered = x->active, ended = reason == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    int refused = connection_refused_with(x->life);
    if (refused) return (struct outcome){refused, ""};
    if (x->answer && ended) return (struct outcome){x->answer->http, ""};
    if (connection_why(x->life) == CONNECTION_TOO_SLOW)
        return (struct outcome){MHD_HTTP_REQUEST_TIMEOUT, " (the body came too slowly)"};
    if (reason == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN)
        return (struct outcome){MHD_HTTP_SERVICE_UNAVAILABLE, " (the server stopped)"};
    if (reason == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED && answered)
        return (struct outcome){CLIENT_CLOSED_REQUEST, " (the client read nothing for server.connection_timeout)"};
    if (reason == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED)
        return (struct outcome){MHD_HTTP_REQUEST_TIMEOUT, " (the body did not come)"};
    if (!answered && (ended || reason == MHD_REQUEST_TERMINATED_WITH_ERROR))
        return (struct outcome){MHD_HTTP_BAD_REQUEST, " (refused by libmicrohttpd)"};
    return (struct outcome){CLIENT_CLOSED_REQUEST, " (the client left)"};
}

static void exchange_log(const struct exchange *x, enum MHD_RequestTerminationCode reason) {
    struct outcome o = exchange_outcome(x, reason);
    struct request_record r = {.id = x->id,
                               .method = x->begun ? x->method : "-",
                               .path = x->begun ? x->path : "-",
                               .status = o.status,
                               .why = o.why,
                               .seconds = time_now() - x->started,
                               .bytes_in = x->bytes_in,
                               .bytes_out = x->bytes_out,
                               .address = x->address,
                               .principal = &x->admission.principal,
                               .trace = x->trace,
                               .body = {x->shown.data, x->shown.size}};
    api_note(x->http->o.api, &r);
}

/* The one place where an exchange ends, however it ends. */
static void exchange_end(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode reason) {
    struct http *h = context;
    struct exchange *x = *state;
    (void)connection;
    if (x == NULL) return;
    *state = NULL;
    connection_set_request(x->life, NULL);
    if (x->watched) watcher_remove(h->watcher, &x->watch);
    /* A head that came too late is told of when the connection closes, with or without an exchange. */
    if (connection_why(x->life) != CONNECTION_LATE) exchange_log(x, reason);
    connection_enter(x->life, CONNECTION_IDLE);
    if (x->answer) answer_close(x->answer);
    if (x->active) atomic_fetch_sub(&h->active, 1);
    api_leave(&x->admission);
    free(x->arguments);
    buffer_free(&x->body);
    buffer_free(&x->out);
    buffer_free(&x->shown);
    pthread_mutex_lock(&x->lock); /* whoever resumed the connection may not have let go of it yet */
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static void connection_follow(void *context, struct MHD_Connection *connection, void **state,
                              enum MHD_ConnectionNotificationCode what) {
    struct http *h = context;
    struct connection *life = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        struct net_address address = connection_address(connection);
        *state = connection_open(h->connections, fd, address_client(&address));
        atomic_fetch_add(&h->o.api->connections, 1);
        return;
    }
    if (connection_why(life) == CONNECTION_LATE)
        log_info("- - - %d (the headers did not come)", MHD_HTTP_REQUEST_TIMEOUT);
    if (connection_why(life) == CONNECTION_UNUSED) log_debug("an idle connection was closed");
    connection_close(life);
    atomic_fetch_sub(&h->o.api->connections, 1);
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
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)tls_priorities},
                                   {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, tls_callback()},
                                   {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem *more = o->tls ? tls : &tls[2];
    if (o->tls) tls_use(o->tls);
    return MHD_start_daemon(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (o->tls ? MHD_USE_TLS : 0), 0,
        NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET, o->socket,
        MHD_OPTION_URI_LOG_CALLBACK, exchange_make, h, MHD_OPTION_NOTIFY_COMPLETED, exchange_end, h,
        MHD_OPTION_NOTIFY_CONNECTION, connection_follow, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(o->connections.max + CONNECTION_RESERVE), MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->connections.idle_timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_UNESCAPE_CALLBACK, text_unescape, NULL, MHD_OPTION_SIGPIPE_HANDLED_BY_APP,
        1, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

enum status http_open(struct http **out, const struct http_options *o, struct error *e) {
    struct http *h = xcalloc(1, sizeof *h);
    struct request_threads_options threads = {
        .threads = o->request_threads, .capacity = o->max_requests, .work = exchange_work, .client = exchange_client};
    h->o = *o;
    CHECK(getrandom(&h->id_base, sizeof h->id_base, 0) == sizeof h->id_base);
    enum status status = library_values_open(e);
    if (status == STATUS_OK) status = watcher_open(&h->watcher, e);
    if (status == STATUS_OK) status = connections_open(&h->connections, &o->connections, e);
    if (status == STATUS_OK) status = request_threads_open(&h->threads, &threads, e);
    if (status == STATUS_OK) status = http_listen(o->socket, e);
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

void http_quiesce(struct http *h) {
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd == MHD_INVALID_SOCKET) return;
    if (!h->o.shared) shutdown(fd, SHUT_RDWR); /* at once: a thread that polls it keeps a closed one listening */
    close(fd);
}

int http_active(struct http *h) { return atomic_load(&h->active); }

int http_connections(struct http *h) { return connections_count(h->connections); }

void http_close(struct http *h) {
    if (h == NULL) return;
    request_threads_stop(h->threads);
    if (h->daemon) MHD_stop_daemon(h->daemon);
    request_threads_close(h->threads);
    connections_close(h->connections);
    watcher_close(h->watcher);
    free(h);
}
