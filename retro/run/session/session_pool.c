/* retro/run/session/session_pool.c: pools of sessions: measured, opened, closed. See session.h. */
#include "retro/run/session/session_private.h"

#include <stdlib.h>
#include <string.h>

static enum status check_limits(const struct session_limits *l, const struct model *m, struct error *e) {
    if (l->max_sessions < 1 || l->max_tokens < 1 || l->max_step_rows < l->max_sessions || l->max_logit_rows < 1)
        return error_set(e, STATUS_INVALID,
                         "session limits: %d sessions, %d tokens, %d rows a step (at least one for each session), %d "
                         "rows of logits",
                         l->max_sessions, l->max_tokens, l->max_step_rows, l->max_logit_rows);
    if (m->spec.learned_positions && l->max_tokens > m->spec.max_positions)
        return error_set(e, STATUS_INVALID, "%d tokens per sequence; the model has %d learned positions", l->max_tokens,
                         m->spec.max_positions);
    if (l->max_given < 0 || l->max_given > l->max_step_rows)
        return error_set(e, STATUS_INVALID, "%d given rows of %d rows a step", l->max_given, l->max_step_rows);
    int64_t kept = (int64_t)l->kept_blocks * ATTENTION_BLOCK;
    if (kept < 0 || (int64_t)l->max_sessions * (l->max_tokens + ATTENTION_BLOCK) + kept > INT32_MAX / 2)
        return error_set(e, STATUS_INVALID, "%d sessions of %d tokens and %lld rows to keep are too many rows",
                         l->max_sessions, l->max_tokens, (long long)kept);
    return STATUS_OK;
}

static int own_blocks(const struct session_limits *l) { return l->max_sessions * blocks_of(l->max_tokens); }

/* n rows of one session close at most (n - 1) / m + 1 chunks. */
static int closings_at_most(const struct model *m, const struct session_limits *l) {
    const struct retro_spec *retro = &m->spec.retro;
    return retro->n_layers ? l->max_step_rows / retro->chunk_length + l->max_sessions : 0;
}

/* Columns of the head's rows: what is picked, all logits, and this rank's own where there are others. */
static size_t head_columns(const struct model *m) {
    size_t own = m->comm->size > 1 ? (size_t)m->vocab.n : 0;
    return (size_t)m->stacks[STACK_DECODER].dims.hidden + (size_t)m->spec.padded_vocab + own;
}

/* Everything a pool will have, without memory. */
static enum status measure_parts(struct session_pool *p, struct error *e) {
    const struct model *m = p->model;
    const struct session_limits *l = &p->limits;
    enum edge reads = model_decoder(p->model)->dims.reads;
    size_t scratch, head, given = (size_t)l->max_given * (size_t)model_decoder(p->model)->dims.hidden * sizeof(float);
    size_t viewed = 0, shares = (size_t)l->max_step_rows * 2 * (size_t)l->max_shares * sizeof(float);
    if (check_limits(l, m, e) || scratch_measure(model_decoder(p->model), l->max_step_rows, &scratch, e) ||
        kv_cache_measure(&p->cache, m, own_blocks(l) + l->kept_blocks, l->kv_dtype, e))
        return e->status;
    p->max_closings = closings_at_most(m, l);
    if (reads == EDGE_NEIGHBORS && neighbors_measure(&p->neighbors, &p->cross, m, l, p->max_closings, e))
        return e->status;
    if (reads == EDGE_SOURCE && sources_measure(&p->sources, &p->cross, m, l, e)) return e->status;

    if (l->max_picture_rows > 0 && tower_measure(&viewed, m, l->max_picture_rows, e)) return e->status;
    p->bytes.kept = p->cache.bytes / (size_t)p->cache.n_blocks * (size_t)l->kept_blocks;
    p->bytes.cache = p->cache.bytes - p->bytes.kept;
    p->bytes.cross = cross_cache_bytes(&p->cross) + p->neighbors.bytes + p->sources.bytes;
    if (mul_overflows((size_t)l->max_logit_rows, head_columns(m) * sizeof(float), &head) ||
        add_overflows(scratch + given + shares + viewed, head, &p->bytes.steps))
        return error_set(e, STATUS_NO_MEMORY, "logits do not fit the address space");
    return STATUS_OK;
}

enum status session_pool_measure(struct session_bytes *out, const struct model *m, const struct session_limits *l,
                                 struct error *e) {
    struct session_pool p = {.model = (struct model *)(uintptr_t)m, .limits = *l};
    if (!model_writes(m)) return error_set(e, STATUS_UNSUPPORTED, "a %s model does not write text", m->info.family);
    if (measure_parts(&p, e)) return e->status;
    *out = p.bytes;
    return STATUS_OK;
}

static enum status open_head(struct session_pool *p, struct error *e) {
    const struct model *m = p->model;
    int rows = p->limits.max_logit_rows, d = model_decoder(p->model)->dims.hidden, v = m->spec.padded_vocab;
    size_t bytes = (size_t)rows * head_columns(m) * sizeof(float);
    if (backend_alloc(m->backend, &p->head, bytes, "logits", e)) return e->status;
    float *picked = p->head, *logits = picked + (size_t)rows * (size_t)d;
    float *own = logits + (size_t)rows * (size_t)v;
    p->picked = tensor_make(picked, DTYPE_F32, rows, d);
    p->logits = tensor_make(logits, DTYPE_F32, rows, v);
    p->local_logits = m->comm->size > 1 ? tensor_make(own, DTYPE_F32, rows, m->vocab.n) : p->logits;
    return STATUS_OK;
}

