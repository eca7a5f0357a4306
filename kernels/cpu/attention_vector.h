/* kernels/cpu/attention_vector.h: what attention.c describes, on `struct vec`; include after a simd header. Every row
 * has one order of operations, whether it is worked on alone or with three others. */
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/cpu/math_vector.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    ROWS_TOGETHER = 4,
    KEY_VECS = ATTENTION_KEYS / TILE_COLUMNS,
    /* How many vectors of keys, or of output columns, go with that many rows; a single row takes four. */
    VECS_TOGETHER = VEC_SUMS >= 16 ? 4 : 1
};

ALWAYS_INLINE struct vec load_any(const void *p, const enum dtype dtype) {
    if (dtype == DTYPE_F32) return vec_load(p);
    return dtype == DTYPE_F16 ? vec_load_f16(p) : vec_load_bf16(p);
}

ALWAYS_INLINE void load_values_dtype(float *to, struct tensor from, int head_dim, const enum dtype dtype) {
    for (int i = 0; i < from.rows; i++) {
        const char *p = row_of(from, i);
        int d = 0;
        for (; d + TILE_COLUMNS <= head_dim; d += TILE_COLUMNS, to += TILE_COLUMNS)
            vec_store(to, load_any(p + (size_t)d * dtype_bytes(dtype), dtype));
        if (d == head_dim) continue;
        uint32_t padded[TILE_COLUMNS] = {0};
        memcpy(padded, p + (size_t)d * dtype_bytes(dtype), (size_t)(head_dim - d) * dtype_bytes(dtype));
        vec_store(to, load_any(padded, dtype));
        to += TILE_COLUMNS;
    }
}

static inline void load_values_vector(float *to, struct tensor from, int head_dim) {
    switch (from.dtype) {
        case DTYPE_F32: load_values_dtype(to, from, head_dim, DTYPE_F32); break;
        case DTYPE_F16: load_values_dtype(to, from, head_dim, DTYPE_F16); break;
        case DTYPE_BF16: load_values_dtype(to, from, head_dim, DTYPE_BF16); break;
        case DTYPE_INT8:
        case DTYPE_INT4:
        case DTYPE_FP8: break; /* weights only */
    }
}

