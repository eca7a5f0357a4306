/* retro/run/session/session_pool.c: pools of sessions: measured, opened, closed. See session.h. */
#include "retro/run/session/session_private.h"
#include "retro/run/tower/picture_rows.h"

#include <stdlib.h>
#include <string.h>

static enum status check_limits(const struct session_limits *limits, const struct model *model,
                                struct error *e) {
    if (limits->max_sessions < 1 || limits->max_tokens < 1 ||
        limits->max_step_rows < limits->max_sessions || limits->max_logit_rows < 1)
        return error_set(e, STATUS_INVALID,
                         "session limits: %d sessions, %d tokens, %d rows a step (at least one for "
                         "each session), %d "
                         "rows of logits",
                         limits->max_sessions, limits->max_tokens, limits->max_step_rows,
                         limits->max_logit_rows);
    if (spec_is_bounded(&model->spec) && limits->max_tokens > model->spec.max_positions)
        return error_set(e, STATUS_INVALID, "%d tokens per sequence; the model has %d %s positions",
                         limits->max_tokens, model->spec.max_positions,
                         model->spec.learned_positions ? "learned" : "\"dynamic\" rotary");
    if (limits->max_given < 0 || limits->max_given > limits->max_step_rows)
        return error_set(e, STATUS_INVALID, "%d given rows of %d rows a step", limits->max_given,
                         limits->max_step_rows);
    if (limits->max_draft_rows < 0 || limits->max_draft_rows > limits->max_step_rows)
        return error_set(e, STATUS_INVALID, "%d drafts of %d rows a step", limits->max_draft_rows,
                         limits->max_step_rows);
    if (limits->kept_states < 0 || limits->kept_states > LIMIT_KEPT_STATES)
        return error_set(e, STATUS_INVALID, "%d states to keep", limits->kept_states);
    int64_t kept = (int64_t)limits->kept_blocks * ATTENTION_BLOCK;
    if (kept < 0 || (int64_t)limits->max_sessions * (limits->max_tokens + ATTENTION_BLOCK) + kept >
                        INT32_MAX / 2)
        return error_set(e, STATUS_INVALID,
                         "%d sessions of %d tokens and %lld rows to keep are too many rows",
                         limits->max_sessions, limits->max_tokens, (long long)kept);
    return STATUS_OK;
}

static int own_blocks(const struct session_limits *limits) {
    return limits->max_sessions * blocks_of(limits->max_tokens);
}

/* n rows of one session close at most (n - 1) / m + 1 chunks. */
static int closings_at_most(const struct model *model, const struct session_limits *limits) {
    const struct retro_spec *retro = &model->spec.retro;
    return retro->n_layers ? limits->max_step_rows / retro->chunk_length + limits->max_sessions : 0;
}

/* Columns of the head's rows: what is picked, all logits, and this rank's own where there are
 * others. */
static size_t head_columns(const struct model *model) {
    size_t own = model->comm->size > 1 ? (size_t)model->vocab.n : 0;
    return (size_t)model->stacks[STACK_DECODER].dims.hidden + (size_t)model->spec.padded_vocab +
           own;
}

/* A tower is on the first stage. */
static bool pool_views(const struct session_pool *pool) {
    return pool->limits.max_picture_rows > 0 && pool->model->comm->stage == 0;
}

/* Everything a pool will have, without memory. */
static enum status measure_parts(struct session_pool *pool, struct error *e) {
    const struct model *model = pool->model;
    const struct session_limits *limits = &pool->limits;
    enum edge reads = model_decoder(pool->model)->dims.reads;
    size_t scratch, head,
        given =
            (size_t)limits->max_given * (size_t)model_given_columns(pool->model) * sizeof(float);
    size_t viewed = 0,
           shares = (size_t)limits->max_step_rows * 2 * (size_t)limits->max_shares * sizeof(float);
    if (check_limits(limits, model, e) ||
        scratch_measure(model_decoder(pool->model), limits->max_step_rows, &scratch, e) ||
        kv_cache_measure(&pool->cache, model, own_blocks(limits) + limits->kept_blocks,
                         limits->kv_dtype, e))
        return e->status;
    if (state_cache_measure(&pool->states, model, limits->max_sessions,
                            limits->kept_blocks > 0 ? limits->kept_states : 0,
                            limits->max_draft_rows, e))
        return e->status;
    pool->max_closings = closings_at_most(model, limits);
    if (reads == EDGE_NEIGHBORS &&
        neighbors_measure(&pool->neighbors, &pool->cross, model, limits, pool->max_closings, e))
        return e->status;
    if (reads == EDGE_SOURCE && sources_measure(&pool->sources, &pool->cross, model, limits, e))
        return e->status;

