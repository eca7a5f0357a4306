/* retro/run/session/session.c: sessions of a pool, and the checks before a step. step.c lays out and runs a step,
 * session_ranks.c does what all ranks do beside steps. See session.h. */
#include "retro/run/session/session_private.h"

#include <stdlib.h>
#include <string.h>

enum status session_open(struct session **out, struct session_pool *p, struct grid grid, struct error *e) {
    for (int i = 0; i < p->limits.max_sessions; i++) {
        struct session *s = &p->sessions[i];
        if (s->open) continue;
        buffer_clear(&s->open_read);
        *s = (struct session){.pool = p,
                              .grid = grid,
                              .blocks = {.blocks = s->blocks.blocks},
                              .slot = -1,
                              .open = true,
                              .open_read = s->open_read};
        *out = s;
        return STATUS_OK;
    }
    return error_set(e, STATUS_BUSY, "all %d sequences are in use", p->limits.max_sessions);
}

void session_set_scope(struct session *s, uint32_t scope) { s->scope = scope; }

static void release_slot(struct session *s) {
    if (s->pool->sources.model)
        sources_drop(&s->pool->sources, s->slot);
    else
        cross_cache_free(&s->pool->cross, s->slot);
    s->slot = -1;
}

static void leave_pool(struct session *s, bool pinned) {
    release_blocks(s, pinned);
    release_slot(s);
    s->open = false;
}

void session_close(struct session *s) {
    if (s) leave_pool(s, false);
}

void session_pin(struct session *s) { leave_pool(s, true); }

struct grid session_grid(const struct session *s) {
    return s->grid;
}

int session_length(const struct session *s) { return s->length; }

void session_rewind(struct session *s, int length, struct grid grid) {
    struct session_pool *p = s->pool;
    bool counted = s->shift == 0; /* else it is not known what rows within the text are shifted by */
    bool stays = model_decoder(p->model)->dims.reads == EDGE_NONE && counted && !prefix_tree_keeps(&p->tree);
    int blocks = stays ? min_int(length, s->length) / ATTENTION_BLOCK : 0;
    CHECK(s->open && !s->cut && length >= 0);
    if (!stays) release_blocks(s, false);
    kv_cache_cut(&p->cache, &s->blocks, blocks);
    release_slot(s);
    s->length = blocks * ATTENTION_BLOCK;
    if (s->length > 0) return;
    s->grid = grid;
    s->shift = 0;
}

int session_closes(const struct session *s, int n_tokens) {
    if (s->pool->model->spec.retro.n_layers == 0) return 0;
    return grid_complete(s->grid, s->length + n_tokens) - session_next_chunk(s);
}

int session_next_chunk(const struct session *s) {
    if (s->pool->model->spec.retro.n_layers == 0) return 0;
    return grid_complete(s->grid, s->length) - s->rereads;
}

bool session_wants_source(const struct session *s) { return s->pool->sources.model && s->slot < 0; }

/* Checking a step before anything is touched. */

static enum status check_ids(const struct session_pool *p, const int32_t *ids, int n, const char *what,
                             struct error *e) {
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= p->model->spec.padded_vocab)
            return error_set(e, STATUS_INVALID, "%s %d is id %d, the vocabulary has %d", what, i, ids[i],
                             p->model->spec.padded_vocab);
    return STATUS_OK;
}

/* A model with an encoder reads one source, with the session's first rows. */
static enum status check_source(const struct session_pool *p, const struct step_item *item, struct error *e) {
    bool wanted = session_wants_source(item->session);
    if (!wanted && item->n_source == 0) return STATUS_OK;
    if (!wanted)
        return error_set(e, STATUS_INVALID, "a source of %d ids, which %s", item->n_source,
                         p->sources.model ? "comes with a session's first rows" : "this model does not read");
    if (item->n_source < 1 || item->n_source > p->limits.max_source)
        return error_set(e, item->n_source < 1 ? STATUS_INVALID : STATUS_TOO_LARGE,
                         "a source of %d ids, allowed is 1 .. %d", item->n_source, p->limits.max_source);
    return check_ids(p, item->source, item->n_source, "source id", e);
}

/* Rows that a step brings as they are. */
static int count_given(const struct step_item *item) {
    int n = 0;
    if (item->tokens == NULL) return item->n_tokens;
    for (int i = 0; i < item->n_tokens; i++) n += item->tokens[i] < 0;
    return n;
}

static enum status check_ids_and_names(const struct session_pool *p, const struct step_item *item, struct error *e) {
    if (item->rows == NULL && item->tokens) return check_ids(p, item->tokens, item->n_tokens, "token", e);
    if (item->rows == NULL || count_given(item) == 0)
        return error_set(e, STATUS_INVALID, "a step item has %s", item->rows ? "ids and rows" : "neither ids nor rows");
    for (int i = 0; item->tokens && i < item->n_tokens; i++)
        if (item->tokens[i] >= p->model->spec.padded_vocab)
            return error_set(e, STATUS_INVALID, "token %d is id %d, the vocabulary has %d", i, item->tokens[i],
                             p->model->spec.padded_vocab);
    return STATUS_OK;
}

static enum status check_positions(const struct session_pool *p, const struct step_item *item, struct error *e) {
    const struct model_spec *m = &p->model->spec;
    for (int i = 0; item->positions && m->learned_positions && i < item->n_tokens; i++)
        if (item->positions[i] < 0 || item->positions[i] >= m->max_positions)
            return error_set(e, STATUS_TOO_LARGE, "token %d stands at position %d, the model has %d", i,
                             item->positions[i], m->max_positions);
    return STATUS_OK;
}

