/* server/http/receive.c: bytes to request: what is refused while it comes, and what api.c is
 * handed. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/exchange.h"
#include "server/http/head.h"

/* The library hands on what it decoded as C strings, which a NUL would cut: it becomes a byte that
 * is in no UTF-8, so that it is in no path that there is, and is refused in a field. */
size_t text_unescape(void *context, struct MHD_Connection *connection, char *text) {
    (void)context, (void)connection;
    for (char *at = text; (at = strstr(at, "%00")) != NULL;) memcpy(at, "%FF", 3);
    return MHD_http_unescape(text);
}

struct field_list {
    struct head_field *items;
    int n, capacity;
};

const char *header_find(const struct exchange *exchange, const char *name) {
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result field_add(void *context, enum MHD_ValueKind kind, const char *name,
                                 size_t name_size, const char *value, size_t value_size) {
    struct field_list *list = context;
    (void)kind;
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n] = (struct head_field){name, value, name_size, value_size};
    list->n++;
    return MHD_YES;
}

static bool exchange_check_head(const struct exchange *exchange, const char *method,
                                const char *version, struct failure *failure) {
    struct field_list list = {0};
    size_t size =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)
            ->header_size;
    if (size > HEADER_BYTES)
        return failure_set(failure, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large",
                           NULL, "request line and headers have %zu bytes, the limit is %d", size,
                           HEADER_BYTES);
    if (exchange->n_arguments > QUERY_ARGUMENTS)
        return failure_set(failure, MHD_HTTP_BAD_REQUEST, "too_many_arguments", NULL,
                           "the query string has more than %d arguments", QUERY_ARGUMENTS);
    MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, field_add, &list);
    struct head head = {.method = method,
                        .target = exchange->target,
                        .version = version,
                        .target_size = exchange->target_size,
                        .size = size,
                        .fields = list.items,
                        .n_fields = list.n};
    bool ok = head_check(&head, failure);
    free(list.items);
    return ok;
}

static bool body_refuse(const struct exchange *exchange, const char *size,
                        struct failure *failure) {
    return failure_set(failure, MHD_HTTP_CONTENT_TOO_LARGE, "body_too_large", NULL,
                       "the body has %s bytes, the limit is %d (option server.max_body_bytes)",
                       size, exchange->http->o.max_body_bytes);
}

static bool exchange_admit(struct exchange *exchange, const char *method, const char *path,
                           struct failure *failure) {
    const char *key = header_find(exchange, "X-Api-Key");
    struct api_head head = {.method = method,
                            .path = path,
                            .authorization = header_find(exchange, "Authorization"),
                            .api_key = key ? key : header_find(exchange, "api-key"),
                            .address = exchange->address,
                            .page = {.host = header_find(exchange, "Host"),
                                     .origin = header_find(exchange, "Origin"),
                                     .fetch_site = header_find(exchange, "Sec-Fetch-Site"),
                                     .fetch_mode = header_find(exchange, "Sec-Fetch-Mode"),
                                     .fetch_dest = header_find(exchange, "Sec-Fetch-Dest")}};
    return api_admit(exchange->http->o.api, &head, &exchange->admission, failure);
}

/* Refusals that do not need the body. */
static bool exchange_check(struct exchange *exchange, const char *method, const char *path,
                           const char *version, struct failure *failure) {
    if (!exchange_check_head(exchange, method, version, failure)) return false;
    const char *length = header_find(exchange, "Content-Length"),
               *coding = header_find(exchange, "Transfer-Encoding");
    const char *encoding = header_find(exchange, "Content-Encoding"),
               *expected = header_find(exchange, "Expect");
    if (expected && strcasecmp(expected, "100-continue") != 0)
        return failure_set(failure, MHD_HTTP_EXPECTATION_FAILED, "unknown_expectation", NULL,
                           "the header Expect is %.100s: 100-continue alone can be met", expected);
    size_t announced = length ? strtoull(length, NULL, 10) : 0;
    if (announced > (size_t)exchange->http->o.max_body_bytes)
        return body_refuse(exchange, length, failure);
    if ((announced > 0 || coding) && encoding && strcasecmp(encoding, "identity") != 0)
        return failure_set(failure, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", NULL,
                           "the body is encoded as %.100s, send it as it is", encoding);
    if (!exchange_admit(exchange, method, path, failure)) return false;
    if (connection_over_share(exchange->life) && !api_path_is_for_operators(path)) {
        failure_set(failure, MHD_HTTP_TOO_MANY_REQUESTS, "too_many_connections", NULL,
                    "your address has %d other connections open, the limit is "
                    "server.max_client_connections",
                    exchange->http->o.connections.max_per_client);
        failure->retry_after = 1;
        return false;
    }
    if (!connection_in_reserve(exchange->life) || api_path_is_for_operators(path)) return true;
    failure_set(failure, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                "%d requests are in work, the limit is server.max_connections",
                exchange->http->o.connections.max);
    failure->retry_after = 1;
    return false;
}

