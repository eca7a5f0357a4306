/* server/http/http.c: answers to bytes, and what the library calls from a connection's first byte
 * to its last. receive.c has the bytes to request.
 *
 * A few library threads serve all connections, so nothing here waits or reads a request: while its
 * answer is made (work.c), and when a stream has no bytes yet, the connection is suspended, and
 * resumed by the request thread or by the answer's waker. Meanwhile the watcher looks for clients
 * that leave. Traps of the library that shape this file: the first call of the access handler must
 * not answer; a body may come in pieces of one byte; a suspended connection sees no disconnect and
 * has no time-out; stopping with suspended connections is a bug; with epoll, whose events come
 * once, it reads what a client sent last and never learns that the client closed right behind it,
 * so it polls; it answers before a body or after it, never in its midst; it words errors of its own
 * (library_words.c); it takes heads that are malformed (head.h) and clients without end
 * (connection.h). */
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
    CONNECTION_BYTES =
        64
        << 10, /* the library's buffers of one connection; it refuses headers beyond this itself */
    STREAM_BLOCK = 4 << 10,
    FILE_BLOCK = 64 << 10 /* of a stream whose length is known */
};

/* Waiting. */

static void watch(struct exchange *exchange) {
    if (exchange->watched) return;
    exchange->watched = true;
    exchange->watch.fd =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
            ->connect_fd;
    exchange->watch.gone = exchange_leave;
    exchange->watch.context = exchange;
    watcher_add(exchange->http->watcher, &exchange->watch);
}

/* False when something came in since the last poll: poll again. */
static bool suspend(struct exchange *exchange) {
    watch(exchange);
    pthread_mutex_lock(&exchange->lock);
    bool must_wait = !exchange->ready;
    exchange->ready = false;
    if (must_wait) {
        exchange->suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    pthread_mutex_unlock(&exchange->lock);
    return must_wait;
}

/* Sending. */

static void add_headers(const struct exchange *exchange, struct MHD_Response *response) {
    const struct answer *answer = exchange->answer;
    for (int i = 0; i < answer->n_headers; i++)
        MHD_add_response_header(response, answer->headers[i].name, answer->headers[i].value);
    MHD_add_response_header(response, "x-request-id", exchange->id);
    if (answer->form.words == WORDS_ANTHROPIC)
        MHD_add_response_header(response, "request-id", exchange->id);
    const struct api *api = exchange->http->o.api;
    if (exchange->last || atomic_load(&api->leaving) || atomic_load(&api->draining))
        MHD_add_response_header(response, "Connection", "close");
}

static enum MHD_Result send_response(struct exchange *exchange, struct MHD_Response *response) {
    if (response == NULL) return MHD_NO;
    add_headers(exchange, response);
    enum MHD_Result result =
        library_queue(exchange->connection, (unsigned)exchange->answer->http, response);
    MHD_destroy_response(response);
    return result;
}

/* One that is shorter than it was said to be must not look whole. */
static ssize_t end_stream(const struct exchange *exchange) {
    uint64_t length = exchange->answer->length;
    return length == 0 || exchange->bytes_out == length ? MHD_CONTENT_READER_END_OF_STREAM
                                                        : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* The key may ask the next thing, which a client does as soon as it has the last byte. */
static void release_key(struct exchange *exchange) { api_release(&exchange->admission); }

/* The library asks for more bytes of a stream. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t max) {
    struct exchange *exchange = context;
    (void)position;
    while (exchange->sent == exchange->out.size) {
        buffer_clear(&exchange->out);
        exchange->sent = 0;
        if (exchange->complete) return end_stream(exchange);
        if (atomic_load(&exchange->gone)) return MHD_CONTENT_READER_END_WITH_ERROR;
        enum answer_progress progress =
            exchange->answer->ops->poll(exchange->answer, &exchange->out);
        exchange->complete = progress == ANSWER_COMPLETE;
        if (exchange->complete) release_key(exchange);
        if (progress == ANSWER_WAITING && suspend(exchange)) return 0;
    }
    size_t n =
        exchange->out.size - exchange->sent < max ? exchange->out.size - exchange->sent : max;
    memcpy(bytes, exchange->out.data + exchange->sent, n);
    exchange->sent += n;
    exchange->bytes_out += n;
    return (ssize_t)n;
}

enum MHD_Result exchange_respond(struct exchange *exchange) {
    while (exchange_is_away(exchange))
        if (suspend(exchange)) return MHD_YES;
    if (exchange->answer == NULL) return MHD_NO; /* the client left before it was opened */
    while (!exchange->complete && !exchange->answer->stream) {
        if (atomic_load(&exchange->gone)) return MHD_NO;
        enum answer_progress progress =
            exchange->answer->ops->poll(exchange->answer, &exchange->out);
        exchange->complete = progress == ANSWER_COMPLETE;
        if (progress == ANSWER_WAITING && suspend(exchange)) return MHD_YES;
    }
    if (exchange->complete || exchange->answer->listens) release_key(exchange);
    if (exchange->answer->stream) {
        uint64_t length = exchange->answer->length;
        return send_response(
            exchange, MHD_create_response_from_callback(length > 0 ? length : MHD_SIZE_UNKNOWN,
                                                        length > 0 ? FILE_BLOCK : STREAM_BLOCK,
                                                        read_stream, exchange, NULL));
    }
    exchange->bytes_out = exchange->out.size;
    return send_response(exchange,
                         MHD_create_response_from_buffer(exchange->out.size, exchange->out.data,
                                                         MHD_RESPMEM_PERSISTENT));
}

/* One request, from its head to its end. */

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *bytes,
                              size_t *size, void **state) {
    struct exchange *exchange = *state;
    (void)context, (void)connection;
    if (!exchange->begun) return exchange_begin(exchange, path, method, version);
    if (*size > 0) return exchange_receive(exchange, bytes, size);
    if (!exchange->active) {
        if (!connection_enter(exchange->life, CONNECTION_ANSWER)) return MHD_NO;
        exchange_ask(exchange, method, path);
    }
    return exchange_respond(exchange);
}

