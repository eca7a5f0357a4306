/* kernels/cpu/linear_vector.h: the register-tile kernels of linear.c on `struct vec`; include after
 * a simd header.
 *
 * A kernel keeps R rows x T tiles of sums in registers, an even and an odd chain each, and streams
 * the weights past them once; or, for many rows of f32, twice as many rows and one chain at a time,
 * past which the weights come twice. R, T and the dtype are compile-time constants of each instance
 * (everything here is inlined into a switch); the arithmetic of one element is the same in all of
 * them.
 *
 * gcc keeps sums in registers only where all their loops are gone before it looks, and -O3 spoils
 * some of that again: the Makefile compiles these kernels with -O2. */
#pragma once

#include "kernels/cpu/cpu.h"

enum { MAX_ROWS = 6, MAX_TILES = 2, MAX_SUMS = 12, MANY_ROWS = 128 };

/* Where one kernel instance works: rows of x and y from `row`, tiles of the weight from `tile`,
 * which is even unless it is alone. */
struct vector_place {
    const struct linear_args *a;
    int row, tile;
};

/* The constants of an instance: the dtype, and how many pairs of sums the registers hold. */
struct shape {
    enum dtype dtype;
    int sums;
};

/* The 16 weights at depth k, or k + 1 where odd, of a tile; `at` is where it holds depth k, which
 * is even. */
ALWAYS_INLINE struct vec load_weights(const char *at, const enum dtype dtype, const bool odd) {
    if (dtype == DTYPE_BF16)
        return odd ? vec_load_bf16_odd((const uint16_t *)at)
                   : vec_load_bf16_even((const uint16_t *)at);
    if (odd) at += packed_step(dtype);
    return dtype == DTYPE_F32 ? vec_load((const float *)at) : vec_load_f16((const uint16_t *)at);
}

/* y = (even + odd) + bias for one row of one tile; columns past n_out are not written. */
ALWAYS_INLINE void store_sums(const struct vector_place *place, int r, int t, struct vec even,
                              struct vec odd) {
    const struct linear_args *args = place->a;
    int column = (place->tile + t) * TILE_COLUMNS,
        n = min_int(TILE_COLUMNS, args->weight->n_out - column);
    float *y = row_f32(args->y, place->row + r) + column;
    struct vec sum = vec_add(even, odd);
    if (n == TILE_COLUMNS) {
        if (args->bias != NULL) sum = vec_add(sum, vec_load(args->bias + column));
        vec_store(y, sum);
    } else {
        if (args->bias != NULL) sum = vec_add(sum, vec_load_n(args->bias + column, n));
        vec_store_n(y, sum, n);
    }
}

/* The place that a kernel has arrived at: an even k of the first row, and where the first tile
 * holds it. */
struct depth {
    const struct vector_place *place;
    const float *x;
    const char *weights;
};

/* The 16 weights of each tile at that depth, or at the next where odd, enter one chain of all rows.
 */
ALWAYS_INLINE void add_depth(struct vec *sums, const struct depth *at, const bool odd,
                             const int rows, const int tiles, const enum dtype dtype) {
    const struct linear_args *args = at->place->a;
    struct vec v[MAX_TILES];
    UNROLLED
    for (int t = 0; t < tiles; t++)
        v[t] =
            load_weights(at->weights + packed_tile_start(dtype, args->weight->n_in, t), dtype, odd);
    UNROLLED
    for (int r = 0; r < rows; r++) {
        struct vec value = vec_set1(at->x[r * args->x.stride + odd]);
        UNROLLED
        for (int t = 0; t < tiles; t++)
            sums[r * tiles + t] = vec_fma(value, v[t], sums[r * tiles + t]);
    }
}

/* Fetches the bytes `ahead` bytes behind two depths of each tile. Past the matrix this does
 * nothing. */
ALWAYS_INLINE void fetch_ahead(const struct vector_place *place, const char *at, size_t ahead,
                               const int tiles, const enum dtype dtype) {
    UNROLLED
    for (int t = 0; t < tiles; t++)
        for (size_t line = 0; line < 2 * TILE_COLUMNS * dtype_bytes(dtype); line += 64)
            __builtin_prefetch(
                at + packed_tile_start(dtype, place->a->weight->n_in, t) + ahead + line, 0, 2);
}

