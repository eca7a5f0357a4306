/* server/api/core/failure.c: errors as HTTP sees them. See failure.h. */
#include "server/api/core/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/api/core/client_text.h"

bool failure_set(struct failure *failure, int http, const char *code, const char *param,
                 const char *format, ...) {
    va_list args;
    *failure = (struct failure){.http = http, .code = code, .param = xstrdup(param ? param : "")};
    va_start(args, format);
    CHECK(vasprintf(&failure->message, format, args) >= 0); /* as xmalloc */
    va_end(args);
    return false;
}

bool failure_from_error(struct failure *failure, const struct error *e) {
    int http = 500, retry_after = 0;
    const char *code = "internal_error";
    switch (e->status) {
        case STATUS_INVALID: http = 400, code = "invalid_value"; break;
        case STATUS_NOT_FOUND: http = 404, code = "not_found"; break;
        case STATUS_TOO_LARGE: http = 413, code = "too_large"; break;
        case STATUS_BUSY: http = 503, code = "server_busy", retry_after = 1; break;
        case STATUS_CANCELLED: http = 503, code = "cancelled", retry_after = 1; break;
        case STATUS_UNSUPPORTED: http = 501, code = "not_implemented"; break;
        case STATUS_NO_MEMORY: http = 503, code = "out_of_memory", retry_after = 1; break;
        case STATUS_DEVICE: http = 503, code = "device_failed", retry_after = 1; break;
        case STATUS_OK:
        case STATUS_CORRUPT:
        case STATUS_IO:
        case STATUS_INTERNAL: break;
    }
    struct buffer text = {0};
    client_text(e, &text);
    failure_set(failure, http, code, NULL, "%s", text.data);
    failure->retry_after = retry_after;
    buffer_free(&text);
    return false;
}

void failure_free(struct failure *failure) {
    free(failure->param);
    free(failure->message);
    *failure = (struct failure){0};
}

static void set_status(const struct failure *failure, struct answer *answer) {
    answer->http = failure_status(failure);
    answer->form = failure->form;
    if (failure->http == 401) answer_add_header(answer, "WWW-Authenticate", "Bearer");
    if (failure->retry_after > 0)
        answer_add_header(answer, "Retry-After", "%d", failure->retry_after);
}

void failure_answer(struct failure *failure, struct answer *answer, struct buffer *body) {
    failure->form = answer->form;
    set_status(failure, answer);
    failure_write(failure, body);
    failure_free(failure);
}

struct answer *answer_failure(struct failure *failure) {
    struct buffer body = {0};
    failure_write(failure, &body);
    struct answer *answer = answer_text(failure_status(failure), JSON_TYPE, &body);
    set_status(failure, answer);
    failure_free(failure);
    return answer;
}
