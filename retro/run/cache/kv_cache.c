/* retro/run/cache/kv_cache.c: blocks of keys and values. See kv_cache.h. */
#include "retro/run/cache/kv_cache.h"

#include <stdlib.h>

/* Whether this rank's neighbour encoder is conditioned on decoder rows. */
static bool encodes(const struct model *model) {
    return model->encodes >= 0 && model->comm->stage == model->encodes;
}

static const struct layer *layer_of(const struct kv_cache *cache, int i) {
    return &model_decoder(cache->model)->layers[i];
}

/* A part's columns and its type, of a layer that keeps keys. */
static struct tensor shape_part(const struct kv_cache *cache, enum kv_cache_part part, int i) {
    const struct stack *stack = model_decoder(cache->model);
    const struct layer_heads heads = stack_heads(stack, &layer_of(cache, i)->spec);
    int rows = cache->n_blocks * ATTENTION_BLOCK;
    bool scales = part == KV_CACHE_KEY_SCALES || part == KV_CACHE_VALUE_SCALES;
    if (scales) return tensor_make(NULL, DTYPE_BF16, rows, heads.keys.n);
    return tensor_make(NULL, cache->dtype, rows, heads.keys.n * heads.dim);
}

static size_t row_bytes(const struct tensor *part) {
    return (size_t)part->cols * dtype_bytes(part->dtype);
}

static int last_layer(const struct kv_cache *cache) {
    const struct portion *kept = &model_decoder(cache->model)->kept;
    return kept->first + kept->n;
}

/* Bytes of a row of a part, of all of this rank's layers. */
static size_t count_row_bytes(const struct kv_cache *cache, enum kv_cache_part part) {
    size_t bytes = 0;
    for (int i = model_decoder(cache->model)->kept.first; i < last_layer(cache); i++) {
        if (!layer_keeps_keys(layer_of(cache, i))) continue;
        struct tensor shape = shape_part(cache, part, i);
        bytes += row_bytes(&shape);
    }
    return bytes;
}

int kv_cache_parts(const struct kv_cache *cache) {
    return cache->dtype == DTYPE_INT8 ? (int)KV_CACHE_PARTS
                                      : stack_cache_parts(model_decoder(cache->model));
}

