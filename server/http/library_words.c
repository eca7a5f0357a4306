/* server/http/library_words.c: errors that the HTTP library words itself become the API's.
 *
 * The library answers what it cannot read by pages of HTML, and has no hook for their words. It
 * queues these pages by a public function of its own, which the dynamic linker resolves: the
 * definition here comes first, and sees every response that is not ours. Where the library is
 * linked so that it calls itself directly, its pages stay as they are.
 */
#include <dlfcn.h>

#include "server/http/exchange.h"
#include "server/http/refusal.h"
#include "server/http/tls.h"

typedef enum MHD_Result queue_function(struct MHD_Connection *connection, unsigned status,
                                       struct MHD_Response *response);

static queue_function *queue_next(void) {
    static _Atomic(queue_function *) next;
    queue_function *found = atomic_load(&next);
    if (found) return found;
    found = (queue_function *)(uintptr_t)dlsym(RTLD_NEXT, "MHD_queue_response");
    CHECK(found != NULL);
    atomic_store(&next, found);
    return found;
}

enum MHD_Result library_queue(struct MHD_Connection *connection, unsigned status,
                              struct MHD_Response *response) {
    return queue_next()(connection, status, response);
}

void library_cut(struct MHD_Connection *connection, struct connection *life,
                 const struct failure *failure, const char *id) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    struct buffer bytes = {0};
    refusal_write(failure, id, &bytes);
    if (info)
        tls_send(info->tls_session, bytes.data, bytes.size);
    else
        connection_reply(life, bytes.data, bytes.size);
    connection_refused(life, failure->http);
    connection_linger(life);
    buffer_free(&bytes);
}

static void library_failure(unsigned status, struct failure *failure) {
    switch (status) {
        case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
            failure_set(failure, (int)status, "headers_too_large", NULL,
                        "request line and headers are too large, the limit is %d bytes",
                        HEADER_BYTES);
            return;
        case MHD_HTTP_URI_TOO_LONG:
            failure_set(failure, (int)status, "target_too_long", NULL,
                        "the target of the request is too long, the limit of request line and "
                        "headers is %d bytes",
                        HEADER_BYTES);
            return;
        case MHD_HTTP_CONTENT_TOO_LARGE:
            failure_set(failure, (int)status, "body_too_large", NULL,
                        "a chunk of the body, or its extension, is too large");
            return;
        case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
            failure_set(failure, (int)status, "malformed_request", NULL,
                        "the version of HTTP is not 1.1 or 1.0");
            return;
        default:
            failure_set(failure, (int)status, "malformed_request", NULL,
                        "the request is malformed: its request line, its headers or the chunks of "
                        "its body");
    }
}

/* The library takes a line before a chunk that its memory does not hold for a fault of its own. */
static unsigned judge_status(unsigned status, const struct exchange *exchange) {
    bool in_body = exchange && exchange->begun && !exchange->active;
    return status == MHD_HTTP_INTERNAL_SERVER_ERROR && in_body ? MHD_HTTP_CONTENT_TOO_LARGE
                                                               : status;
}

/* The response is sent here, past the library, which sends the headers of some of its errors twice.
 * MHD_NO: it closes the connection. */
enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                   struct MHD_Response *page) {
    struct connection *life =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct failure failure = {0};
    (void)page;
    library_failure(judge_status(status, connection_request(life)), &failure);
    library_cut(connection, life, &failure, NULL);
    failure_free(&failure);
    return MHD_NO;
}