/* Eight columns of one key; the first n exist. */
ALWAYS_INLINE __m256 load_eight(const char *p, const enum dtype dtype, int n) {
    uint32_t padded[8] = {0};
    if (n < 8) p = memcpy(padded, p, (size_t)n * dtype_bytes(dtype));
    if (dtype == DTYPE_F32) return _mm256_loadu_ps((const float *)p);
    __m128i halves = _mm_loadu_si128((const __m128i *)p);
    if (dtype == DTYPE_F16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* Rows of eight become columns: pairs, then fours, then halves of the registers change places. */
ALWAYS_INLINE void transpose_eight(__m256 r[8]) {
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

ALWAYS_INLINE void load_keys_dtype(float *to, struct tensor from, int head_dim, const enum dtype dtype) {
    for (int key = 0; key < ATTENTION_KEYS; key += 8)
        for (int d = 0; d < head_dim; d += 8) {
            int n = min_int(8, head_dim - d);
            __m256 r[8];
            for (int i = 0; i < 8; i++) {
                const char *row = row_of(from, key + i);
                r[i] = key + i < from.rows ? load_eight(row + (size_t)d * dtype_bytes(dtype), dtype, n)
                                           : _mm256_setzero_ps();
            }
            transpose_eight(r);
            for (int i = 0; i < n; i++) _mm256_storeu_ps(to + (d + i) * ATTENTION_KEYS + key, r[i]);
        }
}

static inline void load_keys_vector(float *to, struct tensor from, int head_dim) {
    switch (from.dtype) {
        case DTYPE_F32: load_keys_dtype(to, from, head_dim, DTYPE_F32); break;
        case DTYPE_F16: load_keys_dtype(to, from, head_dim, DTYPE_F16); break;
        case DTYPE_BF16: load_keys_dtype(to, from, head_dim, DTYPE_BF16); break;
        case DTYPE_INT8:
        case DTYPE_INT4:
        case DTYPE_FP8: break; /* weights only */
    }
}

/* scores[row][key .. key + 16 vecs) of `rows` rows: keys side by side, one chain over d. */
ALWAYS_INLINE void score_rows(const struct attention_block *block, int first, int key, const int rows, const int vecs) {
    struct attention_scratch *s = block->scratch;
    struct vec sums[ROWS_TOGETHER * 4], k[4];
    for (int i = 0; i < rows * vecs; i++) sums[i] = vec_zero();
    const float *q = s->queries + first * block->padded;
    for (int d = 0; d < block->head_dim; d++) {
        for (int t = 0; t < vecs; t++) k[t] = vec_load(s->keys + d * ATTENTION_KEYS + key + t * TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_set1(q[r * block->padded + d]);
            for (int t = 0; t < vecs; t++) sums[r * vecs + t] = vec_fma(x, k[t], sums[r * vecs + t]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++)
            vec_store(s->scores + (first + r) * ATTENTION_KEYS + key + t * TILE_COLUMNS, sums[r * vecs + t]);
}

/* Scores of one row become e^(s - m'), and its maximum, sum and rescaling factor move on. Unseen keys become 0. */
static inline void soften_row(struct attention_scratch *s, int row) {
    float *scores = s->scores + row * ATTENTION_KEYS, before = s->largest[row];
    struct vec v[KEY_VECS], top = vec_set1(before), sum = vec_zero();
    for (int t = 0; t < KEY_VECS; t++) {
        int n = min_int(TILE_COLUMNS, max_int(0, s->visible[row] - t * TILE_COLUMNS));
        v[t] = vec_first(vec_load(scores + t * TILE_COLUMNS), n, -INFINITY);
        top = vec_max(top, v[t]);
    }
    float largest = vec_largest(top), keep[TILE_COLUMNS];
    vec_store(keep, vec_exp(vec_set1(before - largest)));
    for (int t = 0; t < KEY_VECS; t++) {
        v[t] = vec_exp(vec_sub(v[t], vec_set1(largest)));
        sum = vec_add(sum, v[t]);
        vec_store(scores + t * TILE_COLUMNS, v[t]);
    }
    s->keep[row] = keep[0];
    s->sum[row] = s->sum[row] * keep[0] + vec_sum(sum);
    s->largest[row] = largest;
}

/* out = out keep + p V in columns [d, d + 16 vecs), for rows that see the same number of keys of the block. */
ALWAYS_INLINE void mix_rows(const struct attention_block *block, int first, int d, const int rows, const int vecs) {
    struct attention_scratch *s = block->scratch;
    struct vec out[ROWS_TOGETHER * 4], v[4];
    float *outputs = s->outputs + first * block->padded + d;
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++)
            out[r * vecs + t] =
                vec_mul(vec_load(outputs + r * block->padded + t * TILE_COLUMNS), vec_set1(s->keep[first + r]));
    for (int i = 0; i < s->visible[first]; i++) {
        for (int t = 0; t < vecs; t++) v[t] = vec_load(s->values + i * block->padded + d + t * TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec p = vec_set1(s->scores[(first + r) * ATTENTION_KEYS + i]);
            for (int t = 0; t < vecs; t++) out[r * vecs + t] = vec_fma(p, v[t], out[r * vecs + t]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++) vec_store(outputs + r * block->padded + t * TILE_COLUMNS, out[r * vecs + t]);
}

/* Scores of `rows` rows against all keys of the block. */
ALWAYS_INLINE void score_block(const struct attention_block *block, int first, const int rows, const int vecs) {
    for (int key = 0; key < block->keys; key += vecs * TILE_COLUMNS) score_rows(block, first, key, rows, vecs);
}

ALWAYS_INLINE void mix_block(const struct attention_block *block, int first, const int rows, const int vecs) {
    int d = 0;
    for (; d + vecs * TILE_COLUMNS <= block->padded; d += vecs * TILE_COLUMNS) mix_rows(block, first, d, rows, vecs);
    for (; d < block->padded; d += TILE_COLUMNS) mix_rows(block, first, d, rows, 1);
}

static inline void attention_vector(const struct attention_block *block) {
    struct attention_scratch *s = block->scratch;
    int row = 0;
    for (; row + ROWS_TOGETHER <= block->rows; row += ROWS_TOGETHER)
        score_block(block, row, ROWS_TOGETHER, VECS_TOGETHER);
    for (; row < block->rows; row++) score_block(block, row, 1, 4);
    for (row = 0; row < block->rows; row++)
        if (s->visible[row] > 0) soften_row(s, row);
    for (row = 0; row < block->rows;) {
        int same = 1;
        while (same < ROWS_TOGETHER && row + same < block->rows && s->visible[row + same] == s->visible[row]) same++;
        if (s->visible[row] <= 0) {
            row++;
        } else if (same == ROWS_TOGETHER) {
            mix_block(block, row, ROWS_TOGETHER, VECS_TOGETHER);
            row += ROWS_TOGETHER;
        } else {
            mix_block(block, row++, 1, 4);
        }
    }
}