ALWAYS_INLINE void tile_kernel(const struct vector_place *place, const int rows, const int tiles,
                               const enum dtype dtype) {
    const struct weight *weight = place->a->weight;
    const size_t n_in = (size_t)weight->n_in,
                 two_depths = dtype == DTYPE_BF16 ? packed_step(dtype) : 2 * packed_step(dtype);
    struct depth at = {
        place, row_f32(place->a->x, place->row),
        (const char *)weight->data + packed_tile_start(dtype, weight->n_in, place->tile)};
    const size_t turn = dtype == DTYPE_BF16 ? 2 : (size_t)tiles; /* its tiles come in pairs */
    const size_t ahead =
        place->a->x.rows <= FEW_ROWS ? FETCH_AHEAD : turn * packed_tile_bytes(dtype, weight->n_in);
    struct vec even[MAX_SUMS], odd[MAX_SUMS];
    UNROLLED
    for (int i = 0; i < rows * tiles; i++) even[i] = odd[i] = vec_zero();
    size_t k = 0;
    for (; k + 1 < n_in; k += 2, at.x += 2, at.weights += two_depths) {
        fetch_ahead(place, at.weights, ahead, tiles, dtype);
        add_depth(even, &at, false, rows, tiles, dtype);
        add_depth(odd, &at, true, rows, tiles, dtype);
    }
    if (k < n_in) add_depth(even, &at, false, rows, tiles, dtype);
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int t = 0; t < tiles; t++)
            store_sums(place, r, t, even[r * tiles + t], odd[r * tiles + t]);
    }
}

/* Many rows: one chain after the other, so that the registers hold twice the sums and a load serves
 * more of them. Wide registers meet such rows as panels (panels.h), but for the deepest. */

/* All even depths of a place, these while the next tiles are fetched, or all odd ones. */
enum chain { CHAIN_EVEN, CHAIN_EVEN_FETCHING, CHAIN_ODD };

ALWAYS_INLINE void add_chain(struct vec *sums, const struct vector_place *place,
                             const enum chain chain, const int rows, const int tiles,
                             const enum dtype dtype) {
    const struct weight *weight = place->a->weight;
    const bool odd = chain == CHAIN_ODD;
    const size_t n_in = (size_t)weight->n_in,
                 two_depths = dtype == DTYPE_BF16 ? packed_step(dtype) : 2 * packed_step(dtype);
    const size_t ahead = (size_t)tiles * packed_tile_bytes(dtype, weight->n_in);
    struct depth at = {
        place, row_f32(place->a->x, place->row),
        (const char *)weight->data + packed_tile_start(dtype, weight->n_in, place->tile)};
    UNROLLED
    for (int i = 0; i < rows * tiles; i++) sums[i] = vec_zero();
    for (size_t k = odd; k < n_in; k += 2, at.x += 2, at.weights += two_depths) {
        if (chain == CHAIN_EVEN_FETCHING) fetch_ahead(place, at.weights, ahead, tiles, dtype);
        add_depth(sums, &at, odd, rows, tiles, dtype);
    }
}

ALWAYS_INLINE void chains_kernel(const struct vector_place *place, const bool fetches,
                                 const int rows, const int tiles, const enum dtype dtype) {
    struct vec even[VEC_SUMS], odd[VEC_SUMS];
    if (fetches)
        add_chain(even, place, CHAIN_EVEN_FETCHING, rows, tiles, dtype);
    else
        add_chain(even, place, CHAIN_EVEN, rows, tiles, dtype);
    add_chain(odd, place, CHAIN_ODD, rows, tiles, dtype);
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int t = 0; t < tiles; t++)
            store_sums(place, r, t, even[r * tiles + t], odd[r * tiles + t]);
    }
}

/* As many blocks of the most rows as there are, where there are many; how many rows these have.
 * Narrower weights gain nothing, f32 up to a third where its depth is 4096. */