void exchange_activate(struct exchange *exchange) {
    exchange->active = true;
    atomic_fetch_add(&exchange->http->active, 1);
}

/* Answers in the midst of a body. MHD_NO: the library closes the connection. */
static enum MHD_Result body_cut(struct exchange *exchange) {
    struct failure failure = {0};
    body_refuse(exchange, "more", &failure);
    failure.form = (struct failure_form){failure_words_of(exchange->path), exchange->id};
    library_cut(exchange->connection, exchange->life, &failure, exchange->id);
    failure_free(&failure);
    return MHD_NO;
}

/* Pieces of any size, down to one byte. */
enum MHD_Result exchange_receive(struct exchange *exchange, const char *bytes, size_t *size) {
    connection_progress(exchange->life, *size);
    if (exchange->body.size + *size > (size_t)exchange->http->o.max_body_bytes)
        return body_cut(exchange);
    buffer_append(&exchange->body, bytes, *size);
    exchange->bytes_in += *size;
    *size = 0;
    return MHD_YES;
}

/* Copies for the log; a path may hold anything, a line of the log may not. */
static void text_copy(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
    for (; *to; to++)
        if ((unsigned char)*to <= ' ' || (unsigned char)*to >= 0x7F) *to = '?';
}

struct net_address connection_address(struct MHD_Connection *connection) {
    const struct sockaddr *from =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    struct net_address address = {{[10] = 0xFF, [11] = 0xFF}};
    static const uint8_t local[4] = {127, 0, 0, 1};
    if (from->sa_family == AF_UNIX) memcpy(address.bytes + 12, local, sizeof local);
    if (from->sa_family == AF_INET)
        memcpy(address.bytes + 12, &((const struct sockaddr_in *)from)->sin_addr,
               sizeof(struct in_addr));
    if (from->sa_family == AF_INET6)
        memcpy(address.bytes, &((const struct sockaddr_in6 *)from)->sin6_addr,
               sizeof address.bytes);
    return address;
}

/* The request line came, and nothing of it is decoded yet. The library hands the result to
 * handle(). */
void *exchange_make(void *context, const char *target, struct MHD_Connection *connection) {
    struct http *http = context;
    struct exchange *exchange = xcalloc(1, sizeof *exchange);
    exchange->http = http;
    exchange->connection = connection;
    exchange->life =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    exchange->started = time_now();
    exchange->address = connection_address(connection);
    connection_set_request(exchange->life, exchange);
    exchange->target = target;
    exchange->target_size = target ? target_measure(target) : 0;
    snprintf(exchange->id, sizeof exchange->id, "req-%016llx",
             (unsigned long long)(http->id_base + atomic_fetch_add(&http->n_requests, 1)));
    pthread_mutex_init(&exchange->lock, NULL);
    return exchange;
}

/* The names that the client gives the request, where it does. */
static void exchange_name(struct exchange *exchange) {
    const char *id = header_find(exchange, "X-Request-Id"),
               *trace = header_find(exchange, "traceparent");
    if (id && request_id_is_good(id)) snprintf(exchange->id, sizeof exchange->id, "%s", id);
    if (trace) trace_parse(&exchange->trace, trace);
}

/* The head is complete. A refusal here ends the connection, since the body is not read. */
enum MHD_Result exchange_begin(struct exchange *exchange, const char *path, const char *method,
                               const char *version) {
    struct failure failure = {0};
    exchange->begun = true;
    text_copy(exchange->method, sizeof exchange->method, method);
    text_copy(exchange->path, sizeof exchange->path, path);
    exchange_name(exchange);
    if (!connection_enter(exchange->life, CONNECTION_BODY)) return MHD_NO;
    if (exchange_check(exchange, method, path, version, &failure)) return MHD_YES;
    exchange->last = true;
    connection_linger(exchange->life);
    exchange_activate(exchange);
    exchange->answer =
        api_refuse(exchange->http->o.api,
                   &(struct api_request){
                       .path = path, .id = exchange->id, .origin = header_find(exchange, "Origin")},
                   &failure);
    return exchange_respond(exchange);
}
