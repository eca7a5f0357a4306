/* retro/run/cross/cross_cache.c: slots of projected encoder output. See cross_cache.h. */
#include "retro/run/cross/cross_cache.h"

#include <stdlib.h>

static int kv_columns(const struct cross_cache *c) {
    const struct stack *s = model_decoder(c->model);
    return s->heads.n * s->dims.head_dim;
}

/* Whether layer i of the decoder has cross attention and is on this stage. */
static bool layer_reads(const struct cross_cache *c, int i) {
    const struct stack *s = model_decoder(c->model);
    return i >= s->kept.first && i < s->kept.first + s->kept.n && s->layers[i].spec.cross;
}

enum status cross_cache_measure(struct cross_cache *c, const struct model *m, const struct cross_cache_sizes *sizes,
                                struct error *e) {
    *c = (struct cross_cache){
        .model = m, .n_slots = sizes->n_slots, .slot_rows = sizes->slot_rows, .dtype = sizes->dtype};
    if ((int64_t)c->n_slots * c->slot_rows > INT32_MAX / 2)
        return error_set(e, STATUS_INVALID, "%d slots of %d rows for cross attention are too many rows", c->n_slots,
                         c->slot_rows);

    size_t layers = 0, cols = (size_t)kv_columns(c), row = cols * dtype_bytes(c->dtype);
    for (int i = 0; i < model_decoder(c->model)->dims.n_layers; i++) layers += layer_reads(c, i);
    c->projected = tensor_make(NULL, DTYPE_F32, sizes->group_rows, 2 * (int)cols);
    c->projected_bytes = (size_t)sizes->group_rows * 2 * cols * sizeof(float);
    if (!mul_overflows((size_t)c->n_slots * (size_t)c->slot_rows, 2 * layers * row, &c->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "keys and values of cross attention do not fit the address space");
}

static void make_layers(struct cross_cache *c) {
    int n = model_decoder(c->model)->dims.n_layers, rows = c->n_slots * c->slot_rows, cols = kv_columns(c);
    size_t one = (size_t)rows * (size_t)cols * dtype_bytes(c->dtype);
    char *at = c->memory;
    c->k = xcalloc((size_t)n, sizeof *c->k);
    c->v = xcalloc((size_t)n, sizeof *c->v);
    for (int i = 0; i < n; i++) {
        if (!layer_reads(c, i)) continue;
        c->k[i] = tensor_make(at, c->dtype, rows, cols);
        c->v[i] = tensor_make(at + one, c->dtype, rows, cols);
        at += 2 * one;
    }
}

enum status cross_cache_open(struct cross_cache *c, struct error *e) {
    struct backend *b = c->model->backend;
    if (backend_alloc(b, &c->memory, c->bytes, "keys and values of cross attention", e) ||
        backend_alloc(b, &c->projected_memory, c->projected_bytes, "encoder output", e))
        return e->status;
    c->projected.data = c->projected_memory;
    make_layers(c);
    c->free_slots = xmalloc((size_t)c->n_slots * sizeof *c->free_slots);
    for (int i = 0; i < c->n_slots; i++) c->free_slots[i] = c->n_slots - 1 - i;
    c->n_free = c->n_slots;
    return STATUS_OK;
}

void cross_cache_close(struct cross_cache *c) {
    if (c->model == NULL) return;
    backend_release(c->model->backend, c->memory);
    backend_release(c->model->backend, c->projected_memory);
    free(c->k);
    free(c->v);
    free(c->free_slots);
}

size_t cross_cache_bytes(const struct cross_cache *c) { return c->bytes + c->projected_bytes; }

int cross_cache_take(struct cross_cache *c) {
    CHECK(c->n_free > 0);
    c->n_free--;
    return c->free_slots[c->n_free];
}

void cross_cache_free(struct cross_cache *c, int slot) {
    if (slot < 0) return;
    c->free_slots[c->n_free] = slot;
    c->n_free++;
}

void cross_cache_fill(struct cross_cache *c, struct tensor encoded, const int32_t *rows) {
    struct backend *b = c->model->backend;
    struct tensor out = tensor_rows(c->projected, 0, encoded.rows);
    int cols = kv_columns(c);
    for (int i = 0; i < model_decoder(c->model)->dims.n_layers; i++) {
        if (!layer_reads(c, i)) continue;
        const struct projection *w = &model_decoder(c->model)->layers[i].cross_kv;
        backend_linear(b, &(struct linear_args){.y = out, .x = encoded, .weight = &w->weight, .bias = w->bias});
        backend_scatter_rows(b,
                             &(struct scatter_rows_args){.y = c->k[i], .x = tensor_cols(out, 0, cols), .rows = rows});
        backend_scatter_rows(
            b, &(struct scatter_rows_args){.y = c->v[i], .x = tensor_cols(out, cols, cols), .rows = rows});
    }
}
