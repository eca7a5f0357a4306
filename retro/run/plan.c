/* retro/run/plan.c: a step's plan: its arrays, and its way from rank 0 to the others. See plan.h. */
#include "retro/run/plan.h"

#include <stdlib.h>
#include <string.h>

void plan_open(struct plan *p, const struct session_limits *l, int max_closings) {
    size_t rows = (size_t)l->max_step_rows, sessions = (size_t)l->max_sessions, closings = (size_t)max_closings + 1;
    *p = (struct plan){.ids = xcalloc(rows, sizeof *p->ids),
                       .positions = xcalloc(rows, sizeof *p->positions),
                       .cache_rows = xcalloc(rows, sizeof *p->cache_rows),
                       .keep_rows = xcalloc(rows, sizeof *p->keep_rows),
                       .logit_rows = xcalloc(rows, sizeof *p->logit_rows),
                       .row_scale = xcalloc(rows, sizeof *p->row_scale),
                       .spans = xcalloc(sessions, sizeof *p->spans),
                       .cross_spans = xcalloc(sessions + closings, sizeof *p->cross_spans),
                       .closings = xcalloc(closings, sizeof *p->closings),
                       .closing_item = xcalloc(closings, sizeof *p->closing_item)};
}

void plan_close(struct plan *p) {
    free(p->ids);
    free(p->positions);
    free(p->cache_rows);
    free(p->keep_rows);
    free(p->logit_rows);
    free(p->row_scale);
    free(p->spans);
    free(p->cross_spans);
    free(p->closings);
    free(p->closing_item);
}

/* One end of the way: `out` when writing, else `in`. Everything is moved by the same code, so both ends agree. */
struct transfer {
    struct buffer *out;
    struct text_span in;
};

static void move(struct transfer *t, void *field, size_t n, size_t size) {
    size_t bytes = n * size;
    if (t->out) {
        buffer_append(t->out, field, bytes);
        return;
    }
    CHECK(bytes <= t->in.size);
    if (bytes) memcpy(field, t->in.text, bytes);
    t->in.text += bytes;
    t->in.size -= bytes;
}

/* All sizes are multiples of 4, so the neighbour tokens can be used in place. A closing's pointer to them has no
 * meaning on the other side and is set anew. */
static void move_plan(struct plan *p, int r, struct transfer *t) {
    int *counts[] = {&p->n_rows, &p->n_items, &p->n_closings, &p->n_cross_spans, &p->n_logits};
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) move(t, counts[i], 1, sizeof *counts[i]);
    size_t rows = (size_t)p->n_rows;
    move(t, p->ids, rows, sizeof *p->ids);
    move(t, p->positions, rows, sizeof *p->positions);
    move(t, p->cache_rows, rows, sizeof *p->cache_rows);
    move(t, p->keep_rows, rows, sizeof *p->keep_rows);
    move(t, p->row_scale, rows, sizeof *p->row_scale);
    move(t, p->logit_rows, (size_t)p->n_logits, sizeof *p->logit_rows);
    move(t, p->spans, (size_t)p->n_items, sizeof *p->spans);
    move(t, p->cross_spans, (size_t)p->n_cross_spans, sizeof *p->cross_spans);
    move(t, p->closings, (size_t)p->n_closings, sizeof *p->closings);
    for (int i = 0; i < p->n_closings; i++) {
        struct closing *c = &p->closings[i];
        size_t n = (size_t)c->k * (size_t)r;
        if (t->out) {
            buffer_append(t->out, c->ids, n * sizeof *c->ids);
            continue;
        }
        CHECK(n * sizeof *c->ids <= t->in.size);
        c->ids = (const int32_t *)(const void *)t->in.text;
        t->in.text += n * sizeof *c->ids;
        t->in.size -= n * sizeof *c->ids;
    }
}

void plan_write(const struct plan *p, int r, struct buffer *out) {
    struct plan copy = *p; /* moving takes a plan that may be written to */
    move_plan(&copy, r, &(struct transfer){.out = out});
}

void plan_read(struct plan *p, int r, struct text_span *in) {
    struct transfer t = {.in = *in};
    move_plan(p, r, &t);
    *in = t.in;
}
