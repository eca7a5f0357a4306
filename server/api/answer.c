/* server/api/answer.c: the answers that are complete from the start. See answer.h. */
#include "server/api/answer.h"

#include <stdlib.h>

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

struct answer *answer_text(int http, struct buffer *body) {
    static const struct answer_ops ops = {text_poll, text_cancel, text_close};
    struct text_answer *t = xcalloc(1, sizeof *t);
    t->base = (struct answer){.ops = &ops, .http = http};
    t->body = *body;
    *body = (struct buffer){0};
    return &t->base;
}

struct answer *answer_failure(const struct failure *f) {
    struct buffer body = {0};
    failure_write(f, &body);
    return answer_text(f->http, &body);
}
