/* server/api/failure.c: errors as HTTP sees them. See failure.h. */
#include "server/api/failure.h"

#include <stdio.h>

#include "config/json/json_writer.h"

bool failure_set(struct failure *f, int http, const char *code, const char *param, const char *format, ...) {
    va_list args;
    f->http = http;
    f->code = code;
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    va_start(args, format);
    vsnprintf(f->message, sizeof f->message, format, args);
    va_end(args);
    return false;
}

bool failure_from_error(struct failure *f, const struct error *e) {
    int http = 500;
    const char *code = "internal_error";
    switch (e->status) {
        case STATUS_INVALID: http = 400, code = "invalid_value"; break;
        case STATUS_NOT_FOUND: http = 404, code = "not_found"; break;
        case STATUS_TOO_LARGE: http = 413, code = "too_large"; break;
        case STATUS_BUSY: http = 503, code = "server_busy"; break;
        case STATUS_CANCELLED: http = 503, code = "cancelled"; break;
        case STATUS_UNSUPPORTED: http = 501, code = "not_implemented"; break;
        case STATUS_NO_MEMORY: http = 503, code = "out_of_memory"; break;
        case STATUS_DEVICE: code = "device_failed"; break;
        case STATUS_OK:
        case STATUS_CORRUPT:
        case STATUS_IO:
        case STATUS_INTERNAL: break;
    }
    return failure_set(f, http, code, NULL, "%s", e->text);
}

void failure_write(const struct failure *f, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_object(&w, "error");
    put_key_string(&w, "message", f->message);
    put_key_string(&w, "type", f->http < 500 ? "invalid_request_error" : "server_error");
    put_key_string(&w, "param", f->param[0] ? f->param : NULL);
    put_key_string(&w, "code", f->code);
    put_object_end(&w);
    put_object_end(&w);
}
