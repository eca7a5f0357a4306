/* kernels/cpu/attention_lone.h: scores and sums of values where one row reads each key head;
 * include after a simd header. */
#pragma once

#include "kernels/cpu/attention_rows.h"

/* How far pairs of a key and a row that are worked on together lie apart: in bytes of keys, and in
 * rows and keys. */
struct step {
    size_t bytes;
    int rows, keys;
};

/* A key, where it lies and its number in the range, and the row whose score it makes. */
struct key_pair {
    const char *data;
    int row, key;
};

/* Scores of four pairs of a key and a row, from `first` on. */
ALWAYS_INLINE void score_four(const struct attention_range *range, struct key_pair first,
                              struct step step, const int columns, const enum dtype dtype) {
    const int cells = key_cells(columns), apart = step.rows * cells;
    const size_t size = dtype_bytes(dtype);
    const char *k = first.data;
    const float *q = query_cells(range) + first.row * cells;
    struct score_sum sums[4] = {score_zero(), score_zero(), score_zero(), score_zero()};
    int d = 0;
    for (; d + CELL_COLUMNS <= columns; d += CELL_COLUMNS)
        for (int i = 0; i < 4; i++)
            sums[i] = score_add(
                vec_load(q + i * apart + d / CELL),
                load_key_cells(k + (size_t)i * step.bytes + (size_t)d * size, CELL_COLUMNS, dtype),
                sums[i]);
    if (d < columns)
        for (int i = 0; i < 4; i++)
            sums[i] = score_add(
                vec_load(q + i * apart + d / CELL),
                load_key_cells(k + (size_t)i * step.bytes + (size_t)d * size, columns - d, dtype),
                sums[i]);
    float four[4], *scores = range->scratch->scores + first.row * ATTENTION_KEYS + first.key;
    scores_store(four, sums);
    for (int i = 0; i < 4; i++) scores[i * (step.rows * ATTENTION_KEYS + step.keys)] = four[i];
}

/* Four keys of a head go together, the last with some of those before; fewer than four, each four
 * times. */
ALWAYS_INLINE void score_few_heads(const struct attention_range *range, const struct key_rows *rows,
                                   const int columns, const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype);
    const int together = rows->n < 4 ? 1 : 4;
    const struct step step =
        rows->n < 4 ? (struct step){0} : (struct step){.bytes = rows->stride, .keys = 1};
    for (int i = 0; i < rows->n; i += together)
        for (int head = 0; head < range->kv_heads; head++) {
            int key = min_int(i, rows->n - together);
            const char *k = rows->data + (size_t)key * rows->stride + (size_t)head * head_bytes;
            for (int j = 0; j < together; j++)
                bytes_fetch(row_ahead(rows, key + j) + (size_t)head * head_bytes, head_bytes);
            score_four(range, (struct key_pair){k, head, rows->first + key}, step, columns, dtype);
        }
}

/* Four heads of a key go together, the last with some of those before. */
ALWAYS_INLINE void score_lone_rows(const struct attention_range *range, const struct key_rows *rows,
                                   const int columns, const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype);
    const struct step step = {.bytes = head_bytes, .rows = 1};
    for (int key = 0; key < rows->n; key++) {
        const char *data = rows->data + (size_t)key * rows->stride, *ahead = row_ahead(rows, key);
        for (int i = 0; i < range->kv_heads; i += 4) {
            int head = min_int(i, range->kv_heads - 4);
            bytes_fetch(ahead + (size_t)head * head_bytes, 4 * head_bytes);
            score_four(range,
                       (struct key_pair){data + (size_t)head * head_bytes, head, rows->first + key},
                       step, columns, dtype);
        }
    }
}

/* Values of one head from some column on: bytes from one to the next, the columns that are left,
 * and the keys of a cell that count. */
struct head_values {
    const char *data;
    size_t stride;
    int columns;
    enum cell_keys keys;
};

/* out += p V over `cells` cells of values, in their first 16 columns, of which n exist. */
ALWAYS_INLINE void mix_columns(float *out, const struct vec *p, struct head_values values, int n,
                               const int cells, const enum dtype dtype) {
    struct vec sum = vec_load(out);
    for (int i = 0; i < cells; i++) {
        const char *data = values.data + (size_t)(i * CELL) * values.stride;
        sum = cell_fma(p[i], load_value_cells(data, values.stride, n, values.keys, dtype), sum);
    }
    vec_store(out, sum);
}

ALWAYS_INLINE void mix_cells(float *out, const float *p, struct head_values values, const int cells,
                             const enum dtype dtype) {
    struct vec x[4];
    for (int i = 0; i < cells; i++) x[i] = vec_set1(p[i]);
    for (; values.columns >= TILE_COLUMNS; values.columns -= TILE_COLUMNS) {
        mix_columns(out, x, values, TILE_COLUMNS, cells, dtype);
        out += TILE_COLUMNS;
        values.data += TILE_COLUMNS * dtype_bytes(dtype);
    }
    if (values.columns > 0) mix_columns(out, x, values, values.columns, cells, dtype);
}

/* One cell of every head, whose first key is `key` of the rows. */
ALWAYS_INLINE void mix_lone_cell(const struct attention_range *range, const struct key_rows *rows,
                                 int key, const enum cell_keys keys, const int columns,
                                 const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype), stride = rows->stride;
    const float *p = weight_cells(range) + (rows->first + key) / CELL;
    float *out = range->sums.out;
    struct head_values values = {rows->data + (size_t)key * stride, stride, columns, keys};
    for (int head = 0; head < range->kv_heads; head++) {
        for (int i = 0; i < CELL; i++)
            bytes_fetch(row_ahead(rows, key + i) + (size_t)head * head_bytes, head_bytes);
        mix_cells(out, p, values, 1, dtype);
        out += pad_columns(columns);
        p += WEIGHT_CELLS;
        values.data += head_bytes;
    }
}

/* Where there are few heads, four keys at a time go past the sums of each. */
ALWAYS_INLINE void mix_lone_rows(const struct attention_range *range, const struct key_rows *rows,
                                 const int columns, const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype), stride = rows->stride;
    const int heads = range->kv_heads, padded = pad_columns(columns);
    const float *weights = weight_cells(range);
    int key = 0;
    if (CELL > 1 && rows->first < range->hidden[0] && rows->n >= CELL) {
        mix_lone_cell(range, rows, key, SECOND_KEY, columns, dtype);
        key = CELL;
    }
    for (; heads < 4 && key + 4 <= rows->n; key += 4)
        for (int head = 0; head < heads; head++) {
            const char *data = rows->data + (size_t)key * stride + (size_t)head * head_bytes;
            struct head_values values = {data, stride, columns, BOTH_KEYS};
            for (int i = 0; i < 4; i++)
                bytes_fetch(row_ahead(rows, key + i) + (size_t)head * head_bytes, head_bytes);
            mix_cells(range->sums.out + head * padded,
                      weights + head * WEIGHT_CELLS + (rows->first + key) / CELL, values, 4 / CELL,
                      dtype);
        }
    for (; key + CELL <= rows->n; key += CELL)
        mix_lone_cell(range, rows, key, BOTH_KEYS, columns, dtype);
    if (key < rows->n) mix_lone_cell(range, rows, key, FIRST_KEY, columns, dtype);
}
