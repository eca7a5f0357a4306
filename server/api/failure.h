/* server/api/failure.h: why a request was not answered, in the words and the shape that OpenAI clients read:
 * {"error": {"message", "type", "param", "code"}}. */
#pragma once

#include "config/base/buffer.h"

struct failure {
    int http;         /* status code; 0: nothing has failed */
    const char *code; /* constant string, or NULL */
    char param[64];   /* the field at fault, or "" */
    char message[600];
};

/* Always returns false, so that a check that fails is one line: return failure_set(f, ...). param may be NULL. */
bool failure_set(struct failure *f, int http, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The one place where a status becomes an HTTP code. */
bool failure_from_error(struct failure *f, const struct error *e);
/* Appends the JSON body. */
void failure_write(const struct failure *f, struct buffer *out);