static enum status check_item(const struct session_pool *p, const struct step_item *item, struct error *e) {
    const struct session *s = item->session;
    const struct session_limits *l = &p->limits;
    CHECK(s->pool == p && s->open && !s->cut);
    if (item->n_tokens < 1 || item->n_logits < 0 || item->n_logits > item->n_tokens)
        return error_set(e, STATUS_INVALID, "a step item has %d tokens and %d rows of logits", item->n_tokens,
                         item->n_logits);
    if (item->n_tokens > l->max_tokens - s->length)
        return error_set(e, STATUS_TOO_LARGE, "%d tokens after %d, the limit is %d per sequence", item->n_tokens,
                         s->length, l->max_tokens);
    if (check_ids_and_names(p, item, e) || check_positions(p, item, e)) return e->status;
    if (check_source(p, item, e)) return e->status;
    int told = max_int(item->n_cross_shares, item->n_self_shares);
    if (told > item->n_tokens || (told > 0 && l->max_shares == 0))
        return error_set(e, STATUS_INVALID, "shares of attention of %d rows of %d, of %d groups at most", told,
                         item->n_tokens, l->max_shares);
    if (item->n_groups < 0 || item->n_groups > l->max_shares)
        return error_set(e, STATUS_TOO_LARGE, "shares of %d groups of keys, the limit is %d", item->n_groups,
                         l->max_shares);
    for (int j = session_closes(s, item->n_tokens) - 1; j >= 0; j--) {
        const struct neighbor_tokens *nb = &item->neighbors[j];
        if (nb->k < 0 || nb->k > l->max_neighbors)
            return error_set(e, STATUS_TOO_LARGE, "%d neighbours for one chunk, the limit is %d", nb->k,
                             l->max_neighbors);
        if (check_ids(p, nb->ids, nb->k * p->model->spec.retro.retrieved_length, "neighbour token", e))
            return e->status;
    }
    return STATUS_OK;
}

static enum status check_step(const struct session_pool *p, const struct step_item *items, int n, struct error *e) {
    int64_t rows = 0, logits = 0, given = 0;
    if (n < 1 || n > p->limits.max_sessions)
        return error_set(e, STATUS_INVALID, "%d sequences in a step, allowed is 1 .. %d", n, p->limits.max_sessions);
    for (int i = 0; i < n; i++) {
        if (check_item(p, &items[i], e)) return e->status;
        rows += items[i].n_tokens;
        logits += items[i].n_logits;
        given += count_given(&items[i]);
        for (int j = 0; j < i; j++) CHECK(items[j].session != items[i].session);
    }
    if (rows > p->limits.max_step_rows || logits > p->limits.max_logit_rows)
        return error_set(e, STATUS_TOO_LARGE, "%lld rows and %lld rows of logits in a step, the limits are %d and %d",
                         (long long)rows, (long long)logits, p->limits.max_step_rows, p->limits.max_logit_rows);
    if (given > p->limits.max_given)
        return error_set(e, STATUS_TOO_LARGE, "%lld given rows in a step, the limit is %d", (long long)given,
                         p->limits.max_given);
    return STATUS_OK;
}

/* Running a step. */

void session_pool_watch(struct session_pool *p, bool (*abandoned)(void *context), void *context) {
    p->abandoned = abandoned;
    p->abandoned_context = context;
}

int session_pool_parts(const struct session_pool *p) {
    return p->model->comm->stages == 1 ? model_decoder(p->model)->dims.n_layers : 1;
}

/* The step was abandoned between two layers. */
static enum status cut_step(const struct step_item *items, int n, struct error *e) {
    for (int i = 0; i < n; i++) items[i].session->cut = true;
    return error_set(e, STATUS_CANCELLED, "nobody waits for the %d sequences of the step", n);
}

/* A step that only this rank computes needs no message. */
static enum status step_alone(struct session_pool *p, const struct step_item *items, int n_items, struct tensor *logits,
                              struct error *e) {
    plan_step(p, items, n_items);
    plan_advance(p, items, n_items);
    run_plan(p, (struct plan_place){0, 0});
    *logits = tensor_rows(p->logits, 0, p->plan.n_logits);
    if (backend_sync(p->model->backend, e)) return e->status;
    return p->cut ? cut_step(items, n_items, e) : STATUS_OK;
}

/* All plans of the step go to the other ranks first, so that stages wait for nothing but their rows. */
static enum status step_together(struct session_pool *p, const struct step_item *items, int n_items,
                                 struct tensor *logits, struct error *e) {
    const struct model *m = p->model;
    buffer_clear(&p->message);
    buffer_append(&p->message, &(enum message){MESSAGE_STEP}, sizeof(enum message));
    int first = 0;
    while (first < n_items) {
        int n = count_items(p, items + first, n_items - first);
        plan_step(p, items + first, n);
        plan_write(&p->plan, m->spec.retro.retrieved_length, model_decoder(p->model)->dims.hidden, &p->message);
        plan_advance(p, items + first, n);
        first += n;
    }
    if (comm_broadcast(m->comm->world, &p->message, e)) return e->status;
    *logits = run_plans(
        p, (struct text_span){p->message.data + sizeof(enum message), p->message.size - sizeof(enum message)});
    if (backend_sync(m->backend, e)) return e->status;
    return p->cut ? cut_step(items, n_items, e) : STATUS_OK;
}

enum status session_step(struct session_pool *p, const struct step_item *items, int n_items, struct tensor *logits,
                         struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    if (check_step(p, items, n_items, e)) return e->status;
    bool alone = p->model->comm->world->size == 1;
    enum status status = alone ? step_alone(p, items, n_items, logits, e) : step_together(p, items, n_items, logits, e);
    if (status == STATUS_DEVICE) comm_leave(p->model->comm, e);
    if (status == STATUS_OK) keep_rows(p, items, n_items);
    return status;
}

struct tensor session_shares(const struct session_pool *p) {
    return p->shares;
}
