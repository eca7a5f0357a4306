/* retro/run/cross/cross_cache.c: slots of projected encoder output. See cross_cache.h. */
#include "retro/run/cross/cross_cache.h"

#include <stdlib.h>

static int kv_columns(const struct cross_cache *cache) {
    const struct stack *stack = model_decoder(cache->model);
    return stack->heads.n * stack->dims.head_dim;
}

/* Whether layer i of the decoder has cross attention and is on this stage. */
static bool layer_reads(const struct cross_cache *cache, int i) {
    const struct stack *stack = model_decoder(cache->model);
    return i >= stack->kept.first && i < stack->kept.first + stack->kept.n &&
           stack->layers[i].spec.cross;
}

enum status cross_cache_measure(struct cross_cache *cache, const struct model *model,
                                const struct cross_cache_sizes *sizes, struct error *e) {
    *cache = (struct cross_cache){.model = model,
                                  .n_slots = sizes->n_slots,
                                  .slot_rows = sizes->slot_rows,
                                  .dtype = sizes->dtype};
    if ((int64_t)cache->n_slots * cache->slot_rows > INT32_MAX / 2)
        return error_set(e, STATUS_INVALID,
                         "%d slots of %d rows for cross attention are too many rows",
                         cache->n_slots, cache->slot_rows);

    size_t layers = 0, cols = (size_t)kv_columns(cache), row = cols * dtype_bytes(cache->dtype);
    for (int i = 0; i < model_decoder(cache->model)->dims.n_layers; i++)
        layers += layer_reads(cache, i);
    cache->projected = tensor_make(NULL, DTYPE_F32, sizes->group_rows, 2 * (int)cols);
    cache->projected_bytes = (size_t)sizes->group_rows * 2 * cols * sizeof(float);
    if (!mul_overflows((size_t)cache->n_slots * (size_t)cache->slot_rows, 2 * layers * row,
                       &cache->bytes))
        return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY,
                     "keys and values of cross attention do not fit the address space");
}

static void make_layers(struct cross_cache *cache) {
    int n = model_decoder(cache->model)->dims.n_layers, rows = cache->n_slots * cache->slot_rows,
        cols = kv_columns(cache);
    size_t one = (size_t)rows * (size_t)cols * dtype_bytes(cache->dtype);
    char *at = cache->memory;
    cache->k = xcalloc((size_t)n, sizeof *cache->k);
    cache->v = xcalloc((size_t)n, sizeof *cache->v);
    for (int i = 0; i < n; i++) {
        if (!layer_reads(cache, i)) continue;
        cache->k[i] = tensor_make(at, cache->dtype, rows, cols);
        cache->v[i] = tensor_make(at + one, cache->dtype, rows, cols);
        at += 2 * one;
    }
}

enum status cross_cache_open(struct cross_cache *cache, struct error *e) {
    struct backend *backend = cache->model->backend;
    if (backend_alloc(backend, &cache->memory, cache->bytes, "keys and values of cross attention",
                      e) ||
        backend_alloc(backend, &cache->projected_memory, cache->projected_bytes, "encoder output",
                      e))
        return e->status;
    cache->projected.data = cache->projected_memory;
    make_layers(cache);
    return STATUS_OK;
}

void cross_cache_close(struct cross_cache *cache) {
    if (cache->model == NULL) return;
    backend_release(cache->model->backend, cache->memory);
    backend_release(cache->model->backend, cache->projected_memory);
    free(cache->k);
    free(cache->v);
}

size_t cross_cache_bytes(const struct cross_cache *cache) {
    return cache->bytes + cache->projected_bytes;
}

void cross_cache_fill(struct cross_cache *cache, struct tensor encoded, const int32_t *rows) {
    struct backend *backend = cache->model->backend;
    struct tensor out = tensor_rows(cache->projected, 0, encoded.rows);
    int cols = kv_columns(cache);
    for (int i = 0; i < model_decoder(cache->model)->dims.n_layers; i++) {
        if (!layer_reads(cache, i)) continue;
        const struct projection *projection = &model_decoder(cache->model)->layers[i].cross_kv;
        backend_linear(
            backend,
            &(struct linear_args){
                .y = out, .x = encoded, .weight = &projection->weight, .bias = projection->bias});
        backend_scatter_rows(backend,
                             &(struct scatter_rows_args){
                                 .y = cache->k[i], .x = tensor_cols(out, 0, cols), .rows = rows});
        backend_scatter_rows(
            backend, &(struct scatter_rows_args){
                         .y = cache->v[i], .x = tensor_cols(out, cols, cols), .rows = rows});
    }
}

static void wipe_rows(const struct cross_cache *cache, struct tensor of, int first, int n) {
    struct tensor rows = tensor_rows(of, first, n);
    backend_wipe(cache->model->backend, rows.data,
                 (size_t)n * (size_t)rows.cols * dtype_bytes(cache->dtype));
}

void cross_cache_wipe(const struct cross_cache *cache, int slot, int first, int n) {
    int row = slot * cache->slot_rows + first;
    for (int i = 0; i < model_decoder(cache->model)->dims.n_layers; i++) {
        if (!layer_reads(cache, i)) continue;
        wipe_rows(cache, cache->k[i], row, n);
        wipe_rows(cache, cache->v[i], row, n);
    }
}
