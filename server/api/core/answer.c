/* server/api/core/answer.c: headers of answers, and those that are complete from the start. See
 * answer.h. */
#include "server/api/core/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *answer, const struct answer_ops *ops, const char *content_type) {
    *answer = (struct answer){.ops = ops, .http = 200};
    answer_add_header(answer, "Content-Type", "%s", content_type);
    answer_add_header(answer, "Cache-Control", "no-store");
}

void answer_add_header(struct answer *answer, const char *name, const char *format, ...) {
    va_list args;
    char *value = NULL;
    va_start(args, format);
    CHECK(vasprintf(&value, format, args) >= 0); /* as xmalloc */
    va_end(args);
    answer->headers = xgrow(answer->headers, answer->n_headers, &answer->headers_capacity,
                            sizeof *answer->headers);
    answer->headers[answer->n_headers] = (struct answer_header){name, value};
    answer->n_headers++;
}

void answer_set_header(struct answer *answer, const char *name, const char *format, ...) {
    va_list args;
    int i = 0;
    while (i < answer->n_headers && strcmp(answer->headers[i].name, name) != 0) i++;
    CHECK(i < answer->n_headers);
    free(answer->headers[i].value);
    va_start(args, format);
    CHECK(vasprintf(&answer->headers[i].value, format, args) >= 0);
    va_end(args);
}

void answer_close(struct answer *answer) {
    for (int i = 0; i < answer->n_headers; i++) free(answer->headers[i].value);
    free(answer->headers);
    answer->ops->close(answer);
}

struct text_answer {
    struct answer base;
    struct buffer body;
};

static enum answer_progress text_poll(struct answer *answer, struct buffer *out) {
    struct text_answer *text_answer = (struct text_answer *)answer;
    buffer_append(out, text_answer->body.data, text_answer->body.size);
    return ANSWER_COMPLETE;
}

static void text_cancel(struct answer *answer) { (void)answer; }

static void text_close(struct answer *answer) {
    buffer_free(&((struct text_answer *)answer)->body);
    free(answer);
}

struct answer *answer_text(int http, const char *content_type, struct buffer *body) {
    static const struct answer_ops ops = {text_poll, text_cancel, text_close};
    struct text_answer *answer = xcalloc(1, sizeof *answer);
    answer_init(&answer->base, &ops, content_type);
    answer->base.http = http;
    answer->body = *body;
    *body = (struct buffer){0};
    return &answer->base;
}
