/* retro/run/session.c: batch steps over many sequences: which rows, where their keys and values live, which neighbours
 * they read. See session.h for the contract; the chunk grid is grid.h, neighbours are neighbors.h, the layer is
 * layer.h. */
#include "retro/run/session.h"

#include <stdlib.h>
#include <string.h>

#include "retro/run/plan.h"

struct session {
    struct session_pool *pool;
    int index; /* which rows of the cache are ours */
    struct grid grid;
    int length;
    int slot, slot_k; /* neighbours of the latest closed chunk; slot -1: none */
    bool open;
};

struct session_pool {
    struct model *model;
    struct session_limits limits;
    struct session *sessions;
    struct scratch scratch;
    struct tensor k, v;           /* [n_layers * sessions * max_tokens, G h] */
    struct tensor picked, logits; /* [max_logit_rows, d], [max_logit_rows, V] */
    struct tensor local_logits;   /* [max_logit_rows, V / ranks] */
    void *cache, *head;
    struct neighbors neighbors; /* model NULL without retro layers */
    int max_closings;
    struct plan plan;
    struct buffer message; /* to the other ranks */
    struct cross_source source;
    struct session_bytes bytes;
};

/* What rank 0 tells the others, before the bytes of the limits or the plan. An empty message is the end. */
enum message { MESSAGE_OPEN, MESSAGE_STEP, MESSAGE_CLOSE };

/* Opening and closing. */

static enum status check_limits(const struct session_limits *l, const struct model *m, struct error *e) {
    if (l->max_sessions < 1 || l->max_tokens < 1 || l->max_step_rows < l->max_sessions || l->max_logit_rows < 1)
        return error_set(e, STATUS_INVALID,
                         "session limits: %d sessions, %d tokens, %d rows a step (at least one for each session), %d "
                         "rows of logits",
                         l->max_sessions, l->max_tokens, l->max_step_rows, l->max_logit_rows);
    if (m->dims.learned_positions && l->max_tokens > m->dims.max_positions)
        return error_set(e, STATUS_INVALID, "%d tokens per sequence; the model has %d learned positions", l->max_tokens,
                         m->dims.max_positions);
    if ((int64_t)l->max_sessions * l->max_tokens > INT32_MAX / 2)
        return error_set(e, STATUS_INVALID, "%d sessions of %d tokens are too many rows", l->max_sessions,
                         l->max_tokens);
    return STATUS_OK;
}

/* n rows of one session close at most (n - 1) / m + 1 chunks. */
static int closings_at_most(const struct model *m, const struct session_limits *l) {
    return m->dims.n_retro_layers ? l->max_step_rows / m->dims.chunk_length + l->max_sessions : 0;
}

/* Columns of the head's rows: what is picked, all logits, and this rank's own where there are others. */
static size_t head_cols(const struct model *m) {
    return (size_t)m->dims.hidden + (size_t)m->dims.padded_vocab + (m->comm->size > 1 ? (size_t)m->local.vocab.n : 0);
}

enum status session_pool_measure(struct session_bytes *out, const struct model *m, const struct session_limits *l,
                                 struct error *e) {
    struct neighbors nb = {0};
    size_t scratch, head;
    if (check_limits(l, m, e) || scratch_measure(m, l->max_step_rows, &scratch, e) ||
        (m->dims.n_retro_layers && neighbors_measure(&nb, m, l, closings_at_most(m, l), e)))
        return e->status;
    size_t rows = (size_t)l->max_sessions * (size_t)l->max_tokens, layers = (size_t)(m->end_layer - m->first_layer);
    size_t row = 2 * layers * (size_t)m->local.kv_heads.n * (size_t)m->dims.head_dim * dtype_bytes(l->kv_dtype);
    if (mul_overflows(rows, row, &out->cache))
        return error_set(e, STATUS_NO_MEMORY, "key/value cache does not fit the address space");
    if (mul_overflows((size_t)l->max_logit_rows, head_cols(m) * sizeof(float), &head) ||
        add_overflows(scratch, head, &out->steps))
        return error_set(e, STATUS_NO_MEMORY, "logits do not fit the address space");
    out->neighbors = nb.bytes;
    return STATUS_OK;
}

