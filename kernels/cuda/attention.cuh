/* kernels/cuda/attention.cuh: private to the files of attention: what its kernels read, and who
 * runs which span.
 *
 * attention.cu divides an op into its spans: those with one query go to attention_decode.cu, the
 * others to attention_tensor.cu where it fits (attention_fits_tensor), and else to
 * attention_tile.cu; attention_shares.cu is an op of its own. All keep a running maximum, sum and
 * output per row. The span alone decides the kernel and the parts of the keys, so a row's result
 * does not depend on the batch. Keys are counted from the span's first; what a block reads together
 * begins at a multiple of its own number of keys, so it lies in one block of the table, and equal
 * keys give equal bits in whatever blocks.
 *
 * Keys that a row may not see are left out, not multiplied by zero: what they hold, NaN included,
 * has no effect. */
#pragma once

#include "kernels/cuda/common.cuh"

enum { ATTENTION_THREADS = 128 };
enum { CUDA_MAX_HEAD = 512 }; /* largest head_dim that a tile holds */

/* The arguments that all kernels read. */
struct attention_shape {
    view out, q, k, v;
    const struct attention_span *spans;
    const int32_t *blocks; /* NULL: keys and values lie row after row */
    const float *bias;     /* of the first head; NULL: none */
    int64_t bias_stride;
    const float *sinks; /* a head's further score, with a value of zeros; NULL: none */
    int heads, kv_heads, head_dim, group; /* group: query heads per key head */
    float scale, softcap;                 /* softcap 0: none */
    int causal, window;                   /* window 0: all keys */
    int reach;  /* the largest distance that the bias tells from farther ones */
    int vector; /* every head starts at a multiple of 8 elements or 16 bytes in k and v */
};

/* The arguments of an op, its spans and block tables on the device. */
struct attention_shape attention_shape_of(struct backend *backend,
                                          const struct attention_args *args);

/* The row of k and v where key `key` of a span lies; up to the next multiple of ATTENTION_BLOCK
 * others follow. */
__device__ inline int key_row(const struct attention_shape &shape,
                              const struct attention_span &span, int key) {
    if (shape.blocks == NULL) return span.k_start + key;
    return shape.blocks[span.k_start + key / ATTENTION_BLOCK] * ATTENTION_BLOCK +
           key % ATTENTION_BLOCK;
}

/* The keys [begin, end) of a span that a query sees which stands at one. */
__device__ inline int keys_begin(const struct attention_shape &shape, int stands) {
    return shape.window > 0 && stands >= shape.window ? stands - shape.window + 1 : 0;
}
__device__ inline int keys_end(const struct attention_shape &shape,
                               const struct attention_span &span, int stands) {
    int keys = span.k_count;
    if (shape.causal) return stands < keys && !span.mutual ? stands + 1 : keys;
    return shape.window > 0 && stands < keys - shape.window ? stands + shape.window : keys;
}

/* Whether scores are changed between the product and the softmax; such kernels are compiled for
 * themselves. */
static inline bool shape_bends(const struct attention_shape &shape) {
    return shape.softcap > 0 || shape.bias != NULL;
}

/* A score with soft-cap and bias; `distance`: the key less where the query stands. */
__device__ inline float score_bend(const struct attention_shape &shape, float score, int head,
                                   int distance) {
    if (shape.softcap > 0) score = shape.softcap * tanhf(score / shape.softcap);
    if (shape.bias == NULL) return score;
    distance = distance < -shape.reach  ? -shape.reach
               : distance > shape.reach ? shape.reach
                                        : distance;
    return score + shape.bias[head * shape.bias_stride + shape.reach + distance];
}

/* Elements [col, col + V) of a head, 0 past its end. */
template <int V>
__device__ inline lanes<V> head_load(const struct attention_shape &s, const view &t, int row,
                                     int kv_head, int col) {
    int64_t at = row * t.stride + (int64_t)kv_head * s.head_dim + col;
    if (s.vector && col + V <= s.head_dim) return lanes_load<V>(t.data, t.dtype, at);
    lanes<V> out;
    for (int j = 0; j < V; j++)
        out.at[j] = col + j < s.head_dim ? lanes_load<1>(t.data, t.dtype, at + j).at[0] : 0;
    return out;
}

/* Spans with more than one query in tiles of (query, head of the group) pairs, numbered as they lie
 * in the span: pair i is query i / group with the group's head i % group. */
struct tile_piece {
    int span, first;
};

struct tile_args {
    struct attention_shape shape;
    const struct tile_piece *pieces;
};

/* A pair sees keys [tile_first, tile_seen) of its span. */
__device__ inline int tile_stands(const struct attention_shape &shape,
                                  const struct attention_span &span, int pair) {
    return span.k_count - span.q_count + pair / shape.group;
}
__device__ inline int tile_first(const struct attention_shape &shape,
                                 const struct attention_span &span, int pair) {
    return keys_begin(shape, tile_stands(shape, span, pair));
}
__device__ inline int tile_seen(const struct attention_shape &shape,
                                const struct attention_span &span, int pair) {
    return keys_end(shape, span, tile_stands(shape, span, pair));
}

/* At least n, and the same for many n: lists of work of steps that need about as much are equal
 * (graph.cu). */
int count_pad(int n);

/* The tiles of `rows` pairs of the spans that `tensor` says attention_tensor.cu runs, or of the
 * others, on the device; n is how many. */
const struct tile_piece *tiles_list(struct backend *backend, const struct attention_args *args,
                                    int rows, bool tensor, int *n);

void attention_decode(struct backend *backend, const struct attention_args *args,
                      const struct attention_shape &shape);
void attention_tiles(struct backend *backend, const struct attention_args *args,
                     const struct attention_shape &shape);
/* Whether attention_tensor.cu is made for these heads and types, and this span with several
 * queries. */
bool attention_fits_tensor(const struct attention_args *args, const struct attention_span *span);
void attention_tensor(struct backend *backend, const struct attention_args *args,
                      const struct attention_shape &shape);
