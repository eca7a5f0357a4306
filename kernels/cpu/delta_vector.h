/* kernels/cpu/delta_vector.h: the rules of layers whose heads keep a matrix, on `struct vec`;
 * include after simd_avx2.h or simd_avx512.h.
 *
 * A column of the state meets no other column, so a run of columns goes through all rows before the
 * next one and stays in the first cache. A column is summed over the key's elements in two chains,
 * of even and of odd ones, whatever run it is in. */
#pragma once

#include "kernels/cpu/cpu.h"

/* Vectors of columns side by side: their chains hide each other's latency. */
enum { DELTA_VECS = 4 };

/* `n` of the 16 columns are there; 16: all. */
static inline struct vec delta_load(const float *p, int n) {
    return n == TILE_COLUMNS ? vec_load(p) : vec_load_n(p, n);
}
static inline void delta_store(float *p, struct vec v, int n) {
    if (n == TILE_COLUMNS)
        vec_store(p, v);
    else
        vec_store_n(p, v, n);
}

/* The values that `vecs` vectors of columns of the state have for k, before it decays. */
static inline __attribute__((always_inline)) void delta_find(const struct delta_rows *rows,
                                                             const float *k, const float *state,
                                                             const int vecs, const int n,
                                                             struct vec found[DELTA_VECS]) {
    struct vec even[DELTA_VECS], odd[DELTA_VECS];
    int keys = rows->key_dim, columns = rows->value_dim, i = 0;
    UNROLLED for (int c = 0; c < vecs; c++) even[c] = odd[c] = vec_zero();
    for (; i + 2 <= keys; i += 2) {
        const float *s = state + (int64_t)i * columns;
        struct vec k0 = vec_set1(k[i]), k1 = vec_set1(k[i + 1]);
        UNROLLED for (int c = 0; c < vecs; c++) {
            even[c] = vec_fma(k0, delta_load(s + c * TILE_COLUMNS, n), even[c]);
            odd[c] = vec_fma(k1, delta_load(s + columns + c * TILE_COLUMNS, n), odd[c]);
        }
    }
    if (i < keys)
        UNROLLED for (int c = 0; c < vecs; c++) even[c] =
            vec_fma(vec_set1(k[i]), delta_load(state + (int64_t)i * columns + c * TILE_COLUMNS, n),
                    even[c]);
    UNROLLED for (int c = 0; c < vecs; c++) found[c] = vec_add(even[c], odd[c]);
}

/* Row t of `vecs` vectors of columns from `first` on, of the last of which `n` are there. */
static inline __attribute__((always_inline)) void delta_step(const struct delta_rows *rows, int t,
                                                             int first, const int vecs, const int n,
                                                             const enum delta_rule rule) {
    const float *q = rows->q + t * rows->apart, *k = rows->k + t * rows->apart;
    const float *v = rows->v + t * rows->v_apart + first;
    struct vec decay = vec_set1(rows->decay[(int64_t)t * rows->heads]),
               strength = vec_set1(rows->strength[(int64_t)t * rows->heads]);
    struct vec even[DELTA_VECS], odd[DELTA_VECS], write[DELTA_VECS];
    float *state = rows->state + first;
    int keys = rows->key_dim, columns = rows->value_dim;
    if (rule == DELTA_CORRECTS) delta_find(rows, k, state, vecs, n, write);
    UNROLLED for (int c = 0; c < vecs; c++) {
        struct vec asked = delta_load(v + c * TILE_COLUMNS, n);
        if (rule == DELTA_CORRECTS) asked = vec_sub(asked, vec_mul(write[c], decay));
        write[c] = vec_mul(asked, strength);
        even[c] = odd[c] = vec_zero();
    }
    for (int i = 0; i < keys; i++) {
        float *s = state + (int64_t)i * columns;
        struct vec ki = vec_set1(k[i]), qi = vec_set1(q[i]);
        struct vec *sums = i % 2 ? odd : even;
        UNROLLED for (int c = 0; c < vecs; c++) {
            struct vec next =
                vec_fma(ki, write[c], vec_mul(delta_load(s + c * TILE_COLUMNS, n), decay));
            delta_store(s + c * TILE_COLUMNS, next, n);
            sums[c] = vec_fma(qi, next, sums[c]);
        }
    }
    float *y = rows->y + t * rows->y_apart + first;
    UNROLLED for (int c = 0; c < vecs; c++) {
        struct vec sum = vec_add(even[c], odd[c]);
        if (rule == DELTA_ADDS)
            sum = vec_fma(vec_set1(rows->skip), delta_load(v + c * TILE_COLUMNS, n), sum);
        delta_store(y + c * TILE_COLUMNS, sum, n);
    }
}

static inline __attribute__((always_inline)) void delta_columns(const struct delta_rows *rows,
                                                                const enum delta_rule rule) {
    int first = 0;
    for (; first + DELTA_VECS * TILE_COLUMNS <= rows->value_dim; first += DELTA_VECS * TILE_COLUMNS)
        for (int t = 0; t < rows->rows; t++)
            delta_step(rows, t, first, DELTA_VECS, TILE_COLUMNS, rule);
    for (; first < rows->value_dim; first += TILE_COLUMNS) {
        int n = min_int(TILE_COLUMNS, rows->value_dim - first);
        for (int t = 0; t < rows->rows; t++) {
            if (n == TILE_COLUMNS)
                delta_step(rows, t, first, 1, TILE_COLUMNS, rule);
            else
                delta_step(rows, t, first, 1, n, rule);
        }
    }
}

static inline void delta_vector(const struct delta_rows *rows) {
    if (rows->rule == DELTA_ADDS)
        delta_columns(rows, DELTA_ADDS);
    else
        delta_columns(rows, DELTA_CORRECTS);
}
