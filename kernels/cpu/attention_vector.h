/* kernels/cpu/attention_vector.h: what attention.c describes, on `struct vec`; include after a simd header. Every row
 * has one order of operations, whether it is worked on alone or with three others. */
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/cpu/math_vector.h"

enum { ROWS_TOGETHER = 4 };

static inline struct vec load_any(const void *p, enum dtype dtype) {
    if (dtype == DTYPE_F32) return vec_load(p);
    return dtype == DTYPE_F16 ? vec_load_f16(p) : vec_load_bf16(p);
}

/* 16 elements of which the first n exist, the rest zeros. */
static inline struct vec load_part(const void *p, enum dtype dtype, int n) {
    uint32_t padded[TILE_COLUMNS] = {0};
    memcpy(padded, p, (size_t)n * dtype_bytes(dtype));
    return load_any(padded, dtype);
}

static inline void load_values_vector(float *to, struct tensor from, int head_dim) {
    size_t size = dtype_bytes(from.dtype);
    for (int i = 0; i < from.rows; i++) {
        const char *row = row_of(from, i);
        for (int d = 0; d < head_dim; d += TILE_COLUMNS, to += TILE_COLUMNS) {
            const char *p = row + (size_t)d * size;
            int n = head_dim - d;
            vec_store(to, n >= TILE_COLUMNS ? load_any(p, from.dtype) : load_part(p, from.dtype, n));
        }
    }
}

static inline void load_keys_vector(float *to, struct tensor from, int head_dim) {
    size_t size = dtype_bytes(from.dtype);
    float lanes[TILE_COLUMNS];
    for (int i = 0; i < ATTENTION_KEYS; i++)
        for (int d = 0; d < head_dim; d += TILE_COLUMNS) {
            int n = min_int(TILE_COLUMNS, head_dim - d);
            struct vec v = vec_zero();
            if (i < from.rows) v = load_part((const char *)row_of(from, i) + (size_t)d * size, from.dtype, n);
            vec_store(lanes, v);
            for (int j = 0; j < n; j++) to[(d + j) * ATTENTION_KEYS + i] = lanes[j];
        }
}

/* scores[row][0..32) for `rows` rows: 32 keys side by side, one chain over d. */
static inline __attribute__((always_inline)) void score_rows(const struct attention_block *block, int first,
                                                             const int rows) {
    struct attention_scratch *s = block->scratch;
    struct vec low[ROWS_TOGETHER], high[ROWS_TOGETHER];
    for (int r = 0; r < rows; r++) low[r] = high[r] = vec_zero();
    const float *q = s->queries + first * block->padded;
    for (int d = 0; d < block->head_dim; d++) {
        struct vec k0 = vec_load(s->keys + d * ATTENTION_KEYS);
        struct vec k1 = vec_load(s->keys + d * ATTENTION_KEYS + TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_set1(q[r * block->padded + d]);
            low[r] = vec_fma(x, k0, low[r]);
            high[r] = vec_fma(x, k1, high[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        vec_store(s->scores + (first + r) * ATTENTION_KEYS, low[r]);
        vec_store(s->scores + (first + r) * ATTENTION_KEYS + TILE_COLUMNS, high[r]);
    }
}

/* Scores of one row become e^(s - m'), and its maximum, sum and rescaling factor move on. Unseen keys become 0. */
static inline void soften_row(struct attention_scratch *s, int row) {
    float *scores = s->scores + row * ATTENTION_KEYS;
    int n = s->visible[row];
    struct vec low = vec_first(vec_load(scores), min_int(n, TILE_COLUMNS), -INFINITY);
    struct vec high = vec_first(vec_load(scores + TILE_COLUMNS), max_int(n - TILE_COLUMNS, 0), -INFINITY);
    float before = s->largest[row], block = vec_largest(vec_max(low, high)), largest = block > before ? block : before;
    struct vec shift = vec_set1(largest), step = vec_exp(vec_set1(before - largest));
    low = vec_exp(vec_sub(low, shift));
    high = vec_exp(vec_sub(high, shift));
    float keep[TILE_COLUMNS];
    vec_store(keep, step);
    vec_store(scores, low);
    vec_store(scores + TILE_COLUMNS, high);
    s->keep[row] = keep[0];
    s->sum[row] = s->sum[row] * keep[0] + vec_sum(vec_add(low, high));
    s->largest[row] = largest;
}

/* out = out keep + p V for rows that see the same number of keys of the block. */
static inline __attribute__((always_inline)) void mix_rows(const struct attention_block *block, int first,
                                                           const int rows) {
    struct attention_scratch *s = block->scratch;
    int n = s->visible[first];
    for (int d = 0; d < block->padded; d += TILE_COLUMNS) {
        struct vec out[ROWS_TOGETHER];
        for (int r = 0; r < rows; r++)
            out[r] = vec_mul(vec_load(s->outputs + (first + r) * block->padded + d), vec_set1(s->keep[first + r]));
        for (int i = 0; i < n; i++) {
            struct vec v = vec_load(s->values + i * block->padded + d);
            for (int r = 0; r < rows; r++)
                out[r] = vec_fma(vec_set1(s->scores[(first + r) * ATTENTION_KEYS + i]), v, out[r]);
        }
        for (int r = 0; r < rows; r++) vec_store(s->outputs + (first + r) * block->padded + d, out[r]);
    }
}

static inline void attention_vector(const struct attention_block *block) {
    struct attention_scratch *s = block->scratch;
    int row = 0;
    for (; row + ROWS_TOGETHER <= block->rows; row += ROWS_TOGETHER) score_rows(block, row, ROWS_TOGETHER);
    for (; row < block->rows; row++) score_rows(block, row, 1);
    for (row = 0; row < block->rows; row++)
        if (s->visible[row] > 0) soften_row(s, row);
    for (row = 0; row < block->rows;) {
        int same = 1;
        while (same < ROWS_TOGETHER && row + same < block->rows && s->visible[row + same] == s->visible[row]) same++;
        if (s->visible[row] <= 0) {
            row++;
        } else if (same == ROWS_TOGETHER) {
            mix_rows(block, row, ROWS_TOGETHER);
            row += ROWS_TOGETHER;
        } else {
            mix_rows(block, row++, 1);
        }
    }
}