    if (pool_views(pool) && tower_measure(&viewed, model, limits->max_picture_rows, e))
        return e->status;
    pool->bytes.kept =
        pool->cache.bytes / (size_t)pool->cache.n_blocks * (size_t)limits->kept_blocks;
    pool->bytes.cache = pool->cache.bytes - pool->bytes.kept;
    size_t states = (size_t)pool->states.most * pool->states.state_bytes;
    pool->bytes.states = pool->states.bytes - states;
    pool->bytes.kept += states;
    pool->bytes.cross =
        cross_cache_bytes(&pool->cross) + pool->neighbors.bytes + pool->sources.bytes;
    if (mul_overflows((size_t)limits->max_logit_rows, head_columns(model) * sizeof(float), &head) ||
        add_overflows(scratch + given + shares + viewed, head, &pool->bytes.steps))
        return error_set(e, STATUS_NO_MEMORY, "logits do not fit the address space");
    return STATUS_OK;
}

enum status session_pool_measure(struct session_bytes *out, const struct model *model,
                                 const struct session_limits *limits, struct error *e) {
    struct session_pool pool = {.model = (struct model *)(uintptr_t)model, .limits = *limits};
    if (!model_writes(model))
        return error_set(e, STATUS_UNSUPPORTED, "a %s model does not write text",
                         model->info.family);
    if (measure_parts(&pool, e)) return e->status;
    *out = pool.bytes;
    return STATUS_OK;
}

static enum status open_head(struct session_pool *pool, struct error *e) {
    const struct model *model = pool->model;
    int rows = pool->limits.max_logit_rows, d = model_decoder(pool->model)->dims.hidden,
        v = model->spec.padded_vocab;
    size_t bytes = (size_t)rows * head_columns(model) * sizeof(float);
    if (backend_alloc(model->backend, &pool->head, bytes, "logits", e)) return e->status;
    float *picked = pool->head, *logits = picked + (size_t)rows * (size_t)d;
    float *own = logits + (size_t)rows * (size_t)v;
    pool->picked = tensor_make(picked, DTYPE_F32, rows, d);
    pool->logits = tensor_make(logits, DTYPE_F32, rows, v);
    pool->local_logits =
        model->comm->size > 1 ? tensor_make(own, DTYPE_F32, rows, model->vocab.n) : pool->logits;
    return STATUS_OK;
}

static enum status open_given(struct session_pool *pool, struct error *e) {
    int rows = pool->limits.max_given, columns = model_given_columns(pool->model);
    void *memory;
    if (rows == 0) return STATUS_OK;
    if (backend_alloc(pool->model->backend, &memory, (size_t)rows * (size_t)columns * sizeof(float),
                      "given rows", e))
        return e->status;
    pool->given = tensor_make(memory, DTYPE_F32, rows, columns);
    return STATUS_OK;
}

static enum status open_shares(struct session_pool *pool, struct error *e) {
    int rows = pool->limits.max_step_rows, cols = 2 * pool->limits.max_shares;
    void *memory;
    if (cols == 0) return STATUS_OK;
    if (backend_alloc(pool->model->backend, &memory, (size_t)rows * (size_t)cols * sizeof(float),
                      "shares of attention", e))
        return e->status;
    pool->shares = tensor_make(memory, DTYPE_F32, rows, cols);
    return STATUS_OK;
}

/* A sequence's rows are one span, which each picture of a step whose rows see each other cuts
 * twice; a sequence may go on within its first. */
static int count_spans(const struct session_pool *pool) {
    int sequences = pool->limits.max_sessions, together = picture_rows_together(pool->model);
    if (pool->model->spec.picture.linked) together = 1;
    int pictures = together > 0 ? sequences + pool->limits.max_given / together : 0;
    return sequences + 2 * pictures;
}

static enum status open_parts(struct session_pool *pool, struct error *e) {
    const struct session_limits *limits = &pool->limits;
    if (measure_parts(pool, e) ||
        scratch_open(&pool->scratch, pool->model, model_decoder(pool->model), limits->max_step_rows,
                     e) ||
        kv_cache_open(&pool->cache, e) ||
        (pool->states.model && state_cache_open(&pool->states, pool->cache.n_blocks, e)) ||
        open_head(pool, e) || open_given(pool, e) || open_shares(pool, e))
        return e->status;
    if (pool->cross.model && cross_cache_open(&pool->cross, e)) return e->status;
    if (pool->neighbors.model && neighbors_open(&pool->neighbors, &pool->cache, e))
        return e->status;
    if (pool->sources.model && sources_open(&pool->sources, e)) return e->status;
    if (pool_views(pool) && tower_open(&pool->tower, pool->model, limits->max_picture_rows, e))
        return e->status;
    struct plan_sizes sizes = {
        .rows = limits->max_step_rows,
        .items = limits->max_sessions,
        .spans = count_spans(pool),
        .blocks = pool->cache.n_blocks,
        .closings = pool->max_closings + limits->max_sessions, /* each may encode one again */
        .given = limits->max_given,
        .sections = sections_of(pool),
        .shares = limits->max_shares,
        .given_columns = model_given_columns(pool->model),
        .states = pool->states.model ? limits->max_sessions * (2 * PROMISED_STATES + 2) : 0};
    plan_open(&pool->plan, &sizes);
    return STATUS_OK;
}