ALWAYS_INLINE int chain_blocks(const struct linear_args *args, int tile, const int tiles,
                               const enum dtype dtype) {
    const int most = VEC_SUMS / tiles;
    int blocks = args->x.rows / most;
    if (dtype != DTYPE_F32 || args->x.rows < MANY_ROWS) return 0;
    for (int i = 0; i < blocks; i++)
        chains_kernel(&(struct vector_place){.a = args, .row = i * most, .tile = tile}, i == 0,
                      most, tiles, dtype);
    return blocks * most;
}

/* `rows` rows at once, of those that fit the registers with `tiles` tiles; the others are not even
 * compiled. */
ALWAYS_INLINE void kernel_rows(const struct vector_place *place, int rows, const int tiles,
                               const struct shape shape) {
    if (rows == 1 && tiles <= shape.sums) tile_kernel(place, 1, tiles, shape.dtype);
    if (rows == 2 && 2 * tiles <= shape.sums) tile_kernel(place, 2, tiles, shape.dtype);
    if (rows == 3 && 3 * tiles <= shape.sums) tile_kernel(place, 3, tiles, shape.dtype);
    if (rows == 4 && 4 * tiles <= shape.sums) tile_kernel(place, 4, tiles, shape.dtype);
    if (rows == 5 && 5 * tiles <= shape.sums) tile_kernel(place, 5, tiles, shape.dtype);
    if (rows == 6 && 6 * tiles <= shape.sums) tile_kernel(place, 6, tiles, shape.dtype);
}

ALWAYS_INLINE void run_kernel(const struct vector_place *place, int rows, int tiles,
                              const struct shape shape) {
    if (tiles == 1) kernel_rows(place, rows, 1, shape);
    if (tiles == 2 && shape.sums >= 2) kernel_rows(place, rows, 2, shape);
}

/* Rows are cut into equal blocks that fit the registers; the tiles of a turn stay in cache while
 * the blocks pass. */
ALWAYS_INLINE void linear_tiles(const struct linear_args *args, int tile, int tiles,
                                const struct shape shape) {
    int first = 0;
    if (CHAINS_ALONE && tiles == 1) first = chain_blocks(args, tile, 1, shape.dtype);
    if (CHAINS_ALONE && tiles == 2 && shape.sums >= 2)
        first = chain_blocks(args, tile, 2, shape.dtype);
    int rows = args->x.rows - first, most = min_int(MAX_ROWS, shape.sums / tiles),
        blocks = (rows + most - 1) / most;
    for (int i = 0, row = 0; i < blocks; i++) {
        int end = (int)((int64_t)rows * (i + 1) / blocks);
        run_kernel(&(struct vector_place){.a = args, .row = first + row, .tile = tile}, end - row,
                   tiles, shape);
        row = end;
    }
}

ALWAYS_INLINE void linear_shape(const struct linear_args *args, int first_tile, int n_tiles,
                                const struct shape shape) {
    int rows = args->x.rows, end = first_tile + n_tiles;
    /* One stream of few rows: a tile, of bf16 two. */
    bool pairs = rows > FEW_ROWS ? shape.sums >= 2 * MAX_ROWS
                                 : shape.dtype == DTYPE_BF16 && shape.sums >= 2 * rows;
    int tiles = pairs ? 2 : 1;
    for (int tile = first_tile; tile < end;) {
        int now = tile + tiles <= end ? tiles : 1;
        linear_tiles(args, tile, now, shape);
        tile += now;
    }
}

ALWAYS_INLINE void linear_vector(const struct linear_args *args, int first_tile, int n_tiles) {
    const int sums = VEC_SUMS / 2;
    switch (args->weight->dtype) {
        case DTYPE_F32:
            linear_shape(args, first_tile, n_tiles, (struct shape){DTYPE_F32, sums});
            break;
        case DTYPE_F16:
            linear_shape(args, first_tile, n_tiles, (struct shape){DTYPE_F16, sums});
            break;
        case DTYPE_BF16:
            linear_shape(args, first_tile, n_tiles, (struct shape){DTYPE_BF16, sums});
            break;
        default: break; /* quantised: blocks_vector.h; fp8: refused by pack */
    }
}