struct outcome {
    int status;
    const char *why; /* "", or why it is not the one that the client was sent */
};

static struct outcome exchange_outcome(const struct exchange *exchange,
                                       enum MHD_RequestTerminationCode reason) {
    bool answered = exchange->active, ended = reason == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    int refused = connection_refused_with(exchange->life);
    if (refused) return (struct outcome){refused, ""};
    if (exchange->answer && ended) return (struct outcome){exchange->answer->http, ""};
    if (connection_why(exchange->life) == CONNECTION_TOO_SLOW)
        return (struct outcome){MHD_HTTP_REQUEST_TIMEOUT, " (the body came too slowly)"};
    if (reason == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN)
        return (struct outcome){MHD_HTTP_SERVICE_UNAVAILABLE, " (the server stopped)"};
    if (reason == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED && answered)
        return (struct outcome){CLIENT_CLOSED_REQUEST,
                                " (the client read nothing for server.connection_timeout)"};
    if (reason == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED)
        return (struct outcome){MHD_HTTP_REQUEST_TIMEOUT, " (the body did not come)"};
    if (!answered && (ended || reason == MHD_REQUEST_TERMINATED_WITH_ERROR))
        return (struct outcome){MHD_HTTP_BAD_REQUEST, " (refused by libmicrohttpd)"};
    return (struct outcome){CLIENT_CLOSED_REQUEST, " (the client left)"};
}

static void exchange_log(const struct exchange *exchange, enum MHD_RequestTerminationCode reason) {
    struct outcome outcome = exchange_outcome(exchange, reason);
    struct request_record record = {.id = exchange->id,
                                    .method = exchange->begun ? exchange->method : "-",
                                    .path = exchange->begun ? exchange->path : "-",
                                    .status = outcome.status,
                                    .why = outcome.why,
                                    .seconds = time_now() - exchange->started,
                                    .bytes_in = exchange->bytes_in,
                                    .bytes_out = exchange->bytes_out,
                                    .address = exchange->address,
                                    .principal = &exchange->admission.principal,
                                    .trace = exchange->trace,
                                    .body = {exchange->shown.data, exchange->shown.size}};
    api_note(exchange->http->o.api, &record);
}

