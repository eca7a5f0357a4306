/* retro/run/session/plan.c: a step's plan: its arrays, and its way from rank 0 to the others. See
 * plan.h. */
#include "retro/run/session/plan.h"

#include <stdlib.h>
#include <string.h>

void plan_open(struct plan *plan, const struct plan_sizes *sizes) {
    size_t rows = (size_t)sizes->rows, items = (size_t)sizes->items, spans = (size_t)sizes->spans,
           closings = (size_t)sizes->closings + 1;
    size_t given = (size_t)sizes->given * (size_t)sizes->given_columns;
    *plan = (struct plan){
        .given_columns = sizes->given_columns,
        .sections = sizes->sections,
        .ids = xcalloc(rows, sizeof *plan->ids),
        .given_rows = given ? xcalloc(rows, sizeof *plan->given_rows) : NULL,
        .given_to = given ? xcalloc((size_t)sizes->given, sizeof *plan->given_to) : NULL,
        .positions = xcalloc(rows * (size_t)sizes->sections, sizeof *plan->positions),
        .cache_rows = xcalloc(rows, sizeof *plan->cache_rows),
        .logit_rows = xcalloc(rows, sizeof *plan->logit_rows),
        .row_scale = xcalloc(rows, sizeof *plan->row_scale),
        .given = given ? xcalloc(given, sizeof *plan->given) : NULL,
        .blocks = xcalloc((size_t)sizes->blocks, sizeof *plan->blocks),
        .spans = xcalloc(spans, sizeof *plan->spans),
        .ordered_spans = xcalloc(spans, sizeof *plan->ordered_spans),
        .input_ids = xcalloc(rows, sizeof *plan->input_ids),
        .cross_spans = xcalloc(items + closings, sizeof *plan->cross_spans),
        .closings = xcalloc(closings, sizeof *plan->closings),
        .slots = xcalloc(closings, sizeof *plan->slots),
        .sources = xcalloc(items, sizeof *plan->sources)};
    if (sizes->states > 0) {
        plan->state_spans = xcalloc((size_t)sizes->states, sizeof *plan->state_spans);
        plan->save_rows = xcalloc(rows, sizeof *plan->save_rows);
    }
    if (sizes->shares == 0) return;
    struct attention_shares *kinds[] = {&plan->self_shares, &plan->cross_shares};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        kinds[i]->spans = xcalloc(spans + closings, sizeof *kinds[i]->spans);
        kinds[i]->ordered_spans = xcalloc(spans + closings, sizeof *kinds[i]->ordered_spans);
        kinds[i]->span_groups = xcalloc(spans + closings, sizeof *kinds[i]->span_groups);
    }
    plan->groups = xcalloc(2 * items * (size_t)sizes->shares, sizeof *plan->groups);
    plan->no_rows = xmalloc(rows * sizeof *plan->no_rows);
    for (size_t i = 0; i < rows; i++) plan->no_rows[i] = -1;
}

void plan_close(struct plan *plan) {
    free(plan->ids);
    free(plan->given_rows);
    free(plan->given_to);
    free(plan->positions);
    free(plan->cache_rows);
    free(plan->logit_rows);
    free(plan->row_scale);
    free(plan->given);
    free(plan->blocks);
    free(plan->state_spans);
    free(plan->save_rows);
    free(plan->spans);
    free(plan->ordered_spans);
    free(plan->input_ids);
    free(plan->cross_spans);
    free(plan->closings);
    free(plan->slots);
    free(plan->sources);
    free(plan->self_shares.spans);
    free(plan->self_shares.ordered_spans);
    free(plan->self_shares.span_groups);
    free(plan->cross_shares.spans);
    free(plan->cross_shares.ordered_spans);
    free(plan->cross_shares.span_groups);
    free(plan->groups);
    free(plan->no_rows);
}

void plan_clear(struct plan *plan) {
    plan->n_rows = plan->n_spans = plan->n_blocks = 0;
    plan->n_closings = plan->n_slots = plan->n_sources = plan->n_cross_spans = 0;
    plan->n_logits = plan->n_given = plan->n_state_spans = plan->saves = 0;
    plan->self_shares.n = plan->cross_shares.n = plan->n_groups = plan->tells = 0;
}

static void order_spans(struct attention_span *to, const struct attention_span *from, int n) {
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].mutual = 0;
    }
}

void plan_order_spans(struct plan *plan) {
    order_spans(plan->ordered_spans, plan->spans, plan->n_spans);
    order_spans(plan->self_shares.ordered_spans, plan->self_shares.spans, plan->self_shares.n);
}

