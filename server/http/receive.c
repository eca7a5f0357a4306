/* server/http/receive.c: bytes to request: what is refused while it comes, and what api.c is handed. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/exchange.h"
#include "server/http/head.h"

/* The library hands on what it decoded as C strings, which a NUL would cut: it becomes a byte that is in no UTF-8, so
 * that it is in no path that there is, and is refused in a field. */
size_t text_unescape(void *context, struct MHD_Connection *connection, char *text) {
    (void)context, (void)connection;
    for (char *at = text; (at = strstr(at, "%00")) != NULL;) memcpy(at, "%FF", 3);
    return MHD_http_unescape(text);
}

struct field_list {
    struct head_field *items;
    int n, capacity;
};

const char *header_find(const struct exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result field_add(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                 const char *value, size_t value_size) {
    struct field_list *list = context;
    (void)kind;
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n] = (struct head_field){name, value, name_size, value_size};
    list->n++;
    return MHD_YES;
}

static bool exchange_check_head(const struct exchange *x, const char *method, const char *version, struct failure *f) {
    struct field_list list = {0};
    size_t size = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    if (size > HEADER_BYTES)
        return failure_set(f, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", NULL,
                           "request line and headers have %zu bytes, the limit is %d", size, HEADER_BYTES);
    if (x->n_arguments > QUERY_ARGUMENTS)
        return failure_set(f, MHD_HTTP_BAD_REQUEST, "too_many_arguments", NULL,
                           "the query string has more than %d arguments", QUERY_ARGUMENTS);
    MHD_get_connection_values_n(x->connection, MHD_HEADER_KIND, field_add, &list);
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

static bool body_refuse(const struct exchange *x, const char *size, struct failure *f) {
    return failure_set(f, MHD_HTTP_CONTENT_TOO_LARGE, "body_too_large", NULL,
                       "the body has %s bytes, the limit is %d (option server.max_body_bytes)", size,
                       x->http->o.max_body_bytes);
}

static bool exchange_admit(struct exchange *x, const char *method, const char *path, struct failure *f) {
    const char *key = header_find(x, "X-Api-Key");
    struct api_head head = {.method = method,
                            .path = path,
                            .authorization = header_find(x, "Authorization"),
                            .api_key = key ? key : header_find(x, "api-key"),
                            .address = x->address,
                            .page = {.host = header_find(x, "Host"),
                                     .origin = header_find(x, "Origin"),
                                     .fetch_site = header_find(x, "Sec-Fetch-Site"),
                                     .fetch_mode = header_find(x, "Sec-Fetch-Mode"),
                                     .fetch_dest = header_find(x, "Sec-Fetch-Dest")}};
    return api_admit(x->http->o.api, &head, &x->admission, f);
}

/* Refusals that do not need the body. */
static bool exchange_check(struct exchange *x, const char *method, const char *path, const char *version,
                           struct failure *f) {
    if (!exchange_check_head(x, method, version, f)) return false;
    const char *length = header_find(x, "Content-Length"), *coding = header_find(x, "Transfer-Encoding");
    const char *encoding = header_find(x, "Content-Encoding");
    size_t announced = length ? strtoull(length, NULL, 10) : 0;
    if (announced > (size_t)x->http->o.max_body_bytes) return body_refuse(x, length, f);
    if ((announced > 0 || coding) && encoding && strcasecmp(encoding, "identity") != 0)
        return failure_set(f, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", NULL,
                           "the body is encoded as %.100s, send it as it is", encoding);
    if (!exchange_admit(x, method, path, f)) return false;
    if (connection_over_share(x->life) && !api_path_is_for_operators(path)) {
        failure_set(f, MHD_HTTP_TOO_MANY_REQUESTS, "too_many_connections", NULL,
                    "your address has %d other connections open, the limit is server.max_client_connections",
                    x->http->o.connections.max_per_client);
        f->retry_after = 1;
        return false;
    }
    if (!connection_in_reserve(x->life) || api_path_is_for_operators(path)) return true;
    failure_set(f, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                "%d requests are in work, the limit is server.max_connections", x->http->o.connections.max);
    f->retry_after = 1;
    return false;
}

void exchange_activate(struct exchange *x) {
    x->active = true;
    atomic_fetch_add(&x->http->active, 1);
}

/* Answers in the midst of a body. MHD_NO: the library closes the connection. */
static enum MHD_Result body_cut(struct exchange *x) {
    struct failure f = {0};
    body_refuse(x, "more", &f);
    library_cut(x->connection, x->life, &f, x->id);
    failure_free(&f);
    return MHD_NO;
}

/* Pieces of any size, down to one byte. */
enum MHD_Result exchange_receive(struct exchange *x, const char *bytes, size_t *size) {
    connection_progress(x->life, *size);
    if (x->body.size + *size > (size_t)x->http->o.max_body_bytes) return body_cut(x);
    buffer_append(&x->body, bytes, *size);
    x->bytes_in += *size;
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
    const struct sockaddr *from = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    struct net_address address = {{[10] = 0xFF, [11] = 0xFF}};
    static const uint8_t local[4] = {127, 0, 0, 1};
    if (from->sa_family == AF_UNIX) memcpy(address.bytes + 12, local, sizeof local);
    if (from->sa_family == AF_INET)
        memcpy(address.bytes + 12, &((const struct sockaddr_in *)from)->sin_addr, sizeof(struct in_addr));
    if (from->sa_family == AF_INET6)
        memcpy(address.bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, sizeof address.bytes);
    return address;
}

/* The request line came, and nothing of it is decoded yet. The library hands the result to handle(). */
void *exchange_make(void *context, const char *target, struct MHD_Connection *connection) {
    struct http *h = context;
    struct exchange *x = xcalloc(1, sizeof *x);
    x->http = h;
    x->connection = connection;
    x->life = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->started = time_now();
    x->address = connection_address(connection);
    connection_set_request(x->life, x);
    x->target = target;
    x->target_size = target ? target_measure(target) : 0;
    snprintf(x->id, sizeof x->id, "req-%016llx",
             (unsigned long long)(h->id_base + atomic_fetch_add(&h->n_requests, 1)));
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

/* The names that the client gives the request, where it does. */
static void exchange_name(struct exchange *x) {
    const char *id = header_find(x, "X-Request-Id"), *trace = header_find(x, "traceparent");
    if (id && request_id_is_good(id)) snprintf(x->id, sizeof x->id, "%s", id);
    if (trace) trace_parse(&x->trace, trace);
}

/* The head is complete. A refusal here ends the connection, since the body is not read. */
enum MHD_Result exchange_begin(struct exchange *x, const char *path, const char *method, const char *version) {
    struct failure f = {0};
    x->begun = true;
    text_copy(x->method, sizeof x->method, method);
    text_copy(x->path, sizeof x->path, path);
    exchange_name(x);
    if (!connection_enter(x->life, CONNECTION_BODY)) return MHD_NO;
    if (exchange_check(x, method, path, version, &f)) return MHD_YES;
    x->last = true;
    connection_linger(x->life);
    exchange_activate(x);
    x->answer = api_refuse(x->http->o.api, header_find(x, "Origin"), &f);
    return exchange_respond(x);
}
