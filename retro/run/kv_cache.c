/* retro/run/kv_cache.c: blocks of keys and values. See kv_cache.h. */
#include "retro/run/kv_cache.h"

#include <stdlib.h>

static const struct stack *decoder_of(const struct kv_cache *c) { return &c->model->stacks[STACK_DECODER]; }

enum status kv_cache_measure(struct kv_cache *c, const struct model *m, int n_blocks, enum dtype dtype,
                             struct error *e) {
    *c = (struct kv_cache){.model = m, .n_blocks = n_blocks};
    const struct stack *s = decoder_of(c);
    int rows = n_blocks * ATTENTION_BLOCK, cols = s->kv_heads.n * s->dims.head_dim;
    size_t row = 2 * (size_t)s->kept.n * (size_t)cols * dtype_bytes(dtype);
    c->k = c->v = tensor_make(NULL, dtype, rows, cols);
    if (!mul_overflows((size_t)rows, row, &c->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "key/value cache does not fit the address space");
}

enum status kv_cache_open(struct kv_cache *c, struct error *e) {
    if (backend_alloc(c->model->backend, &c->memory, c->bytes, "the key/value cache", e)) return e->status;
    c->k.data = c->memory;
    c->v.data = (char *)c->memory + c->bytes / 2;
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

void kv_cache_cut(struct kv_cache *c, struct block_list *l, int n) {
    while (l->n > n) {
        l->n--;
        c->free_blocks[c->n_free] = l->blocks[l->n];
        c->n_free++;
    }
}

struct tensor kv_cache_layer(const struct kv_cache *c, struct tensor first, int layer) {
    const struct portion *kept = &decoder_of(c)->kept;
    size_t one = (size_t)first.rows * (size_t)first.cols * dtype_bytes(first.dtype);
    CHECK(layer >= kept->first && layer < kept->first + kept->n);
    first.data = (char *)first.data + (size_t)(layer - kept->first) * one;
    return first;
}