/* The one place where an exchange ends, however it ends. */
static void exchange_end(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode reason) {
    struct http *http = context;
    struct exchange *exchange = *state;
    (void)connection;
    if (exchange == NULL) return;
    *state = NULL;
    connection_set_request(exchange->life, NULL);
    if (exchange->watched) watcher_remove(http->watcher, &exchange->watch);
    /* A head that came too late is told of when the connection closes, with or without an exchange.
     */
    if (connection_why(exchange->life) != CONNECTION_LATE) exchange_log(exchange, reason);
    connection_enter(exchange->life, CONNECTION_IDLE);
    if (exchange->answer) answer_close(exchange->answer);
    if (exchange->active) atomic_fetch_sub(&http->active, 1);
    api_leave(&exchange->admission);
    free(exchange->arguments);
    buffer_free(&exchange->body);
    buffer_free(&exchange->out);
    buffer_free(&exchange->shown);
    pthread_mutex_lock(
        &exchange->lock); /* whoever resumed the connection may not have let go of it yet */
    pthread_mutex_unlock(&exchange->lock);
    pthread_mutex_destroy(&exchange->lock);
    free(exchange);
}

static void connection_follow(void *context, struct MHD_Connection *connection, void **state,
                              enum MHD_ConnectionNotificationCode what) {
    struct http *http = context;
    struct connection *life = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        struct net_address address = connection_address(connection);
        *state = connection_open(http->connections, fd, address_client(&address));
        atomic_fetch_add(&http->o.api->connections, 1);
        return;
    }
    if (connection_why(life) == CONNECTION_LATE)
        log_info("- - - %d (the headers did not come)", MHD_HTTP_REQUEST_TIMEOUT);
    if (connection_why(life) == CONNECTION_UNUSED) log_debug("an idle connection was closed");
    connection_close(life);
    atomic_fetch_sub(&http->o.api->connections, 1);
}

/* The server. */

static void log_library(void *context, const char *format, va_list arguments) {
    char text[400];
    (void)context;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\r\n")] = '\0';
    log_debug("libmicrohttpd: %s", text);
}

static struct MHD_Daemon *start_daemon(struct http *http) {
    const struct http_options *options = &http->o;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)tls_priorities},
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, tls_callback()},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem *more = options->tls ? tls : &tls[2];
    if (options->tls) tls_use(options->tls);
    return MHD_start_daemon(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
            (options->tls ? MHD_USE_TLS : 0),
        0, NULL, NULL, handle, http, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL,
        MHD_OPTION_LISTEN_SOCKET, options->socket, MHD_OPTION_URI_LOG_CALLBACK, exchange_make, http,
        MHD_OPTION_NOTIFY_COMPLETED, exchange_end, http, MHD_OPTION_NOTIFY_CONNECTION,
        connection_follow, http, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(options->connections.max + CONNECTION_RESERVE), MHD_OPTION_THREAD_POOL_SIZE,
        (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)options->connections.idle_timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_UNESCAPE_CALLBACK, text_unescape, NULL,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

enum status http_open(struct http **out, const struct http_options *options, struct error *e) {
    struct http *http = xcalloc(1, sizeof *http);
    struct request_threads_options threads = {.threads = options->request_threads,
                                              .capacity = options->max_requests,
                                              .work = exchange_work,
                                              .client = exchange_client};
    http->o = *options;
    CHECK(getrandom(&http->id_base, sizeof http->id_base, 0) == sizeof http->id_base);
    enum status status = library_values_open(e);
    if (status == STATUS_OK) status = watcher_open(&http->watcher, e);
    if (status == STATUS_OK)
        status = connections_open(&http->connections, &options->connections, e);
    if (status == STATUS_OK) status = request_threads_open(&http->threads, &threads, e);
    if (status == STATUS_OK) status = http_listen(options->socket, e);
    if (status == STATUS_OK) {
        http->daemon = start_daemon(http);
        if (http->daemon == NULL)
            status =
                error_set(e, STATUS_IO, "libmicrohttpd did not start; log.level debug tells why");
    }
    if (status) {
        close(options->socket);
        http_close(http);
    } else {
        *out = http;
    }
    return status;
}

void http_quiesce(struct http *http) {
    MHD_socket fd = MHD_quiesce_daemon(http->daemon);
    if (fd == MHD_INVALID_SOCKET) return;
    if (!http->o.shared)
        shutdown(fd, SHUT_RDWR); /* at once: a thread that polls it keeps a closed one listening */
    close(fd);
}

int http_active(struct http *http) { return atomic_load(&http->active); }

int http_connections(struct http *http) { return connections_count(http->connections); }

void http_close(struct http *http) {
    if (http == NULL) return;
    request_threads_stop(http->threads);
    if (http->daemon) MHD_stop_daemon(http->daemon);
    request_threads_close(http->threads);
    connections_close(http->connections);
    watcher_close(http->watcher);
    free(http);
}
