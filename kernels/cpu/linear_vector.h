/* kernels/cpu/linear_vector.h: the register-tile kernels of linear.c on `struct vec`; include after a simd header.
 *
 * A kernel keeps R rows x T tiles of sums in registers, an even and an odd chain each, and streams the weights past
 * them once. R, T and the dtype are compile-time constants of each instance (everything here is inlined into a switch);
 * the arithmetic of one element is the same in all of them. */
#pragma once

#include "kernels/cpu/cpu.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { MAX_ROWS = 6, MAX_TILES = 2, MAX_SUMS = 12 };

/* Where one kernel instance works: rows of x and y from `row`, tiles of the weight from `tile`. */
struct place {
    const struct linear_args *a;
    int row, tile;
};

/* What an instance is compiled for: the dtype, and how many pairs of sums the registers hold. */
struct shape {
    enum dtype dtype;
    int sums;
};

/* The 16 weights at depth k of the tile that starts at `tile`. */
ALWAYS_INLINE struct vec load_weights(const char *tile, const enum dtype dtype, size_t k, const bool odd) {
    if (dtype == DTYPE_F32) return vec_load((const float *)tile + k * TILE_COLUMNS);
    if (dtype == DTYPE_F16) return vec_load_f16((const uint16_t *)tile + k * TILE_COLUMNS);
    const uint16_t *pairs = (const uint16_t *)tile + (k - odd) * TILE_COLUMNS;
    return odd ? vec_load_bf16_odd(pairs) : vec_load_bf16_even(pairs);
}

/* What lies `ahead` bytes behind depth k of each tile is fetched, for a few rows into the first-level cache. Past the
 * matrix it does nothing. */
ALWAYS_INLINE void prefetch_weights(const char *weights, size_t tile_bytes, size_t ahead, const int tiles,
                                    const bool few, const size_t bytes) {
    for (int t = 0; t < tiles; t++)
        for (size_t at = 0; at < bytes; at += 64) {
            if (few)
                _mm_prefetch(weights + (size_t)t * tile_bytes + ahead + at, _MM_HINT_T0);
            else
                _mm_prefetch(weights + (size_t)t * tile_bytes + ahead + at, _MM_HINT_T1);
        }
}

/* y = (even + odd) + bias for one row of one tile; columns past n_out are not written. */
ALWAYS_INLINE void store_sums(const struct place *p, int r, int t, struct vec even, struct vec odd) {
    const struct linear_args *a = p->a;
    int column = (p->tile + t) * TILE_COLUMNS, n = min_int(TILE_COLUMNS, a->weight->n_out - column);
    float *y = row_f32(a->y, p->row + r) + column;
    struct vec sum = vec_add(even, odd);
    if (n == TILE_COLUMNS) {
        if (a->bias != NULL) sum = vec_add(sum, vec_load(a->bias + column));
        vec_store(y, sum);
    } else {
        if (a->bias != NULL) sum = vec_add(sum, vec_load_n(a->bias + column, n));
        vec_store_n(y, sum, n);
    }
}

ALWAYS_INLINE void kernel(const struct place *p, const int rows, const int tiles, const enum dtype dtype) {
    const struct weight *w = p->a->weight;
    const size_t n_in = (size_t)w->n_in, tile_bytes = packed_depth(dtype, w->n_in) * TILE_COLUMNS * dtype_bytes(dtype);
    const char *weights = (const char *)w->data + (size_t)p->tile * tile_bytes;
    const float *x = row_f32(p->a->x, p->row);
    const size_t stride = (size_t)p->a->x.stride;
    const size_t column_bytes = TILE_COLUMNS * dtype_bytes(dtype);
    const bool few = rows <= FEW_ROWS && tiles == 1;
    const size_t ahead = few ? FETCH_AHEAD : (size_t)tiles * tile_bytes;
    struct vec even[MAX_SUMS], odd[MAX_SUMS], v[MAX_TILES];
    for (int i = 0; i < rows * tiles; i++) even[i] = odd[i] = vec_zero();
    size_t k = 0;
    for (; k + 1 < n_in; k += 2) {
        prefetch_weights(weights + k * column_bytes, tile_bytes, ahead, tiles, few, 2 * column_bytes);
        for (int t = 0; t < tiles; t++) v[t] = load_weights(weights + (size_t)t * tile_bytes, dtype, k, false);
        for (int r = 0; r < rows; r++) {
            struct vec value = vec_set1(x[(size_t)r * stride + k]);
            for (int t = 0; t < tiles; t++) even[r * tiles + t] = vec_fma(value, v[t], even[r * tiles + t]);
        }
        for (int t = 0; t < tiles; t++) v[t] = load_weights(weights + (size_t)t * tile_bytes, dtype, k + 1, true);
        for (int r = 0; r < rows; r++) {
            struct vec value = vec_set1(x[(size_t)r * stride + k + 1]);
            for (int t = 0; t < tiles; t++) odd[r * tiles + t] = vec_fma(value, v[t], odd[r * tiles + t]);
        }
    }
    if (k < n_in) {
        for (int t = 0; t < tiles; t++) v[t] = load_weights(weights + (size_t)t * tile_bytes, dtype, k, false);
        for (int r = 0; r < rows; r++)
            for (int t = 0; t < tiles; t++)
                even[r * tiles + t] = vec_fma(vec_set1(x[(size_t)r * stride + k]), v[t], even[r * tiles + t]);
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tiles; t++) store_sums(p, r, t, even[r * tiles + t], odd[r * tiles + t]);
}

