/* retro/run/cache/kv_cache.c: blocks of keys and values. See kv_cache.h. */
#include "retro/run/cache/kv_cache.h"

#include <stdlib.h>

/* Whether this rank's neighbour encoder is conditioned on decoder rows. */
static bool encodes(const struct model *m) { return m->encodes >= 0 && m->comm->stage == m->encodes; }

enum status kv_cache_measure(struct kv_cache *c, const struct model *m, int n_blocks, enum dtype dtype,
                             struct error *e) {
    *c = (struct kv_cache){.model = m, .n_blocks = n_blocks};
    const struct stack *s = model_decoder(c->model);
    int rows = n_blocks * ATTENTION_BLOCK, cols = s->kv_heads.n * s->dims.head_dim;
    size_t row = 2 * (size_t)s->kept.n * (size_t)cols * dtype_bytes(dtype);
    c->k = c->v = tensor_make(NULL, dtype, rows, cols);
    c->normed = tensor_make(NULL, DTYPE_F32, rows, s->dims.hidden);
    size_t normed = encodes(m) ? (size_t)s->dims.hidden * sizeof(float) : 0;
    c->normed_bytes = (size_t)rows * normed;
    if (!mul_overflows((size_t)rows, row + normed, &c->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "key/value cache does not fit the address space");
}

enum status kv_cache_open(struct kv_cache *c, struct error *e) {
    if (backend_alloc(c->model->backend, &c->memory, c->bytes, "the key/value cache", e)) return e->status;
    c->k.data = c->memory;
    size_t half = (c->bytes - c->normed_bytes) / 2;
    c->v.data = (char *)c->memory + half;
    if (c->normed_bytes > 0) c->normed.data = (char *)c->memory + 2 * half;
    c->free_blocks = xmalloc((size_t)c->n_blocks * sizeof *c->free_blocks);
    for (int i = 0; i < c->n_blocks; i++) c->free_blocks[i] = c->n_blocks - 1 - i;
    c->n_free = c->n_blocks;
    return STATUS_OK;
}

void kv_cache_close(struct kv_cache *c) {
    if (c->model == NULL) return;
    backend_release(c->model->backend, c->memory);
    free(c->free_blocks);
}

void kv_cache_extend(struct kv_cache *c, struct block_list *l, int rows) {
    while (l->n < blocks_of(rows)) {
        CHECK(c->n_free > 0);
        c->n_free--;
        l->blocks[l->n] = c->free_blocks[c->n_free];
        l->n++;
    }
}

void kv_cache_free(struct kv_cache *c, int32_t block) {
    c->free_blocks[c->n_free] = block;
    c->n_free++;
}

void kv_cache_cut(struct kv_cache *c, struct block_list *l, int n) {
    while (l->n > n) {
        l->n--;
        kv_cache_free(c, l->blocks[l->n]);
    }
}

static void copy_rows(const struct kv_cache *c, struct tensor all, const int32_t *from, int to, int rows) {
    struct gather_rows_args args = {.y = tensor_rows(all, to * ATTENTION_BLOCK, rows), .x = all, .rows = from};
    backend_gather_rows(c->model->backend, &args);
}

void kv_cache_copy(const struct kv_cache *c, int32_t from, int32_t to, int rows) {
    const struct portion *kept = &model_decoder(c->model)->kept;
    int32_t places[ATTENTION_BLOCK];
    for (int i = 0; i < rows; i++) places[i] = from * ATTENTION_BLOCK + i;
    for (int i = kept->first; i < kept->first + kept->n; i++) {
        copy_rows(c, kv_cache_layer(c, c->k, i), places, to, rows);
        copy_rows(c, kv_cache_layer(c, c->v, i), places, to, rows);
    }
    if (c->normed.data) copy_rows(c, c->normed, places, to, rows);
}

struct tensor kv_cache_layer(const struct kv_cache *c, struct tensor first, int layer) {
    const struct portion *kept = &model_decoder(c->model)->kept;
    size_t one = (size_t)first.rows * (size_t)first.cols * dtype_bytes(first.dtype);
    CHECK(layer >= kept->first && layer < kept->first + kept->n);
    first.data = (char *)first.data + (size_t)(layer - kept->first) * one;
    return first;
}
