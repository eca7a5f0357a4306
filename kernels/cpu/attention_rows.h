/* kernels/cpu/attention_rows.h: keys and values as the attention kernels read them; include after a
 * simd header.
 *
 * A cell is the part of a vector that a lane multiplies. It is a float, or, where a processor adds
 * the products of two pairs of bf16 to a lane (CELL 2), such a pair. Scores take cells of
 * neighbouring columns, sums of values take cells of neighbouring keys: key i and i + 1 of a range
 * where i is even. */
#pragma once

#include <string.h>

#include "kernels/cpu/math_vector.h"

#ifndef CELL
#define CELL 1
#define cell_fma vec_fma
static inline struct vec cells_of_columns(struct vec low, struct vec high) {
    (void)high;
    return low;
}
static inline struct vec cells_of_keys(struct vec first, struct vec second) {
    (void)second;
    return first;
}
static inline struct vec cells_keep(struct vec cells, bool second) {
    (void)second;
    return cells;
}
#endif

#ifndef SCORES_IN_FOURS
/* The running sum of one score is a vector: of cells sixteen apart. */
#define score_sum vec
#define score_zero vec_zero
#define score_add cell_fma
#define scores_store(to, sums) vec_sum_four(to, (sums)[0], (sums)[1], (sums)[2], (sums)[3])
#endif

enum {
    CELL_COLUMNS = CELL * TILE_COLUMNS,   /* columns of a vector of a key's cells */
    WEIGHT_CELLS = ATTENTION_KEYS / CELL, /* cells of the weights of a row's keys */
    KEYS_AHEAD = 8192                     /* bytes from what is read to what is fetched */
};

/* The keys of a cell that count. */
enum cell_keys { BOTH_KEYS, FIRST_KEY, SECOND_KEY };

/* Sixteen columns of which the first n exist; the others are zeros. */
ALWAYS_INLINE struct vec load_columns(const char *p, int n, const enum dtype dtype) {
    uint32_t padded[TILE_COLUMNS] = {0};
    if (n < TILE_COLUMNS) p = memcpy(padded, p, (size_t)n * dtype_bytes(dtype));
    if (dtype == DTYPE_F32) return vec_load((const float *)(const void *)p);
    if (dtype == DTYPE_INT8) return vec_load_int8((const int8_t *)p);
    return dtype == DTYPE_F16 ? vec_load_f16((const uint16_t *)(const void *)p)
                              : vec_load_bf16((const uint16_t *)(const void *)p);
}

/* Cells of a key's columns, of which the first n <= CELL_COLUMNS exist. */
ALWAYS_INLINE struct vec load_key_cells(const char *p, int n, const enum dtype dtype) {
    struct vec low = load_columns(p, min_int(n, TILE_COLUMNS), dtype), high = vec_zero();
    if (CELL == 1) return low;
    if (n > TILE_COLUMNS)
        high = load_columns(p + TILE_COLUMNS * dtype_bytes(dtype), n - TILE_COLUMNS, dtype);
    return cells_of_columns(low, high);
}

/* Cells of the values of one key, or of two that lie `stride` bytes apart, in sixteen columns of
 * which the first n exist. The key that does not count is not read. */
ALWAYS_INLINE struct vec load_value_cells(const char *p, size_t stride, int n,
                                          const enum cell_keys keys, const enum dtype dtype) {
    if (CELL == 1) return load_columns(p, n, dtype);
    struct vec first = keys == SECOND_KEY ? vec_zero() : load_columns(p, n, dtype);
    struct vec second = keys == FIRST_KEY ? vec_zero() : load_columns(p + stride, n, dtype);
    return cells_of_keys(first, second);
}

/* Cells of a key of so many columns, in whole vectors. */
static inline int key_cells(int columns) {
    return (columns + CELL_COLUMNS - 1) / CELL_COLUMNS * TILE_COLUMNS;
}

static inline int pad_columns(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
}

/* Queries [rows][key_cells(head_dim)], and weights of keys [rows][WEIGHT_CELLS]. */
static inline const float *query_cells(const struct attention_range *range) {
    return CELL == 1 ? range->scratch->queries : range->scratch->query_pairs;
}
static inline const float *weight_cells(const struct attention_range *range) {
    return CELL == 1 ? range->scratch->scores : range->scratch->weight_pairs;
}

/* to [cells] = n floats as cells; zeros, or floats behind the last, fill the last vector. */
static inline void store_cells(float *to, const float *from, int n) {
    for (int i = 0; i < n; i += CELL_COLUMNS) {
        struct vec high = i + TILE_COLUMNS < n ? vec_load(from + i + TILE_COLUMNS) : vec_zero();
        vec_store(to + i / CELL, cells_of_columns(vec_load(from + i), high));
    }
}

/* Keys, or values, of a range that lie row after row in one block. */
struct key_rows {
    const char *data; /* the first */
    const char *next; /* such that row i, from row `left` on, is at next + i * stride: it lies in
                         the next block */
    size_t stride;    /* bytes */
    int first, n;     /* number of the first in the range; how many */
    int heads;        /* key heads of a row */
    int left, ahead;  /* rows to the end of the block; rows from what is read to what is fetched */
};

/* Rows of t, which is range->k or range->v: those of the range from `skip` on that block `part` of
 * it holds. */
static inline struct key_rows block_rows(const struct attention_range *range, struct tensor t,
                                         int part, int skip) {
    size_t size = dtype_bytes(t.dtype), columns = (size_t)(range->kv_heads * range->head_dim);
    int begin = part * ATTENTION_BLOCK, from = max_int(0, skip - begin);
    struct key_rows rows = {.stride = (size_t)t.stride * size,
                            .first = begin + from,
                            .heads = range->kv_heads,
                            .left = ATTENTION_BLOCK - from};
    rows.data = row_of(t, range->starts[part] + from);
    rows.next = (const char *)row_of(t, range->starts[part + 1]) - (size_t)rows.left * rows.stride;
    rows.n = min_int(ATTENTION_BLOCK, range->keys - begin) - from;
    rows.ahead = min_int(ATTENTION_BLOCK, (int)(KEYS_AHEAD / (columns * size)) + 1);
    return rows;
}

/* The address fetched when row i is read. Past the last key this is any address, and fetching it
 * does nothing. */
static inline const char *row_ahead(const struct key_rows *rows, int i) {
    i += rows->ahead;
    return (i < rows->left ? rows->data : rows->next) + (size_t)i * rows->stride;
}

ALWAYS_INLINE void bytes_fetch(const char *p, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(p + line, 0, 3);
}