void session_pool_free_rank(struct session_pool *pool) {
    struct backend *backend = pool->model->backend;
    neighbors_close(&pool->neighbors);
    sources_close(&pool->sources);
    tower_close(pool->tower);
    free(pool->followed);
    chunk_slots_close(&pool->chunks);
    cross_cache_close(&pool->cross);
    scratch_close(&pool->scratch, pool->model);
    kv_cache_close(&pool->cache);
    state_cache_close(&pool->states);
    prefix_tree_close(&pool->tree);
    backend_release(backend, pool->head);
    backend_release(backend, pool->given.data);
    backend_release(backend, pool->shares.data);
    plan_close(&pool->plan);
    buffer_free(&pool->message);
    buffer_free(&pool->verdict);
    buffer_free(&pool->documents);
    for (int i = 0; pool->sessions && i < pool->limits.max_sessions; i++) {
        buffer_free(&pool->sessions[i].open_read);
        buffer_free(&pool->sessions[i].documents);
        chunk_history_free(&pool->sessions[i].history);
    }
    free(pool->block_memory);
    free(pool->sessions);
    free(pool);
}

static void make_sessions(struct session_pool *pool) {
    size_t n = (size_t)pool->limits.max_sessions,
           blocks = (size_t)blocks_of(pool->limits.max_tokens);
    pool->sessions = xcalloc(n, sizeof *pool->sessions);
    pool->block_memory = xcalloc(n * blocks, sizeof *pool->block_memory);
    for (size_t i = 0; i < n; i++) {
        pool->sessions[i] = (struct session){.pool = pool, .state = {.own = STATE_NONE}};
        pool->sessions[i].blocks.blocks = pool->block_memory + i * blocks;
    }
}

enum status session_pool_open_rank(struct session_pool **out, struct model *model,
                                   const struct session_limits *limits, struct error *e) {
    struct session_pool *pool = xcalloc(1, sizeof *pool);
    pool->model = model;
    pool->limits = *limits;
    enum status status = model_writes(model)
                             ? open_parts(pool, e)
                             : error_set(e, STATUS_UNSUPPORTED, "a %s model does not write text",
                                         model->info.family);
    status = comm_agree(model->comm->world, status, e);
    if (status) {
        session_pool_free_rank(pool);
        return status;
    }
    make_sessions(pool);
    if (pool->neighbors.model)
        chunk_slots_open(&pool->chunks, pool->cross.n_slots, limits->kept_blocks > 0);
    prefix_tree_open(&pool->tree, pool->cache.n_blocks, limits->kept_blocks,
                     model->spec.retro.n_layers ? model->spec.retro.retrieved_length : 0);
    *out = pool;
    return STATUS_OK;
}

enum status session_pool_open(struct session_pool **out, struct model *model,
                              const struct session_limits *limits, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    struct buffer message = {0};
    CHECK(model->comm->world->rank == 0);
    buffer_append(&message, &(enum message){MESSAGE_OPEN}, sizeof(enum message));
    buffer_append(&message, limits, sizeof *limits);
    enum status status = comm_broadcast(model->comm->world, &message, e);
    if (status == STATUS_OK) status = session_pool_open_rank(out, model, limits, e);
    buffer_free(&message);
    return status;
}

void session_pool_close(struct session_pool *pool) {
    if (pool == NULL) return;
    buffer_clear(&pool->message);
    buffer_append(&pool->message, &(enum message){MESSAGE_CLOSE}, sizeof(enum message));
    comm_broadcast(pool->model->comm->world, &pool->message,
                   &(struct error){0}); /* a failed rank has nothing left to close */
    session_pool_free_rank(pool);
}

size_t session_pool_bytes(const struct session_pool *pool) {
    return session_bytes_all(&pool->bytes);
}

struct session_chunks session_pool_chunks(const struct session_pool *pool) {
    return (struct session_chunks){.encoded = pool->chunks.encoded,
                                   .found = pool->chunks.found,
                                   .kept = chunk_slots_kept(&pool->chunks)};
}

struct session_blocks session_pool_blocks(const struct session_pool *pool) {
    const struct kv_cache *cache = &pool->cache;
    return (struct session_blocks){.used = cache->n_blocks - cache->n_free - pool->tree.n_kept,
                                   .all = own_blocks(&pool->limits),
                                   .kept = pool->tree.n_kept,
                                   .kept_most = pool->limits.kept_blocks,
                                   .evicted = pool->tree.evicted,
                                   .bytes = cache->bytes / (size_t)cache->n_blocks};
}
