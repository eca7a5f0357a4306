/* server/http/refusal.c: a whole response that says no. See refusal.h. */
#include "server/http/refusal.h"

static const char *reason_of(int http) {
    switch (http) {
        case 408: return "Request Timeout";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 431: return "Request Header Fields Too Large";
        case 500: return "Internal Server Error";
        case 505: return "HTTP Version Not Supported";
        default: return "Bad Request";
    }
}

void refusal_write(const struct failure *failure, const char *id, struct buffer *out) {
    struct buffer body = {0};
    failure_write(failure, &body);
    buffer_printf(out, "HTTP/1.1 %d %s\r\n", failure_status(failure), reason_of(failure->http));
    buffer_printf(
        out, "Content-Type: application/json\r\nCache-Control: no-store\r\nConnection: close\r\n");
    if (id) buffer_printf(out, "x-request-id: %s\r\n", id);
    buffer_printf(out, "Content-Length: %zu\r\n\r\n", body.size);
    buffer_append(out, body.data, body.size);
    buffer_free(&body);
}
