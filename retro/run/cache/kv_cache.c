/* retro/run/cache/kv_cache.c: blocks of keys and values. See kv_cache.h. */
#include "retro/run/cache/kv_cache.h"

#include <stdlib.h>

/* Whether this rank's neighbour encoder is conditioned on decoder rows. */
static bool encodes(const struct model *model) {
    return model->encodes >= 0 && model->comm->stage == model->encodes;
}

/* This rank's layers that have attention. */
static int count_layers(const struct kv_cache *cache) {
    const struct stack *stack = model_decoder(cache->model);
    return stack_count_attention(stack, stack->kept.first, stack->kept.n);
}

enum status kv_cache_measure(struct kv_cache *cache, const struct model *model, int n_blocks,
                             enum dtype dtype, struct error *e) {
    *cache = (struct kv_cache){.model = model, .n_blocks = n_blocks};
    const struct stack *stack = model_decoder(cache->model);
    int rows = n_blocks * ATTENTION_BLOCK, cols = stack->kv_heads.n * stack->dims.head_dim;
    CHECK(dtype != DTYPE_INT8 || stack_cache_parts(stack) > 1);
    size_t row = (size_t)stack_cache_parts(stack) * (size_t)count_layers(cache) *
                 cache_row_bytes(dtype, (size_t)stack->kv_heads.n, (size_t)stack->dims.head_dim);
    cache->k = cache->v = tensor_make(NULL, dtype, rows, cols);
    cache->k_scales = cache->v_scales = tensor_make(NULL, DTYPE_BF16, rows, stack->kv_heads.n);
    cache->normed = tensor_make(NULL, DTYPE_F32, rows, stack->dims.hidden);
    size_t normed = encodes(model) ? (size_t)stack->dims.hidden * sizeof(float) : 0;
    cache->normed_bytes = (size_t)rows * normed;
    if (!mul_overflows((size_t)rows, row + normed, &cache->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "key/value cache does not fit the address space");
}

static size_t layer_bytes(const struct tensor *part) {
    return (size_t)part->rows * (size_t)part->cols * dtype_bytes(part->dtype);
}

/* Where a part of all layers is, and what comes behind it. */
static char *place_part(const struct kv_cache *cache, struct tensor *part, char *at) {
    part->data = at;
    return at + (size_t)count_layers(cache) * layer_bytes(part);
}

static void place_parts(struct kv_cache *cache) {
    char *at = place_part(cache, &cache->k, cache->memory);
    if (stack_cache_parts(model_decoder(cache->model)) > 1)
        at = place_part(cache, &cache->v, at);
    else
        cache->v.data = cache->k.data;
    if (cache->k.dtype == DTYPE_INT8) {
        at = place_part(cache, &cache->k_scales, at);
        at = place_part(cache, &cache->v_scales, at);
    }
    if (cache->normed_bytes > 0) cache->normed.data = at;
}

int kv_cache_parts(const struct kv_cache *cache, struct tensor parts[KV_CACHE_PARTS]) {
    const struct tensor all[KV_CACHE_PARTS] = {cache->k, cache->v, cache->k_scales,
                                               cache->v_scales};
    int n = stack_cache_parts(model_decoder(cache->model));
    if (cache->k.dtype == DTYPE_INT8) n = KV_CACHE_PARTS;
    for (int i = 0; i < n; i++) parts[i] = all[i];
    return n;
}

enum status kv_cache_open(struct kv_cache *cache, struct error *e) {
    size_t bytes = cache->bytes > 0 ? cache->bytes : 1; /* a stage may have no attention */
    if (backend_alloc(cache->model->backend, &cache->memory, bytes, "the key/value cache", e))
        return e->status;
    place_parts(cache);
    cache->free_blocks = xmalloc((size_t)cache->n_blocks * sizeof *cache->free_blocks);
    for (int i = 0; i < cache->n_blocks; i++) cache->free_blocks[i] = cache->n_blocks - 1 - i;
    cache->n_free = cache->n_blocks;
    return STATUS_OK;
}

void kv_cache_close(struct kv_cache *cache) {
    if (cache->model == NULL) return;
    backend_release(cache->model->backend, cache->memory);
    free(cache->free_blocks);
}

void kv_cache_extend(struct kv_cache *cache, struct block_list *list, int rows) {
    while (list->n < blocks_of(rows)) {
        CHECK(cache->n_free > 0);
        cache->n_free--;
        list->blocks[list->n] = cache->free_blocks[cache->n_free];
        list->n++;
    }
}

void kv_cache_free(struct kv_cache *cache, int32_t block) {
    cache->free_blocks[cache->n_free] = block;
    cache->n_free++;
}

static void copy_rows(const struct kv_cache *cache, struct tensor all, const int32_t *from, int to,
                      int rows) {
    struct gather_rows_args args = {
        .y = tensor_rows(all, to * ATTENTION_BLOCK, rows), .x = all, .rows = from};
    backend_gather_rows(cache->model->backend, &args);
}

void kv_cache_copy(const struct kv_cache *cache, int32_t from, int32_t to, int rows) {
    const struct portion *kept = &model_decoder(cache->model)->kept;
    struct tensor parts[KV_CACHE_PARTS];
    int32_t places[ATTENTION_BLOCK];
    int n = kv_cache_parts(cache, parts);
    for (int i = 0; i < rows; i++) places[i] = from * ATTENTION_BLOCK + i;
    for (int i = kept->first; i < kept->first + kept->n; i++) {
        if (model_decoder(cache->model)->layers[i].spec.mixer != MIXER_ATTENTION) continue;
        for (int part = 0; part < n; part++)
            copy_rows(cache, kv_cache_layer(cache, parts[part], i), places, to, rows);
    }
    if (cache->normed.data) copy_rows(cache, cache->normed, places, to, rows);
}

/* A part of this rank's layer `place` among those that have attention. */
static struct tensor nth_layer(struct tensor first, int place) {
    first.data = (char *)first.data + (size_t)place * layer_bytes(&first);
    return first;
}

struct tensor kv_cache_layer(const struct kv_cache *cache, struct tensor first, int layer) {
    const struct stack *stack = model_decoder(cache->model);
    const struct portion *kept = &stack->kept;
    CHECK(layer >= kept->first && layer < kept->first + kept->n);
    int before = stack_count_attention(stack, kept->first, layer - kept->first);
    return nth_layer(first, before);
}

/* A block as bytes. */

/* One tensor of the cache's, which has a part of every row. */
static int list_parts(const struct kv_cache *cache, int i, struct tensor *part) {
    struct tensor parts[KV_CACHE_PARTS];
    int n_parts = kv_cache_parts(cache, parts), n = n_parts * count_layers(cache);
    if (i < n)
        *part = nth_layer(parts[i % n_parts], i / n_parts);
    else
        *part = cache->normed;
    return n + (cache->normed.data != NULL);
}

static size_t row_bytes(const struct tensor *part) {
    return (size_t)part->cols * dtype_bytes(part->dtype);
}

static void *block_data(const struct tensor *part, int32_t block) {
    return tensor_rows(*part, block * ATTENTION_BLOCK, ATTENTION_BLOCK).data;
}

size_t kv_cache_image_bytes(const struct kv_cache *cache, int rows) {
    struct tensor part;
    size_t bytes = 0;
    for (int i = 0; i < list_parts(cache, i, &part); i++) bytes += row_bytes(&part) * (size_t)rows;
    return bytes;
}

void kv_cache_get(const struct kv_cache *cache, int32_t block, int rows, char *image) {
    struct tensor part;
    for (int i = 0; i < list_parts(cache, i, &part); i++) {
        size_t bytes = row_bytes(&part) * (size_t)rows;
        backend_download(cache->model->backend, image, block_data(&part, block), bytes);
        image += bytes;
    }
}

void kv_cache_put(const struct kv_cache *cache, int32_t block, int rows, const char *image, int n) {
    struct tensor part;
    for (int i = 0; i < list_parts(cache, i, &part); i++) {
        backend_upload(cache->model->backend, block_data(&part, block), image,
                       row_bytes(&part) * (size_t)rows);
        image += row_bytes(&part) * (size_t)n;
    }
}

void kv_cache_wipe(const struct kv_cache *cache, int32_t block) {
    struct tensor part;
    for (int i = 0; i < list_parts(cache, i, &part); i++)
        backend_wipe(cache->model->backend, block_data(&part, block),
                     row_bytes(&part) * ATTENTION_BLOCK);
}
