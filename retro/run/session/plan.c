/* retro/run/session/plan.c: a step's plan: its arrays, and its way from rank 0 to the others. See plan.h. */
#include "retro/run/session/plan.h"

#include <stdlib.h>
#include <string.h>

void plan_open(struct plan *p, const struct plan_sizes *sizes) {
    size_t rows = (size_t)sizes->rows, items = (size_t)sizes->items, closings = (size_t)sizes->closings + 1;
    size_t given = (size_t)sizes->given * (size_t)sizes->hidden;
    *p = (struct plan){.sections = sizes->sections,
                       .ids = xcalloc(rows, sizeof *p->ids),
                       .given_rows = given ? xcalloc(rows, sizeof *p->given_rows) : NULL,
                       .given_to = given ? xcalloc((size_t)sizes->given, sizeof *p->given_to) : NULL,
                       .positions = xcalloc(rows * (size_t)sizes->sections, sizeof *p->positions),
                       .cache_rows = xcalloc(rows, sizeof *p->cache_rows),
                       .logit_rows = xcalloc(rows, sizeof *p->logit_rows),
                       .row_scale = xcalloc(rows, sizeof *p->row_scale),
                       .given = given ? xcalloc(given, sizeof *p->given) : NULL,
                       .blocks = xcalloc((size_t)sizes->blocks, sizeof *p->blocks),
                       .spans = xcalloc(items, sizeof *p->spans),
                       .cross_spans = xcalloc(items + closings, sizeof *p->cross_spans),
                       .closings = xcalloc(closings, sizeof *p->closings),
                       .sources = xcalloc(items, sizeof *p->sources)};
    if (sizes->shares == 0) return;
    struct attention_shares *kinds[] = {&p->self_shares, &p->cross_shares};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        kinds[i]->spans = xcalloc(items + closings, sizeof *kinds[i]->spans);
        kinds[i]->span_groups = xcalloc(items + closings, sizeof *kinds[i]->span_groups);
    }
    p->groups = xcalloc(2 * items * (size_t)sizes->shares, sizeof *p->groups);
    p->no_rows = xmalloc(rows * sizeof *p->no_rows);
    for (size_t i = 0; i < rows; i++) p->no_rows[i] = -1;
}

void plan_close(struct plan *p) {
    free(p->ids);
    free(p->given_rows);
    free(p->given_to);
    free(p->positions);
    free(p->cache_rows);
    free(p->logit_rows);
    free(p->row_scale);
    free(p->given);
    free(p->blocks);
    free(p->spans);
    free(p->cross_spans);
    free(p->closings);
    free(p->sources);
    free(p->self_shares.spans);
    free(p->self_shares.span_groups);
    free(p->cross_shares.spans);
    free(p->cross_shares.span_groups);
    free(p->groups);
    free(p->no_rows);
}

void plan_clear(struct plan *p) {
    p->n_rows = p->n_items = p->n_blocks = 0;
    p->n_closings = p->n_sources = p->n_cross_spans = 0;
    p->n_logits = p->n_given = 0;
    p->self_shares.n = p->cross_shares.n = p->n_groups = p->tells = 0;
}

/* One end of the way: `out` when writing, else `in`. Everything is moved by the same code, so both ends agree. */
struct transfer {
    struct buffer *out;
    struct text_span in;
};

static void move_array(struct transfer *t, void *field, size_t n, size_t size) {
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

/* n ids that stay in the bytes when they are read: all sizes are multiples of 4. */
static void move_ids(struct transfer *t, const int32_t **ids, size_t n) {
    size_t bytes = n * sizeof **ids;
    if (t->out) {
        buffer_append(t->out, *ids, bytes);
        return;
    }
    CHECK(bytes <= t->in.size);
    *ids = (const int32_t *)(const void *)t->in.text;
    t->in.text += bytes;
    t->in.size -= bytes;
}

static void move_plan(struct plan *p, int r, int d, struct transfer *t) {
    int *counts[] = {&p->n_rows,         &p->n_items,  &p->n_blocks, &p->n_closings, &p->n_sources,
                     &p->n_cross_spans,  &p->n_logits, &p->n_given,  &p->watched,    &p->self_shares.n,
                     &p->cross_shares.n, &p->n_groups, &p->tells};
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) move_array(t, counts[i], 1, sizeof *counts[i]);

    size_t rows = (size_t)p->n_rows;
    move_array(t, p->ids, rows, sizeof *p->ids);
    move_array(t, p->positions, rows * (size_t)p->sections, sizeof *p->positions);
    move_array(t, p->cache_rows, rows, sizeof *p->cache_rows);
    move_array(t, p->row_scale, rows, sizeof *p->row_scale);
    move_array(t, p->logit_rows, (size_t)p->n_logits, sizeof *p->logit_rows);
    move_array(t, p->blocks, (size_t)p->n_blocks, sizeof *p->blocks);
    move_array(t, p->spans, (size_t)p->n_items, sizeof *p->spans);
    move_array(t, p->cross_spans, (size_t)p->n_cross_spans, sizeof *p->cross_spans);
    if (p->n_given > 0) {
        move_array(t, p->given_rows, rows, sizeof *p->given_rows);
        move_array(t, p->given_to, (size_t)p->n_given, sizeof *p->given_to);
        move_array(t, p->given, (size_t)p->n_given * (size_t)d, sizeof *p->given);
    }

    struct attention_shares *kinds[] = {&p->self_shares, &p->cross_shares};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        move_array(t, kinds[i]->spans, (size_t)kinds[i]->n, sizeof *kinds[i]->spans);
        move_array(t, kinds[i]->span_groups, (size_t)kinds[i]->n, sizeof *kinds[i]->span_groups);
    }
    move_array(t, p->groups, (size_t)p->n_groups, sizeof *p->groups);

    move_array(t, p->closings, (size_t)p->n_closings, sizeof *p->closings);
    for (int i = 0; i < p->n_closings; i++) move_ids(t, &p->closings[i].ids, (size_t)p->closings[i].k * (size_t)r);
    move_array(t, p->sources, (size_t)p->n_sources, sizeof *p->sources);
    for (int i = 0; i < p->n_sources; i++) move_ids(t, &p->sources[i].ids, (size_t)p->sources[i].n);
}

void plan_write(const struct plan *p, int r, int d, struct buffer *out) {
    struct plan copy = *p; /* moving takes a plan that may be written to */
    move_plan(&copy, r, d, &(struct transfer){.out = out});
}

void plan_read(struct plan *p, int r, int d, struct text_span *in) {
    struct transfer t = {.in = *in};
    move_plan(p, r, d, &t);
    *in = t.in;
}
