/* server/api/core/answer.c: headers of answers, and those that are complete from the start. See answer.h. */
#include "server/api/core/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *a, const struct answer_ops *ops, const char *content_type) {
    *a = (struct answer){.ops = ops, .http = 200};
    answer_add_header(a, "Content-Type", "%s", content_type);
    answer_add_header(a, "Cache-Control", "no-store");
}

void answer_add_header(struct answer *a, const char *name, const char *format, ...) {
    va_list args;
    char *value = NULL;
    va_start(args, format);
    CHECK(vasprintf(&value, format, args) >= 0); /* as xmalloc */
    va_end(args);
    a->headers = xgrow(a->headers, a->n_headers, &a->headers_capacity, sizeof *a->headers);
    a->headers[a->n_headers] = (struct answer_header){name, value};
    a->n_headers++;
}

void answer_set_header(struct answer *a, const char *name, const char *format, ...) {
    va_list args;
    int i = 0;
    while (i < a->n_headers && strcmp(a->headers[i].name, name) != 0) i++;
    CHECK(i < a->n_headers);
    free(a->headers[i].value);
    va_start(args, format);
    CHECK(vasprintf(&a->headers[i].value, format, args) >= 0);
    va_end(args);
}

void answer_close(struct answer *a) {
    for (int i = 0; i < a->n_headers; i++) free(a->headers[i].value);
    free(a->headers);
    a->ops->close(a);
}

struct text_answer {
    struct answer base;
    struct buffer body;
};

static enum answer_progress text_poll(struct answer *a, struct buffer *out) {
    struct text_answer *t = (struct text_answer *)a;
    buffer_append(out, t->body.data, t->body.size);
    return ANSWER_COMPLETE;
}

static void text_cancel(struct answer *a) { (void)a; }

static void text_close(struct answer *a) {
    buffer_free(&((struct text_answer *)a)->body);
    free(a);
}

struct answer *answer_text(int http, const char *content_type, struct buffer *body) {
    static const struct answer_ops ops = {text_poll, text_cancel, text_close};
    struct text_answer *t = xcalloc(1, sizeof *t);
    answer_init(&t->base, &ops, content_type);
    t->base.http = http;
    t->body = *body;
    *body = (struct buffer){0};
    return &t->base;
}
