/* retro/run/cross/neighbors.c: the neighbour encoder and the slots of its projected output. See
 * neighbors.h. */
#include "retro/run/cross/neighbors.h"

#include <stdlib.h>

/* Rows the encoder works on at once; more closed chunks than fit are encoded in groups, with the
 * same result. */
enum { GROUP_ROWS = 1024 };

static const struct stack *encoder_of(const struct neighbors *nb) {
    return &nb->model->stacks[STACK_ENCODER];
}

static int kv_columns(const struct neighbors *nb) {
    return encoder_of(nb)->heads.n * encoder_of(nb)->dims.head_dim;
}

enum status neighbors_measure(struct neighbors *nb, struct cross_cache *cache,
                              const struct model *model, const struct session_limits *limits,
                              int max_closings, struct error *e) {
    const struct retro_spec *retro = &model->spec.retro;
    *nb = (struct neighbors){
        .model = model, .cache = cache, .m = retro->chunk_length, .r = retro->retrieved_length};
    if (limits->max_neighbors < 1 || (int64_t)limits->max_neighbors * nb->r > 1 << 20)
        return error_set(e, STATUS_INVALID,
                         "%d neighbours of %d tokens per chunk; allowed is 1 .. %d",
                         limits->max_neighbors, nb->r, (1 << 20) / nb->r);

    /* Each session keeps one slot, and while a step runs every closing takes one. */
    int slot_rows = limits->max_neighbors * nb->r, n_slots = limits->max_sessions + max_closings;
    if ((int64_t)n_slots * slot_rows > INT32_MAX / 2)
        return error_set(e, STATUS_INVALID,
                         "%d neighbours of %d tokens for each of %d sessions and %d chunks of a "
                         "step are too many rows",
                         limits->max_neighbors, nb->r, limits->max_sessions, max_closings);
    int rows = max_int(slot_rows, min_int(GROUP_ROWS, max_closings * slot_rows));
    nb->max_chunks = min_int(max_closings, max_int(1, rows / nb->r));
    size_t kv = 2 * (size_t)kv_columns(nb), hidden = (size_t)encoder_of(nb)->dims.hidden;
    nb->memory_bytes = (size_t)nb->max_chunks * (size_t)nb->m * (hidden + kv) * sizeof(float);
    struct cross_cache_sizes sizes = {.n_slots = n_slots,
                                      .slot_rows = slot_rows,
                                      .group_rows = rows,
                                      .dtype = limits_cross_dtype(limits)};
    if (cross_cache_measure(cache, model, &sizes, e) ||
        encoder_group_measure(&nb->group, model, rows, e))
        return e->status;
    nb->bytes = nb->group.bytes + nb->memory_bytes;
    return STATUS_OK;
}

enum status neighbors_open(struct neighbors *nb, const struct kv_cache *rows, struct error *e) {
    int d = encoder_of(nb)->dims.hidden, kv = 2 * kv_columns(nb),
        chunk_rows = nb->max_chunks * nb->m;
    if (encoder_group_open(&nb->group, e) ||
        backend_alloc(nb->model->backend, &nb->memory, nb->memory_bytes,
                      "chunk rows for the encoder", e))
        return e->status;
    float *chunks = nb->memory;
    nb->rows = rows;
    nb->context = tensor_make(chunks, DTYPE_F32, chunk_rows, d);
    nb->context_kv =
        tensor_make(chunks + (size_t)chunk_rows * (size_t)d, DTYPE_F32, chunk_rows, kv);
    nb->context_rows = xmalloc((size_t)chunk_rows * sizeof *nb->context_rows);
    nb->cross_spans = xmalloc((size_t)nb->max_chunks * sizeof *nb->cross_spans);
    return STATUS_OK;
}

void neighbors_close(struct neighbors *nb) {
    if (nb->model == NULL) return;
    backend_release(nb->model->backend, nb->memory);
    encoder_group_close(&nb->group);
    free(nb->context_rows);
    free(nb->cross_spans);
}

/* The cache's row of row i of a chunk; -1 where the first chunk is short. */
static int32_t row_of_chunk(const int32_t *blocks, const struct closing *closing, int i) {
    int row = closing->start + i;
    if (i >= closing->n) return -1;
    return blocks[closing->blocks + row / ATTENTION_BLOCK] * ATTENTION_BLOCK +
           row % ATTENTION_BLOCK;
}