static enum status open_cache(struct session_pool *p, struct error *e) {
    const struct model *m = p->model;
    int rows = p->limits.max_sessions * p->limits.max_tokens, cols = m->local.kv_heads.n * m->dims.head_dim;
    if (backend_alloc(m->backend, &p->cache, p->bytes.cache, "the key/value cache", e)) return e->status;
    p->k = tensor_make(p->cache, p->limits.kv_dtype, rows, cols);
    p->v = tensor_make((char *)p->cache + p->bytes.cache / 2, p->limits.kv_dtype, rows, cols);
    return STATUS_OK;
}

static enum status open_head(struct session_pool *p, struct error *e) {
    const struct model *m = p->model;
    int rows = p->limits.max_logit_rows, d = m->dims.hidden, v = m->dims.padded_vocab;
    size_t bytes = (size_t)rows * head_cols(m) * sizeof(float);
    if (backend_alloc(m->backend, &p->head, bytes, "logits", e)) return e->status;
    float *at = p->head;
    p->picked = tensor_make(at, DTYPE_F32, rows, d);
    p->logits = tensor_make(at += (size_t)rows * (size_t)d, DTYPE_F32, rows, v);
    p->local_logits =
        m->comm->size > 1 ? tensor_make(at + (size_t)rows * (size_t)v, DTYPE_F32, rows, m->local.vocab.n) : p->logits;
    return STATUS_OK;
}

static enum status open_parts(struct session_pool *p, struct error *e) {
    const struct session_limits *l = &p->limits;
    if (session_pool_measure(&p->bytes, p->model, l, e) || scratch_open(&p->scratch, p->model, l->max_step_rows, e) ||
        open_cache(p, e) || open_head(p, e))
        return e->status;
    p->max_closings = closings_at_most(p->model, l);
    if (p->model->dims.n_retro_layers && neighbors_open(&p->neighbors, p->model, l, p->max_closings, e))
        return e->status;
    plan_open(&p->plan, l, p->max_closings);
    return STATUS_OK;
}

static void pool_free(struct session_pool *p) {
    struct backend *b = p->model->backend;
    neighbors_close(&p->neighbors);
    scratch_close(&p->scratch, p->model);
    backend_release(b, p->cache);
    backend_release(b, p->head);
    plan_close(&p->plan);
    buffer_free(&p->message);
    free(p->sessions);
    free(p);
}

/* One rank's share of a pool; all ranks get theirs or none does. */
static enum status pool_open(struct session_pool **out, struct model *m, const struct session_limits *l,
                             struct error *e) {
    struct session_pool *p = xcalloc(1, sizeof *p);
    p->model = m;
    p->limits = *l;
    enum status status = m->family->outer->output
                             ? open_parts(p, e)
                             : error_set(e, STATUS_UNSUPPORTED, "a %s model does not write text", m->info.family);
    status = comm_agree(m->comm->world, status, e);
    if (status) {
        pool_free(p);
        return status;
    }
    p->sessions = xcalloc((size_t)l->max_sessions, sizeof *p->sessions);
    for (int i = 0; i < l->max_sessions; i++) p->sessions[i] = (struct session){.pool = p, .index = i};
    *out = p;
    return STATUS_OK;
}

enum status session_pool_open(struct session_pool **out, struct model *m, const struct session_limits *l,
                              struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    struct buffer message = {0};
    CHECK(m->comm->world->rank == 0);
    buffer_append(&message, &(enum message){MESSAGE_OPEN}, sizeof(enum message));
    buffer_append(&message, l, sizeof *l);
    enum status status = comm_broadcast(m->comm->world, &message, e);
    if (status == STATUS_OK) status = pool_open(out, m, l, e);
    buffer_free(&message);
    return status;
}

