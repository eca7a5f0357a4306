/* retro/run/cache/kv_cache.h: keys and values of many sequences, in blocks of ATTENTION_BLOCK rows.
 * A sequence takes blocks as it grows and gives them back when it ends, so memory that was never
 * reached is never touched.
 *
 * Rows of latent attention (struct latent_dims) are keys and values at once: k and v are the same
 * memory, and never int8 (model_options).
 *
 * Layers may have heads of different sizes, and layers that reuse the keys and values of another
 * one keep none.
 *
 * Int8 keys and values have a scale for each row and key head, in tensors of their own that the
 * same blocks cut.
 *
 * On the stage of a Retro model's neighbour encoder a row of the cache has one more part: the
 * decoder's row as the first retro layer normed it, which conditions the encoder when the row's
 * chunk closes. It depends on the tokens alone. So a block has all that the rows behind it need of
 * its rows. */
#pragma once

#include "retro/model/layer.h"

/* The tensors that a layer's rows are in: keys and values [n_blocks * ATTENTION_BLOCK, G h], and of
 * int8 ones their scales, bf16 [n_blocks * ATTENTION_BLOCK, G]. */
enum kv_cache_part {
    KV_CACHE_KEYS,
    KV_CACHE_VALUES,
    KV_CACHE_KEY_SCALES,
    KV_CACHE_VALUE_SCALES,
    KV_CACHE_PARTS
};

struct kv_cache {
    const struct model *model;
    enum dtype dtype; /* of keys and values */
    /* [KV_CACHE_PARTS] of each decoder layer, owned; data NULL where the layer keeps no keys, or is
     * on another stage, or the part is not there. */
    struct tensor *layers;
    void *memory;
    struct tensor
        normed; /* [n_blocks * ATTENTION_BLOCK, d] f32; data NULL where this rank does not encode */
    size_t bytes, normed_bytes; /* of all, and of normed */
    int n_blocks, n_free;
    int32_t *free_blocks; /* [n_blocks], the next one last */
};

/* The blocks of one sequence in order; `blocks` has room for those of the longest sequence. */
struct block_list {
    int32_t *blocks;
    int n;
};

/* Blocks that n rows take. */
static inline int blocks_of(int rows) { return (rows + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK; }
/* The row of the cache that row i of a sequence has. */
static inline int32_t block_row(const struct block_list *list, int i) {
    return list->blocks[i / ATTENTION_BLOCK] * ATTENTION_BLOCK + i % ATTENTION_BLOCK;
}

/* Fills in what there will be and allocates nothing. STATUS_NO_MEMORY beyond the address space. */
enum status kv_cache_measure(struct kv_cache *cache, const struct model *model, int n_blocks,
                             enum dtype dtype, struct error *e);
/* After kv_cache_measure. */
enum status kv_cache_open(struct kv_cache *cache, struct error *e);
void kv_cache_close(struct kv_cache *cache);

/* Takes blocks until `rows` rows have a place. The caller has seen to it that there are enough. */
void kv_cache_extend(struct kv_cache *cache, struct block_list *list, int rows);
void kv_cache_free(struct kv_cache *cache, int32_t block);

/* Rows [0, rows) of block `to` become those of block `from`, on this rank. */
void kv_cache_copy(const struct kv_cache *cache, int32_t from, int32_t to, int rows);

/* All rows of the block become zeros, on this rank. */
void kv_cache_wipe(const struct kv_cache *cache, int32_t block);
/* The first so many parts there are, each with memory of its own. */
int kv_cache_parts(const struct kv_cache *cache);

/* The rows of a block as bytes: layer by layer its parts, of rows [0, rows); then the normed rows.
 * kv_cache_get reads a block that nobody writes, beside steps of other blocks where the device's
 * memory is the host's. kv_cache_put takes rows [0, rows) of an image of n rows. */
size_t kv_cache_image_bytes(const struct kv_cache *cache, int rows);
void kv_cache_get(const struct kv_cache *cache, int32_t block, int rows, char *image);
void kv_cache_put(const struct kv_cache *cache, int32_t block, int rows, const char *image, int n);

/* A part of one decoder layer that this rank keeps and that has attention: its own, or that of the
 * layer whose keys and values it reuses. */
struct tensor kv_cache_layer(const struct kv_cache *cache, enum kv_cache_part part, int layer);