static enum status open_given(struct session_pool *p, struct error *e) {
    int rows = p->limits.max_given, d = model_decoder(p->model)->dims.hidden;
    void *memory;
    if (rows == 0) return STATUS_OK;
    if (backend_alloc(p->model->backend, &memory, (size_t)rows * (size_t)d * sizeof(float), "given rows", e))
        return e->status;
    p->given = tensor_make(memory, DTYPE_F32, rows, d);
    return STATUS_OK;
}

static enum status open_shares(struct session_pool *p, struct error *e) {
    int rows = p->limits.max_step_rows, cols = 2 * p->limits.max_shares;
    void *memory;
    if (cols == 0) return STATUS_OK;
    if (backend_alloc(p->model->backend, &memory, (size_t)rows * (size_t)cols * sizeof(float), "shares of attention",
                      e))
        return e->status;
    p->shares = tensor_make(memory, DTYPE_F32, rows, cols);
    return STATUS_OK;
}

static enum status open_parts(struct session_pool *p, struct error *e) {
    const struct session_limits *l = &p->limits;
    if (measure_parts(p, e) || scratch_open(&p->scratch, p->model, model_decoder(p->model), l->max_step_rows, e) ||
        kv_cache_open(&p->cache, e) || open_head(p, e) || open_given(p, e) || open_shares(p, e))
        return e->status;
    if (p->cross.model && cross_cache_open(&p->cross, e)) return e->status;
    if (p->neighbors.model && neighbors_open(&p->neighbors, &p->cache, e)) return e->status;
    if (p->sources.model && sources_open(&p->sources, e)) return e->status;
    if (l->max_picture_rows > 0 && tower_open(&p->tower, p->model, l->max_picture_rows, e)) return e->status;
    struct plan_sizes sizes = {.rows = l->max_step_rows,
                               .items = l->max_sessions,
                               .blocks = p->cache.n_blocks,
                               .closings = p->max_closings + l->max_sessions, /* each may encode one again */
                               .given = l->max_given,
                               .sections = sections_of(p),
                               .shares = l->max_shares,
                               .hidden = model_decoder(p->model)->dims.hidden};
    plan_open(&p->plan, &sizes);
    return STATUS_OK;
}

void session_pool_free_rank(struct session_pool *p) {
    struct backend *b = p->model->backend;
    neighbors_close(&p->neighbors);
    sources_close(&p->sources);
    tower_close(p->tower);
    free(p->followed);
    cross_cache_close(&p->cross);
    scratch_close(&p->scratch, p->model);
    kv_cache_close(&p->cache);
    prefix_tree_close(&p->tree);
    backend_release(b, p->head);
    backend_release(b, p->given.data);
    backend_release(b, p->shares.data);
    plan_close(&p->plan);
    buffer_free(&p->message);
    buffer_free(&p->verdict);
    for (int i = 0; p->sessions && i < p->limits.max_sessions; i++) buffer_free(&p->sessions[i].open_read);
    free(p->block_memory);
    free(p->sessions);
    free(p);
}

static void make_sessions(struct session_pool *p) {
    size_t n = (size_t)p->limits.max_sessions, blocks = (size_t)blocks_of(p->limits.max_tokens);
    p->sessions = xcalloc(n, sizeof *p->sessions);
    p->block_memory = xcalloc(n * blocks, sizeof *p->block_memory);
    for (size_t i = 0; i < n; i++) {
        p->sessions[i] = (struct session){.pool = p};
        p->sessions[i].blocks.blocks = p->block_memory + i * blocks;
    }
}

enum status session_pool_open_rank(struct session_pool **out, struct model *m, const struct session_limits *l,
                                   struct error *e) {
    struct session_pool *p = xcalloc(1, sizeof *p);
    p->model = m;
    p->limits = *l;
    enum status status = model_writes(m)
                             ? open_parts(p, e)
                             : error_set(e, STATUS_UNSUPPORTED, "a %s model does not write text", m->info.family);
    status = comm_agree(m->comm->world, status, e);
    if (status) {
        session_pool_free_rank(p);
        return status;
    }
    make_sessions(p);
    prefix_tree_open(&p->tree, p->cache.n_blocks, l->kept_blocks,
                     m->spec.retro.n_layers ? m->spec.retro.retrieved_length : 0);
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
    if (status == STATUS_OK) status = session_pool_open_rank(out, m, l, e);
    buffer_free(&message);
    return status;
}

void session_pool_close(struct session_pool *p) {
    if (p == NULL) return;
    buffer_clear(&p->message);
    buffer_append(&p->message, &(enum message){MESSAGE_CLOSE}, sizeof(enum message));
    comm_broadcast(p->model->comm->world, &p->message,
                   &(struct error){0}); /* a failed rank has nothing left to close */
    session_pool_free_rank(p);
}

size_t session_pool_bytes(const struct session_pool *p) { return session_bytes_all(&p->bytes); }

struct session_blocks session_pool_blocks(const struct session_pool *p) {
    const struct kv_cache *c = &p->cache;
    return (struct session_blocks){.used = c->n_blocks - c->n_free - p->tree.n_kept,
                                   .all = own_blocks(&p->limits),
                                   .kept = p->tree.n_kept,
                                   .kept_most = p->limits.kept_blocks,
                                   .evicted = p->tree.evicted,
                                   .bytes = c->bytes / (size_t)c->n_blocks};
}