void session_pool_close(struct session_pool *p) {
    if (p == NULL) return;
    buffer_clear(&p->message);
    buffer_append(&p->message, &(enum message){MESSAGE_CLOSE}, sizeof(enum message));
    comm_broadcast(p->model->comm->world, &p->message,
                   &(struct error){0}); /* a failed rank has nothing left to close */
    pool_free(p);
}

size_t session_pool_bytes(const struct session_pool *p) { return session_bytes_all(&p->bytes); }

enum status session_open(struct session **out, struct session_pool *p, struct grid grid, struct error *e) {
    for (int i = 0; i < p->limits.max_sessions; i++) {
        struct session *s = &p->sessions[i];
        if (s->open) continue;
        *s = (struct session){.pool = p, .index = i, .grid = grid, .slot = -1, .open = true};
        *out = s;
        return STATUS_OK;
    }
    return error_set(e, STATUS_BUSY, "all %d sequences are in use", p->limits.max_sessions);
}

void session_close(struct session *s) {
    if (s == NULL) return;
    neighbors_free_slot(&s->pool->neighbors, s->slot);
    s->slot = -1;
    s->open = false;
}

int session_length(const struct session *s) { return s->length; }

int session_closes(const struct session *s, int n_tokens) {
    if (s->pool->model->dims.n_retro_layers == 0) return 0;
    return grid_complete(s->grid, s->length + n_tokens) - grid_complete(s->grid, s->length);
}

/* Checking a step before anything is touched. */

static enum status check_ids(const struct session_pool *p, const int32_t *ids, int n, const char *what,
                             struct error *e) {
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= p->model->dims.padded_vocab)
            return error_set(e, STATUS_INVALID, "%s %d is id %d, the vocabulary has %d", what, i, ids[i],
                             p->model->dims.padded_vocab);
    return STATUS_OK;
}

static enum status check_item(const struct session_pool *p, const struct step_item *item, struct error *e) {
    const struct session *s = item->session;
    const struct session_limits *l = &p->limits;
    CHECK(s->pool == p && s->open);
    if (item->n_tokens < 1 || item->n_logits < 0 || item->n_logits > item->n_tokens)
        return error_set(e, STATUS_INVALID, "a step item has %d tokens and %d rows of logits", item->n_tokens,
                         item->n_logits);
    if (item->n_tokens > l->max_tokens - s->length)
        return error_set(e, STATUS_TOO_LARGE, "%d tokens after %d, the limit is %d per sequence", item->n_tokens,
                         s->length, l->max_tokens);
    if (check_ids(p, item->tokens, item->n_tokens, "token", e)) return e->status;
    for (int j = session_closes(s, item->n_tokens) - 1; j >= 0; j--) {
        const struct neighbor_tokens *nb = &item->neighbors[j];
        if (nb->k < 0 || nb->k > l->max_neighbors)
            return error_set(e, STATUS_TOO_LARGE, "%d neighbours for one chunk, the limit is %d", nb->k,
                             l->max_neighbors);
        if (check_ids(p, nb->ids, nb->k * p->model->dims.retrieved_length, "neighbour token", e)) return e->status;
    }
    return STATUS_OK;
}

static enum status check_step(const struct session_pool *p, const struct step_item *items, int n, struct error *e) {
    int64_t rows = 0, logits = 0;
    if (n < 1 || n > p->limits.max_sessions)
        return error_set(e, STATUS_INVALID, "%d sequences in a step, allowed is 1 .. %d", n, p->limits.max_sessions);
    for (int i = 0; i < n; i++) {
        if (check_item(p, &items[i], e)) return e->status;
        rows += items[i].n_tokens;
        logits += items[i].n_logits;
        for (int j = 0; j < i; j++) CHECK(items[j].session != items[i].session);
    }
    if (rows > p->limits.max_step_rows || logits > p->limits.max_logit_rows)
        return error_set(e, STATUS_TOO_LARGE, "%lld rows and %lld rows of logits in a step, the limits are %d and %d",
                         (long long)rows, (long long)logits, p->limits.max_step_rows, p->limits.max_logit_rows);
    return STATUS_OK;
}

/* Laying out a step. */