enum status kv_cache_measure(struct kv_cache *cache, const struct model *model, int n_blocks,
                             enum dtype dtype, struct error *e) {
    *cache = (struct kv_cache){.model = model, .n_blocks = n_blocks, .dtype = dtype};
    const struct stack *stack = model_decoder(cache->model);
    int rows = n_blocks * ATTENTION_BLOCK;
    size_t row = 0;
    CHECK(dtype != DTYPE_INT8 || stack_cache_parts(stack) > 1);
    for (int part = 0; part < kv_cache_parts(cache); part++)
        row += count_row_bytes(cache, (enum kv_cache_part)part);
    cache->normed = tensor_make(NULL, DTYPE_F32, rows, stack->dims.hidden);
    size_t normed = encodes(model) ? (size_t)stack->dims.hidden * sizeof(float) : 0;
    cache->normed_bytes = (size_t)rows * normed;
    if (!mul_overflows((size_t)rows, row + normed, &cache->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "key/value cache does not fit the address space");
}

static struct tensor *part_of(const struct kv_cache *cache, enum kv_cache_part part, int layer) {
    return &cache->layers[layer * (int)KV_CACHE_PARTS + (int)part];
}

/* A part of all layers lies together. */
static void place_parts(struct kv_cache *cache) {
    const struct stack *stack = model_decoder(cache->model);
    char *at = cache->memory;
    int n_parts = kv_cache_parts(cache), n_layers = stack->dims.n_layers;
    cache->layers = xcalloc((size_t)n_layers * KV_CACHE_PARTS, sizeof *cache->layers);
    for (int part = 0; part < n_parts; part++)
        for (int i = stack->kept.first; i < last_layer(cache); i++) {
            if (!layer_keeps_keys(layer_of(cache, i))) continue;
            struct tensor *placed = part_of(cache, (enum kv_cache_part)part, i);
            *placed = shape_part(cache, (enum kv_cache_part)part, i);
            placed->data = at;
            at += (size_t)placed->rows * row_bytes(placed);
            if (n_parts == 1) *part_of(cache, KV_CACHE_VALUES, i) = *placed;
        }
    if (cache->normed_bytes > 0) cache->normed.data = at;
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
    free(cache->layers);
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

struct tensor kv_cache_layer(const struct kv_cache *cache, enum kv_cache_part part, int layer) {
    const struct layer_spec *spec = &layer_of(cache, layer)->spec;
    int own = spec->reuses ? spec->source : layer;
    CHECK(own >= model_decoder(cache->model)->kept.first && own < last_layer(cache));
    return *part_of(cache, part, own);
}

/* The tensors that have a part of every row: the parts of each layer, then the normed rows. Begins
 * at {.layer = first}; false behind the last one. */
struct cache_walk {
    struct tensor tensor;
    int layer, part;
    bool normed; /* the normed rows were given */
};

static struct cache_walk walk_parts(const struct kv_cache *cache) {
    return (struct cache_walk){.layer = model_decoder(cache->model)->kept.first};
}

static bool next_part(const struct kv_cache *cache, struct cache_walk *walk) {
    while (walk->layer < last_layer(cache)) {
        if (layer_keeps_keys(layer_of(cache, walk->layer)) && walk->part < kv_cache_parts(cache)) {
            walk->tensor = *part_of(cache, (enum kv_cache_part)walk->part, walk->layer);
            walk->part++;
            return true;
        }
        walk->layer++;
        walk->part = 0;
    }
    if (walk->normed || cache->normed.data == NULL) return false;
    walk->tensor = cache->normed;
    walk->normed = true;
    return true;
}

void kv_cache_copy(const struct kv_cache *cache, int32_t from, int32_t to, int rows) {
    struct cache_walk walk = walk_parts(cache);
    int32_t places[ATTENTION_BLOCK];
    for (int i = 0; i < rows; i++) places[i] = from * ATTENTION_BLOCK + i;
    while (next_part(cache, &walk)) copy_rows(cache, walk.tensor, places, to, rows);
}

/* A block as bytes. */

static void *block_data(const struct tensor *part, int32_t block) {
    return tensor_rows(*part, block * ATTENTION_BLOCK, ATTENTION_BLOCK).data;
}

size_t kv_cache_image_bytes(const struct kv_cache *cache, int rows) {
    struct cache_walk walk = walk_parts(cache);
    size_t bytes = 0;
    while (next_part(cache, &walk)) bytes += row_bytes(&walk.tensor) * (size_t)rows;
    return bytes;
}

void kv_cache_get(const struct kv_cache *cache, int32_t block, int rows, char *image) {
    struct cache_walk walk = walk_parts(cache);
    while (next_part(cache, &walk)) {
        size_t bytes = row_bytes(&walk.tensor) * (size_t)rows;
        backend_download(cache->model->backend, image, block_data(&walk.tensor, block), bytes);
        image += bytes;
    }
}

void kv_cache_put(const struct kv_cache *cache, int32_t block, int rows, const char *image, int n) {
    struct cache_walk walk = walk_parts(cache);
    while (next_part(cache, &walk)) {
        backend_upload(cache->model->backend, block_data(&walk.tensor, block), image,
                       row_bytes(&walk.tensor) * (size_t)rows);
        image += row_bytes(&walk.tensor) * (size_t)n;
    }
}

void kv_cache_wipe(const struct kv_cache *cache, int32_t block) {
    struct cache_walk walk = walk_parts(cache);
    while (next_part(cache, &walk))
        backend_wipe(cache->model->backend, block_data(&walk.tensor, block),
                     row_bytes(&walk.tensor) * ATTENTION_BLOCK);
}