/* `rows` rows at once, of those that fit the registers with `tiles` tiles; the others are not even compiled. */
ALWAYS_INLINE void kernel_rows(const struct place *p, int rows, const int tiles, const struct shape shape) {
    if (rows == 1 && tiles <= shape.sums) kernel(p, 1, tiles, shape.dtype);
    if (rows == 2 && 2 * tiles <= shape.sums) kernel(p, 2, tiles, shape.dtype);
    if (rows == 3 && 3 * tiles <= shape.sums) kernel(p, 3, tiles, shape.dtype);
    if (rows == 4 && 4 * tiles <= shape.sums) kernel(p, 4, tiles, shape.dtype);
    if (rows == 5 && 5 * tiles <= shape.sums) kernel(p, 5, tiles, shape.dtype);
    if (rows == 6 && 6 * tiles <= shape.sums) kernel(p, 6, tiles, shape.dtype);
}

ALWAYS_INLINE void run_kernel(const struct place *p, int rows, int tiles, const struct shape shape) {
    if (tiles == 1) kernel_rows(p, rows, 1, shape);
    if (tiles == 2 && shape.sums >= 2) kernel_rows(p, rows, 2, shape);
}

/* Rows are cut into equal blocks that fit the registers; the tiles of a turn stay in cache while the blocks pass. */
ALWAYS_INLINE void linear_tiles(const struct linear_args *a, int tile, int tiles, const struct shape shape) {
    int rows = a->x.rows, most = min_int(MAX_ROWS, shape.sums / tiles), blocks = (rows + most - 1) / most;
    for (int i = 0, row = 0; i < blocks; i++) {
        int end = (int)((int64_t)rows * (i + 1) / blocks);
        run_kernel(&(struct place){.a = a, .row = row, .tile = tile}, end - row, tiles, shape);
        row = end;
    }
}

ALWAYS_INLINE void linear_shape(const struct linear_args *a, int first_tile, int n_tiles, const struct shape shape) {
    int rows = a->x.rows, end = first_tile + n_tiles;
    int tiles = rows > FEW_ROWS && shape.sums >= 2 * MAX_ROWS ? 2 : 1;
    for (int tile = first_tile; tile < end;) {
        int now = tile + tiles <= end ? tiles : 1;
        linear_tiles(a, tile, now, shape);
        tile += now;
    }
}

ALWAYS_INLINE void linear_vector(const struct linear_args *a, int first_tile, int n_tiles) {
    const int sums = VEC_SUMS / 2;
    switch (a->weight->dtype) {
        case DTYPE_F32: linear_shape(a, first_tile, n_tiles, (struct shape){DTYPE_F32, sums}); break;
        case DTYPE_F16: linear_shape(a, first_tile, n_tiles, (struct shape){DTYPE_F16, sums}); break;
        case DTYPE_BF16: linear_shape(a, first_tile, n_tiles, (struct shape){DTYPE_BF16, sums}); break;
        case DTYPE_INT8:
        case DTYPE_INT4: break; /* blocks_vector.h */
    }
}