static void plan_cross_span(struct plan *plan, const struct neighbors *nb, int row, int slot, int k) {
    if (slot < 0) return;
    struct attention_span *last = plan->n_cross_spans ? &plan->cross_spans[plan->n_cross_spans - 1] : NULL;
    if (last && last->q_start + last->q_count == row && last->k_start == slot * nb->slot_rows)
        last->q_count++;
    else
        plan->cross_spans[plan->n_cross_spans++] = (struct attention_span){row, 1, slot * nb->slot_rows, k * nb->r};
}

static void plan_closing(struct session_pool *p, const struct step_item *item, int row, int position, int j) {
    const struct session *s = item->session;
    struct plan *plan = &p->plan;
    int start = grid_start(s->grid, grid_read(s->grid, position)), before = max_int(0, s->length - start);
    const struct neighbor_tokens *found = &item->neighbors[j];
    plan->closings[plan->n_closings++] = (struct closing){
        .session = s->index,
        .row = row,
        .rows_before = before,
        .rows_here = position + 1 - start - before,
        .slot = found->k ? neighbors_take_slot(&p->neighbors) : -1,
        .k = found->k,
        .ids = found->ids,
    };
}

/* Chunked cross attention of one item's rows: each reads the latest chunk closed at or before it. */
static void plan_chunks(struct session_pool *p, const struct step_item *item, int item_index, int first_row) {
    const struct session *s = item->session;
    struct plan *plan = &p->plan;
    int slot = s->slot, k = s->slot_k, closed = 0, m = s->grid.m;
    int open_start = grid_start(s->grid, grid_complete(s->grid, s->length + item->n_tokens));
    for (int i = 0; i < item->n_tokens; i++) {
        int row = first_row + i, position = s->length + i;
        if (grid_closes(s->grid, position)) {
            plan->closing_item[plan->n_closings] = item_index;
            plan_closing(p, item, row, position, closed++);
            slot = plan->closings[plan->n_closings - 1].slot;
            k = plan->closings[plan->n_closings - 1].k;
        }
        plan->keep_rows[row] = position >= open_start ? s->index * m + position - open_start : -1;
        plan->row_scale[row] = slot >= 0 ? p->model->dims.gate : 0.0f;
        plan_cross_span(plan, &p->neighbors, row, slot, k);
    }
}

static void plan_step(struct session_pool *p, const struct step_item *items, int n) {
    struct plan *plan = &p->plan;
    plan->n_rows = plan->n_closings = plan->n_cross_spans = plan->n_logits = 0;
    plan->n_items = n;
    for (int j = 0; j < n; j++) {
        const struct step_item *item = &items[j];
        const struct session *s = item->session;
        int first = plan->n_rows, base = s->index * p->limits.max_tokens;
        for (int i = 0; i < item->n_tokens; i++) {
            plan->ids[first + i] = item->tokens[i];
            plan->positions[first + i] = s->length + i;
            plan->cache_rows[first + i] = base + s->length + i;
        }
        for (int i = item->n_tokens - item->n_logits; i < item->n_tokens; i++)
            plan->logit_rows[plan->n_logits++] = first + i;
        plan->spans[j] = (struct attention_span){first, item->n_tokens, base, s->length + item->n_tokens};
        if (p->model->dims.n_retro_layers) plan_chunks(p, item, j, first);
        plan->n_rows += item->n_tokens;
    }
}

/* Running it. */

/* At the first retro layer the closed chunks are encoded; later ones find their keys and values ready (spec 3). */
static const struct cross_source *read_neighbors(void *context, int layer_index, struct tensor normed) {
    struct session_pool *p = context;
    struct plan *plan = &p->plan;
    if (layer_index == p->model->dims.first_retro_layer) {
        neighbors_encode(&p->neighbors, plan->closings, plan->n_closings, normed);
        neighbors_keep(&p->neighbors, normed, plan->keep_rows);
    }
    if (plan->n_cross_spans == 0) return NULL;
    p->source = (struct cross_source){.k = p->neighbors.k[layer_index],
                                      .v = p->neighbors.v[layer_index],
                                      .spans = plan->cross_spans,
                                      .n_spans = plan->n_cross_spans,
                                      .row_scale = plan->row_scale};
    return &p->source;
}