/* Context rows of the group: each chunk's rows, then zeros where the first chunk is short. These
 * are zeros after the norm, so a pad row's key and value are the biases, and it is attended
 * (spec 5.1). */
static void gather_context(struct neighbors *nb, const int32_t *blocks,
                           const struct closing *closing, int n) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < nb->m; i++)
            nb->context_rows[j * nb->m + i] = row_of_chunk(blocks, &closing[j], i);
    struct gather_rows_args args = {.y = tensor_rows(nb->context, 0, n * nb->m),
                                    .x = nb->rows->normed,
                                    .rows = nb->context_rows};
    backend_gather_rows(nb->model->backend, &args);
}

/* Each neighbour is a text of its own (spec 2). Those of closing j are rows [row, row + k r) of the
 * group, and all read the chunk's m rows of context. */
static void plan_group(struct neighbors *nb, const struct closing *closings, int n) {
    int r = nb->r;
    encoder_group_clear(&nb->group);
    for (int j = 0; j < n; j++) {
        const struct closing *closing = &closings[j];
        int slot_row = closing->slot * nb->cache->slot_rows;
        nb->cross_spans[j] =
            (struct attention_span){nb->group.n_rows, closing->k * r, j * nb->m, nb->m, 0};
        for (int i = 0; i < closing->k; i++)
            encoder_group_add(&nb->group, closing->ids + i * r, r, slot_row + i * r);
    }
}

/* The encoder's cross attention reads the decoder's chunk (spec 6 step 3), projected anew for each
 * layer. */
static const struct cross_source *read_context(void *neighbors, int layer_index,
                                               struct tensor normed) {
    struct neighbors *nb = neighbors;
    const struct projection *projection = &encoder_of(nb)->layers[layer_index].cross_kv;
    int rows = nb->source.n_spans * nb->m;
    (void)normed;
    backend_linear(nb->model->backend,
                   &(struct linear_args){.y = tensor_rows(nb->context_kv, 0, rows),
                                         .x = tensor_rows(nb->context, 0, rows),
                                         .weight = &projection->weight,
                                         .bias = projection->bias});
    return &nb->source;
}

/* Returns the encoder's output for the group. */
static struct tensor encode_group(struct neighbors *nb, const int32_t *blocks,
                                  const struct closing *closing, int n) {
    int cols = kv_columns(nb);
    struct tensor kv = tensor_rows(nb->context_kv, 0, n * nb->m);
    gather_context(nb, blocks, closing, n);
    nb->source = (struct cross_source){.k = tensor_cols(kv, 0, cols),
                                       .v = tensor_cols(kv, cols, cols),
                                       .spans = nb->cross_spans,
                                       .n_spans = n};
    return encoder_group_run(&nb->group, read_context, nb);
}

/* One stage encodes; from there the output goes from stage to stage, as far as there are retro
 * layers. */
static void fill_group(struct neighbors *nb, const int32_t *blocks, const struct closing *closing,
                       int n) {
    const struct model *model = nb->model;
    const struct comm *comm = model->comm;
    plan_group(nb, closing, n);
    struct tensor x = encoder_group_rows(&nb->group);
    if (comm->stage == model->encodes)
        x = encode_group(nb, blocks, closing, n);
    else
        comm_receive(comm->world, model->backend, x, comm->world->rank - comm->size);
    cross_cache_fill(nb->cache, x, nb->group.slot_row_of);
    if (comm->stage < model->reads)
        comm_send(comm->world, model->backend, x, comm->world->rank + comm->size);
}

/* How many of the n closings make a group: one at least. */
static int count_group(const struct neighbors *nb, const struct closing *closings, int n) {
    int taken = 0, rows = 0;
    while (taken < min_int(n, nb->max_chunks)) {
        rows += closings[taken].k * nb->r;
        if (rows > nb->group.max_rows) break;
        taken++;
    }
    return taken;
}

void neighbors_encode(struct neighbors *nb, const int32_t *blocks, const struct closing *closings,
                      int n) {
    int first = 0;
    while (first < n) {
        int taken = count_group(nb, closings + first, n - first);
        fill_group(nb, blocks, closings + first, taken);
        first += taken;
    }
}

void neighbors_keep(struct neighbors *nb, struct tensor normed, const int32_t *rows) {
    backend_scatter_rows(nb->model->backend, &(struct scatter_rows_args){
                                                 .y = nb->rows->normed, .x = normed, .rows = rows});
}
