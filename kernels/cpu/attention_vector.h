/* kernels/cpu/attention_vector.h: what attention.c describes, on `struct vec`; include after a simd
 * header.
 *
 * There are two ways. Where one row reads each key head, as in decoding, keys and values are read
 * where they are, in the order they lie there, through all heads of the piece: nothing is written
 * but scores and sums, and memory sets the pace (attention_lone.h). Where several rows read a key
 * head, some keys at a time become cells first, once for all rows, and tiles of rows and keys, or
 * of rows and columns, are held in registers (attention_tiles.h). Each sum has the same order of
 * operations both ways, and wherever a block of keys ends. */
#pragma once

#include "kernels/cpu/attention_lone.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_tiles.h"

/* Keys or values that are copied at a time. Many rows take as many as half of the room holds, the
 * other half is for turned keys, or all of it where heads are too long for these; few take four, so
 * that memory need not wait for them long. Sixteen rows of 576 columns gain 7 %, more rows 12 %. */
static inline int copy_step(const struct attention_range *range) {
    const int cells = key_cells(range->head_dim);
    const bool longer = cells > TURNED_CELLS,
               few = range->rows <= 16 && range->rows * cells <= 16 * TURNED_CELLS;
    int room = (longer ? ATTENTION_COPY : TURNED_AT) / (range->kv_heads * cells);
    room -= room % (room < TILE_COLUMNS ? 4 : TILE_COLUMNS);
    return few ? 4 : max_int(4, min_int(64, room));
}

/* How many keys are turned where they lie: they are read once, and need no copy. Values are read
 * once for every few rows, and rows of a matrix often lie in the same places of a cache, so those
 * are copied. */
ALWAYS_INLINE int keys_in_place(const struct attention_range *range, const struct key_rows *rows,
                                const bool scores, const enum dtype dtype) {
    bool fit = CELL == 1 && scores && dtype == DTYPE_F32 && range->head_dim == range->padded &&
               keys_turn(range);
    return fit ? rows->n / TILE_COLUMNS * TILE_COLUMNS : 0;
}

/* Scores of what is copied beyond the last key do no harm. */
ALWAYS_INLINE void copy_pass(const struct attention_range *range, const struct key_rows *rows,
                             const bool scores, const enum dtype dtype) {
    const int width = scores ? key_cells(range->head_dim) : range->padded,
              apart = range->kv_heads * width, step = copy_step(range);
    const int in_place = keys_in_place(range, rows, scores, dtype);
    for (int head = 0; in_place > 0 && head < range->kv_heads; head++) {
        const float *from = (const float *)(const void *)rows->data + head * range->head_dim;
        struct copied there = {from, (int)(rows->stride / sizeof(float)), in_place};
        score_copy(range, there, head * range->rows, rows->first);
    }
    for (int key = in_place; key < rows->n; key += step) {
        int n = min_int(step, rows->n - key);
        copy_width(range, rows, key, n, scores, dtype);
        for (int head = 0; head < range->kv_heads; head++) {
            struct copied copied = {range->scratch->copy + head * width, apart, n};
            if (scores)
                score_copy(range, copied, head * range->rows, rows->first + key);
            else
                mix_copy(range, copied, head * range->rows, rows->first + key);
        }
    }
}

/* Scores of some keys of the range, or the sums of their values, where one row reads each key head.
 */
ALWAYS_INLINE void lone_pass(const struct attention_range *range, const struct key_rows *rows,
                             const bool scores, const int columns, const enum dtype dtype) {
    if (scores && range->kv_heads < 4)
        score_few_heads(range, rows, columns, dtype);
    else if (scores)
        score_lone_rows(range, rows, columns, dtype);
    else
        mix_lone_rows(range, rows, columns, dtype);
}

/* The same for any number of rows and all keys, block by block. A lone row sees all keys from its
 * first on; others begin at a multiple of four keys, so that four scores that are written together
 * lie in one row. */
ALWAYS_INLINE void range_pass(const struct attention_range *range, const bool scores,
                              const enum dtype dtype) {
    const int whole = range->rows == 1 ? CELL : 4, skip = range->hidden[0] / whole * whole;
    for (int part = skip / ATTENTION_BLOCK; part * ATTENTION_BLOCK < range->keys; part++) {
        const struct key_rows rows = block_rows(range, scores ? range->k : range->v, part, skip);
        if (range->rows > 1)
            copy_pass(range, &rows, scores, dtype);
        else if (range->head_dim == 64)
            lone_pass(range, &rows, scores, 64, dtype);
        else
            lone_pass(range, &rows, scores, range->head_dim, dtype);
    }
}

ALWAYS_INLINE void any_pass(const struct attention_range *range, const bool scores) {
    switch (range->k.dtype) {
        case DTYPE_F32: range_pass(range, scores, DTYPE_F32); break;
        case DTYPE_F16: range_pass(range, scores, DTYPE_F16); break;
        case DTYPE_BF16: range_pass(range, scores, DTYPE_BF16); break;
        case DTYPE_INT8: range_pass(range, scores, DTYPE_INT8); break;
        default: break; /* weights only */
    }
}

static inline void attention_vector(const struct attention_range *range) {
    if (CELL > 1)
        for (int i = 0, cells = key_cells(range->head_dim); i < range->kv_heads * range->rows; i++)
            store_cells(range->scratch->query_pairs + i * cells,
                        range->scratch->queries + i * range->padded, range->padded);
    any_pass(range, true);
    if (range->k_scales.data)
        load_scales(range->scratch->k_scales, range, range->k_scales, range->hidden[0]);
    if (range->v_scales.data)
        load_scales(range->scratch->v_scales, range, range->v_scales, range->hidden[0]);
    soften_rows(range);
    memset(range->sums.out, 0,
           (size_t)(range->kv_heads * range->rows * range->padded) * sizeof(float));
    any_pass(range, false);
}