/* Layer i's keys and values are its share of the cache. */
static struct tensor layer_cache(const struct session_pool *p, struct tensor cache, int i) {
    size_t one = (size_t)cache.rows * (size_t)cache.cols * dtype_bytes(cache.dtype);
    CHECK(i >= p->model->first_layer && i < p->model->end_layer);
    cache.data = (char *)cache.data + (size_t)(i - p->model->first_layer) * one;
    return cache;
}

/* The first stage embeds the rows; others get the encoder's output, where they read any, and the rows from the one
 * before. */
static void enter_stage(struct session_pool *p, struct tensor x) {
    const struct model *m = p->model;
    const struct comm *c = m->comm;
    if (c->stage == 0) {
        embed(m->backend, &(struct embed_args){.y = x,
                                               .word = &m->word,
                                               .position = m->position.data ? &m->position : NULL,
                                               .ids = p->plan.ids,
                                               .positions = p->plan.positions});
        return;
    }
    if (c->stage > m->encodes && c->stage <= m->reads)
        neighbors_encode(&p->neighbors, p->plan.closings, p->plan.n_closings, (struct tensor){0});
    comm_receive(c->world, m->backend, x, c->world->rank - c->size);
}

static void run_layers(struct session_pool *p) {
    const struct model *m = p->model;
    const struct plan *plan = &p->plan;
    struct pass pass = {.model = m,
                        .scratch = scratch_rows(&p->scratch, plan->n_rows),
                        .spans = plan->spans,
                        .n_spans = plan->n_items,
                        .positions = plan->positions,
                        .cache_rows = plan->cache_rows,
                        .cross = read_neighbors,
                        .context = p};
    enter_stage(p, pass.scratch.x);
    for (int i = m->first_layer; i < m->end_layer; i++) {
        pass.layer_index = i;
        pass.k = layer_cache(p, p->k, i);
        pass.v = layer_cache(p, p->v, i);
        layer_forward(&pass, &m->layers[i]);
    }
}

/* Logits [first, first + n) = final_norm(x) W^T of the rows that were asked for; the norm iff the checkpoint has one
 * (spec 7). */
static void run_head(struct session_pool *p, int first) {
    const struct model *m = p->model;
    int n = p->plan.n_logits;
    struct tensor x = tensor_rows(p->scratch.x, 0, p->plan.n_rows), picked = tensor_rows(p->picked, 0, n);
    struct tensor logits = tensor_rows(p->logits, first, n);
    struct tensor local = m->comm->size > 1 ? tensor_rows(p->local_logits, 0, n) : logits;
    if (n == 0) return;
    gather_rows(m->backend, &(struct gather_rows_args){.y = picked, .x = x, .rows = p->plan.logit_rows});
    if (m->final_norm.gamma) norm_rows(m, picked, picked, &m->final_norm);
    linear(m->backend, &(struct linear_args){.y = local, .x = picked, .weight = &m->output});
    comm_allgather_cols(m->comm, m->backend, logits, local);
}

/* This rank's share of a step: its plans one after the other. Stages wait for nothing but their rows, so while the next
 * stage works on one plan this one is at the next. Returns the logits, whole on the last stage and on rank 0. */
static struct tensor run_plans(struct session_pool *p, struct text_span in) {
    const struct model *m = p->model;
    const struct comm *c = m->comm, *world = c->world;
    bool last = c->stage == c->stages - 1;
    int rows = 0;
    for (; in.size > 0; rows += p->plan.n_logits) {
        plan_read(&p->plan, m->dims.retrieved_length, &in);
        run_layers(p);
        if (last)
            run_head(p, rows);
        else
            comm_send(c->world, m->backend, tensor_rows(p->scratch.x, 0, p->plan.n_rows), world->rank + c->size);
    }
    struct tensor logits = tensor_rows(p->logits, 0, rows);
    if (c->stages > 1 && rows > 0) {
        if (last && c->rank == 0) comm_send(c->world, m->backend, logits, 0);
        if (world->rank == 0) comm_receive(c->world, m->backend, logits, world->size - c->size);
    }
    return logits;
}