void plan_input_ids(struct plan *plan, int stand_in) {
    memcpy(plan->input_ids, plan->ids, (size_t)plan->n_rows * sizeof *plan->ids);
    for (int i = 0; i < plan->n_given; i++)
        if (plan->given_to[i] >= 0) plan->input_ids[plan->given_to[i]] = stand_in;
}

/* One end of the way: `out` when writing, else `in`. Everything is moved by the same code, so both
 * ends agree. */
struct transfer {
    struct buffer *out;
    struct text_span in;
};

static void move_array(struct transfer *transfer, void *field, size_t n, size_t size) {
    size_t bytes = n * size;
    if (transfer->out) {
        buffer_append(transfer->out, field, bytes);
        return;
    }
    CHECK(bytes <= transfer->in.size);
    if (bytes) memcpy(field, transfer->in.text, bytes);
    transfer->in.text += bytes;
    transfer->in.size -= bytes;
}

/* n ids that stay in the bytes when they are read: all sizes are multiples of 4. */
static void move_ids(struct transfer *transfer, const int32_t **ids, size_t n) {
    size_t bytes = n * sizeof **ids;
    if (transfer->out) {
        buffer_append(transfer->out, *ids, bytes);
        return;
    }
    CHECK(bytes <= transfer->in.size);
    *ids = (const int32_t *)(const void *)transfer->in.text;
    transfer->in.text += bytes;
    transfer->in.size -= bytes;
}

static void move_plan(struct plan *plan, int r, struct transfer *transfer) {
    int *counts[] = {&plan->n_rows,        &plan->n_spans,        &plan->n_blocks,
                     &plan->n_closings,    &plan->n_sources,      &plan->n_cross_spans,
                     &plan->n_logits,      &plan->n_given,        &plan->watched,
                     &plan->self_shares.n, &plan->cross_shares.n, &plan->n_groups,
                     &plan->tells,         &plan->n_state_spans,  &plan->saves};
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++)
        move_array(transfer, counts[i], 1, sizeof *counts[i]);

    size_t rows = (size_t)plan->n_rows;
    move_array(transfer, plan->ids, rows, sizeof *plan->ids);
    move_array(transfer, plan->positions, rows * (size_t)plan->sections, sizeof *plan->positions);
    move_array(transfer, plan->cache_rows, rows, sizeof *plan->cache_rows);
    move_array(transfer, plan->row_scale, rows, sizeof *plan->row_scale);
    move_array(transfer, plan->logit_rows, (size_t)plan->n_logits, sizeof *plan->logit_rows);
    move_array(transfer, plan->blocks, (size_t)plan->n_blocks, sizeof *plan->blocks);
    move_array(transfer, plan->spans, (size_t)plan->n_spans, sizeof *plan->spans);
    move_array(transfer, plan->state_spans, (size_t)plan->n_state_spans, sizeof *plan->state_spans);
    if (plan->saves) move_array(transfer, plan->save_rows, rows, sizeof *plan->save_rows);
    move_array(transfer, plan->cross_spans, (size_t)plan->n_cross_spans, sizeof *plan->cross_spans);
    if (plan->n_given > 0) {
        move_array(transfer, plan->given_rows, rows, sizeof *plan->given_rows);
        move_array(transfer, plan->given_to, (size_t)plan->n_given, sizeof *plan->given_to);
        move_array(transfer, plan->given, (size_t)plan->n_given * (size_t)plan->given_columns,
                   sizeof *plan->given);
    }

    struct attention_shares *kinds[] = {&plan->self_shares, &plan->cross_shares};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        move_array(transfer, kinds[i]->spans, (size_t)kinds[i]->n, sizeof *kinds[i]->spans);
        move_array(transfer, kinds[i]->span_groups, (size_t)kinds[i]->n,
                   sizeof *kinds[i]->span_groups);
    }
    move_array(transfer, plan->groups, (size_t)plan->n_groups, sizeof *plan->groups);

    move_array(transfer, plan->closings, (size_t)plan->n_closings, sizeof *plan->closings);
    for (int i = 0; i < plan->n_closings; i++)
        move_ids(transfer, &plan->closings[i].ids, (size_t)plan->closings[i].k * (size_t)r);
    move_array(transfer, plan->sources, (size_t)plan->n_sources, sizeof *plan->sources);
    for (int i = 0; i < plan->n_sources; i++)
        move_ids(transfer, &plan->sources[i].ids, (size_t)plan->sources[i].n);
}

void plan_write(const struct plan *plan, int r, struct buffer *out) {
    struct plan copy = *plan; /* moving takes a plan that may be written to */
    move_plan(&copy, r, &(struct transfer){.out = out});
}

void plan_read(struct plan *plan, int r, struct text_span *in) {
    struct transfer transfer = {.in = *in};
    move_plan(plan, r, &transfer);
    *in = transfer.in;
}