/* Each session moves on; it keeps the slot of its latest chunk, earlier ones are free again. */
static void advance(struct session_pool *p, const struct step_item *items, int n) {
    const struct plan *plan = &p->plan;
    for (int j = 0; j < n; j++) items[j].session->length += items[j].n_tokens;
    for (int c = 0; c < plan->n_closings; c++) {
        struct session *s = items[plan->closing_item[c]].session;
        neighbors_free_slot(&p->neighbors, s->slot);
        s->slot = plan->closings[c].slot;
        s->slot_k = plan->closings[c].k;
    }
}

/* How many of the items one plan takes: all, or with stages as many as have limits.micro_batch_rows, but one at least.
 */
static int count_items(const struct session_pool *p, const struct step_item *items, int n) {
    int limit = p->model->comm->stages > 1 ? p->limits.micro_batch_rows : 0, rows = items[0].n_tokens, taken = 1;
    if (limit == 0) return n;
    while (taken < n && rows + items[taken].n_tokens <= limit) rows += items[taken++].n_tokens;
    return taken;
}

enum status session_step(struct session_pool *p, const struct step_item *items, int n_items, struct tensor *logits,
                         struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    if (check_step(p, items, n_items, e)) return e->status;
    buffer_clear(&p->message);
    buffer_append(&p->message, &(enum message){MESSAGE_STEP}, sizeof(enum message));
    for (int first = 0, n; first < n_items; first += n) {
        n = count_items(p, items + first, n_items - first);
        plan_step(p, items + first, n);
        plan_write(&p->plan, p->model->dims.retrieved_length, &p->message);
        advance(p, items + first, n);
    }
    const struct comm *c = p->model->comm;
    if (comm_broadcast(c->world, &p->message, e)) return e->status;
    *logits = run_plans(
        p, (struct text_span){p->message.data + sizeof(enum message), p->message.size - sizeof(enum message)});
    enum status status = backend_sync(p->model->backend, e);
    if (status == STATUS_DEVICE) comm_leave(p->model->comm, e);
    return status;
}

/* The other ranks. */

static void follow_open(struct session_pool **p, struct model *m, struct text_span in, struct error *e) {
    struct session_limits limits;
    CHECK(*p == NULL && in.size == sizeof limits);
    memcpy(&limits, in.text, sizeof limits);
    pool_open(p, m, &limits, e); /* a pool that does not fit somewhere is rank 0's to report */
}

static enum status follow_step(struct session_pool *p, struct text_span in, struct error *e) {
    run_plans(p, in);
    return backend_sync(p->model->backend, e);
}

static enum status follow_message(struct session_pool **p, struct model *m, struct text_span in, struct error *e) {
    enum message kind;
    CHECK(in.size >= sizeof kind);
    memcpy(&kind, in.text, sizeof kind);
    in.text += sizeof kind;
    in.size -= sizeof kind;
    CHECK((*p == NULL) == (kind == MESSAGE_OPEN));
    switch (kind) {
        case MESSAGE_OPEN: follow_open(p, m, in, e); break;
        case MESSAGE_STEP: return follow_step(*p, in, e);
        case MESSAGE_CLOSE:
            pool_free(*p);
            *p = NULL;
            break;
    }
    return STATUS_OK;
}

enum status session_follow(struct model *m, struct error *e) {
    struct session_pool *p = NULL;
    struct buffer message = {0};
    enum status status;
    for (;;) {
        status = comm_broadcast(m->comm->world, &message, e);
        if (status || message.size == 0) break;
        status = follow_message(&p, m, (struct text_span){message.data, message.size}, e);
        if (status) break;
    }
    if (status) comm_leave(m->comm, e);
    if (p) pool_free(p);
    buffer_free(&message);
    return status;
}

void session_release_followers(struct model *m) {
    comm_broadcast(m->comm->world, &(struct buffer){0},
                   &(struct error){0}); /* after a failure they have ended already */
}
