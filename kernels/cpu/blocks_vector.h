/* kernels/cpu/blocks_vector.h: the register-tile kernels of blocks.h; include after a dots header.
 *
 * A kernel takes R rows of one group and S strips, keeps an integer sum of the block and a
 * float sum of the row for each pair in registers, and streams the weights past them once. R, S and
 * the dtype are compile-time constants of each instance; the arithmetic of one element is the same
 * in all of them. */
#pragma once

#include "kernels/cpu/strips.h"
#include "kernels/cpu/variants.h"

enum {
    MOST_STRIPS = TILE_STRIPS > 2 ? TILE_STRIPS : 2, /* of a kernel */
    PASS_STRIPS = DOT_SUMS / INPUT_ROWS              /* of a kernel that takes INPUT_ROWS rows */
};

/* How many strips one group of up to FEW_ROWS rows takes at once: a tile's, or one. */
#define FEW_STRIPS(rows) (TILE_STRIPS * (rows) <= DOT_SUMS ? TILE_STRIPS : 1)

/* Whether groups of more than FEW_ROWS rows in all meet such a kernel: full passes, and what a full
 * pass leaves of the last tile. */
#define MANY_MEET(rows, strips) \
    ((rows) >= INPUT_ROWS / 2 && \
     ((strips) == PASS_STRIPS || ((strips) < PASS_STRIPS && TILE_STRIPS % PASS_STRIPS != 0)))

/* The bytes fetched while the groups of rows pass over the tiles of one turn: of tiles_of tiles
 * from `from` on, the next block after every `every` blocks. */
struct block_fetch {
    const char *from;
    size_t block;
    int every, wait;
};

/* How many tiles so many strips touch. */
ALWAYS_INLINE int tiles_of(const int strips) {
    return strips > TILE_STRIPS ? strips / TILE_STRIPS : 1;
}

/* Where one kernel instance works: the group of rows from `row` on, strips from `strip` on. */
struct block_place {
    const struct block_product *product;
    struct block_fetch *fetch;
    int row, strip;
};

/* sum + the products of a quad of weights with quad `quad` of the values x. */
ALWAYS_INLINE struct ints int8_quad_add(struct ints sum, struct quads w, const int8_t *x,
                                        int quad) {
    return int8_add(sum, w, x + quad * QUAD);
}
ALWAYS_INLINE struct ints int4_quad_add(struct ints sum, __typeof__(load_quads(NULL)) w,
                                        const int8_t *x, int quad) {
    return int4_add(sum, w, x + quad * QUAD);
}

/* The scales and values of one strip at one block. */
struct block_at {
    const uint16_t *scales;
    const uint8_t *values, *exponents; /* of MXFP4, which has no scales */
};

ALWAYS_INLINE size_t block_offset(const enum dtype dtype, size_t b) {
    if (dtype == DTYPE_MXFP4)
        return b / MXFP4_GROUP * MXFP4_GROUP_BYTES + b % MXFP4_GROUP * MXFP4_BLOCK_BYTES;
    return dtype == DTYPE_INT4 ? b * INT4_BLOCK_BYTES : (b >> 1) * INT8_PAIR_BYTES;
}

/* `tile` is where the strip's tile starts, `half` which strip of the tile it is. */
ALWAYS_INLINE struct block_at block_at(const char *tile, int half, const enum dtype dtype,
                                       size_t b) {
    size_t second = dtype == DTYPE_INT8 ? b & 1 : 0;
    const char *group = tile + b / MXFP4_GROUP * MXFP4_GROUP_BYTES;
    tile += block_offset(dtype, b);
    if (dtype == DTYPE_MXFP4)
        return (struct block_at){
            .values = (const uint8_t *)tile + LINE_BYTES + half * STRIP_BYTES,
            .exponents = (const uint8_t *)group + b % MXFP4_GROUP * TILE_COLUMNS + half * LANES};
    return (struct block_at){
        .scales = (const uint16_t *)(const void *)tile + second * TILE_COLUMNS + half * LANES,
        .values =
            (const uint8_t *)tile + LINE_BYTES + second * INT8_BLOCK_BYTES + half * STRIP_BYTES};
}

/* The compile-time constants of a kernel. */
struct kernel_form {
    int rows, strips;
    enum dtype dtype;
    bool powers; /* of int4: scales change exponents, see floats_scaled */
};

/* Sums of a kernel's rows, and of the block it is at, [row][strip]. */
struct block_sums {
    struct floats totals[DOT_SUMS];
    struct ints block[DOT_SUMS];
};

/* The scales of the strips at one block. */
struct block_scales {
    struct floats scales[MOST_STRIPS], minimums[MOST_STRIPS];
};

ALWAYS_INLINE struct block_scales scales_load(const struct block_at *at,
                                              const struct kernel_form form) {
    struct block_scales scales = {0};
    for (int s = 0; s < form.strips; s++) {
        if (form.dtype == DTYPE_MXFP4) {
            scales.scales[s] = floats_load_exponents(at[s].exponents);
            continue;
        }
        scales.scales[s] = floats_load_f16(at[s].scales);
        scales.minimums[s] =
            form.dtype == DTYPE_INT4 ? floats_load_f16(at[s].scales + TILE_COLUMNS) : floats_zero();
    }
    return scales;
}

/* The block's sums of row r enter the row's. */
ALWAYS_INLINE void add_block(struct block_sums *sums, const struct input_block *input_block,
                             const struct block_scales *scales, const int r,
                             const struct kernel_form form) {
    for (int s = 0; s < form.strips; s++) {
        struct floats *total = &sums->totals[r * form.strips + s];
        struct ints block = sums->block[r * form.strips + s];
        if (form.dtype == DTYPE_INT4) {
            block = int4_finish(block);
            *total = floats_fma(scales->minimums[s], floats_set1(input_block[r].sum), *total);
        }
        struct floats scale = form.dtype == DTYPE_MXFP4
                                  ? floats_mul(scales->scales[s], floats_set1(input_block[r].scale))
                                  : floats_scaled(scales->scales[s], input_block + r, form.powers);
        *total = floats_fma(scale, floats_of(block), *total);
    }
}

/* A block enters the rows' sums. Each row's scales follow its last products, so that the products
 * of the rows behind it keep the multipliers busy. */
ALWAYS_INLINE void block_int8(struct block_sums *sums, const struct input_block *block,
                              const struct block_at *at, const struct kernel_form form) {
    struct block_scales scales;
    struct quads w[MOST_STRIPS];
    for (int i = 0; i < form.rows * form.strips; i++)
        sums->block[i] = int8_start(block + i / form.strips);
#pragma GCC unroll 8
    for (int quad = 0; quad < BLOCK_QUADS; quad++) {
        const bool last = quad == BLOCK_QUADS - 1;
        if (last) scales = scales_load(at, form);
        for (int s = 0; s < form.strips; s++) w[s] = quads_int8(at[s].values + quad * QUAD_BYTES);
        for (int r = 0; r < form.rows; r++) {
            struct ints *sum = sums->block + r * form.strips;
            for (int s = 0; s < form.strips; s++)
                sum[s] = int8_quad_add(sum[s], w[s], block[r].q, quad);
            if (last) add_block(sums, block, &scales, r, form);
        }
    }
}

ALWAYS_INLINE void block_int4(struct block_sums *sums, const struct input_block *block,
                              const struct block_at *at, const struct kernel_form form) {
    struct block_scales scales;
    __typeof__(load_quads(NULL)) low[MOST_STRIPS], high[MOST_STRIPS];
    for (int i = 0; i < form.rows * form.strips; i++) sums->block[i] = int4_start();
#pragma GCC unroll 4
    for (int quad = 0; quad < BLOCK_QUADS / 2; quad++) {
        const bool last = quad == BLOCK_QUADS / 2 - 1;
        if (last) scales = scales_load(at, form);
        for (int s = 0; s < form.strips; s++) {
            high[s] = load_quads(at[s].values + quad * QUAD_BYTES);
            low[s] = low_halves(high[s]);
            high[s] = high_halves(high[s]);
        }
        for (int r = 0; r < form.rows; r++) {
            struct ints *sum = sums->block + r * form.strips;
            for (int s = 0; s < form.strips; s++) {
                sum[s] = int4_quad_add(sum[s], low[s], block[r].q, quad);
                sum[s] = int4_quad_add(sum[s], high[s], block[r].q, quad + BLOCK_QUADS / 2);
            }
            if (last) add_block(sums, block, &scales, r, form);
        }
    }
}

/* Codes become doubled weights, MXFP4_LARGEST too large, so without a sign; the sum starts with
 * that taken off. Four quads of at most 24 bring at most 4 * 2 * 24 * 127 = 24384 to a 16-bit sum.
 */
ALWAYS_INLINE void block_mxfp4(struct block_sums *sums, const struct input_block *block,
                               const struct block_at *at, const struct kernel_form form) {
    const int halves = BLOCK_QUADS / 2, together = halves / 2;
    struct block_scales scales;
    struct ints near[DOT_SUMS];
    __typeof__(load_quads(NULL)) low[MOST_STRIPS], high[MOST_STRIPS];
    for (int i = 0; i < form.rows * form.strips; i++)
        sums->block[i] = ints_set1(block[i / form.strips].offset);
#pragma GCC unroll 4
    for (int quad = 0; quad < halves; quad++) {
        const bool first = quad % together == 0, last = quad % together == together - 1;
        if (quad == halves - 1) scales = scales_load(at, form);
        for (int s = 0; s < form.strips; s++) {
            high[s] = load_quads(at[s].values + quad * QUAD_BYTES);
            low[s] = codes_look_up(low_halves(high[s]));
            high[s] = codes_look_up(high_halves(high[s]));
        }
        for (int r = 0; r < form.rows; r++) {
            for (int i = r * form.strips; i < (r + 1) * form.strips; i++) {
                const int s = i - r * form.strips;
                if (first) near[i] = bytes_begin(sums->block[i]);
                near[i] = int4_quad_add(near[i], low[s], block[r].q, quad);
                near[i] = int4_quad_add(near[i], high[s], block[r].q, quad + halves);
                if (last) sums->block[i] = bytes_end(sums->block[i], near[i]);
            }
            if (quad == halves - 1) add_block(sums, block, &scales, r, form);
        }
    }
}

/* Past the matrix this does nothing. */
ALWAYS_INLINE void fetch_block(struct block_fetch *fetch, size_t tile_bytes,
                               const struct kernel_form form) {
    const enum dtype dtype = form.dtype;
    const bool near = form.rows <= FEW_ROWS && form.strips == TILE_STRIPS;
    if (--fetch->wait > 0) return;
    fetch->wait = fetch->every;
    const size_t b = fetch->block++, second = dtype == DTYPE_INT8 ? b & 1 : 0;
    const bool begins = dtype == DTYPE_MXFP4 && b % MXFP4_GROUP == 0;
    const char *from =
        fetch->from + block_offset(dtype, b) + second * (LINE_BYTES + INT8_BLOCK_BYTES);
    const int lines = dtype == DTYPE_INT8    ? 9 - (int)second
                      : dtype == DTYPE_MXFP4 ? MXFP4_BLOCK_BYTES / LINE_BYTES + begins
                                             : INT4_BLOCK_BYTES / LINE_BYTES;
    if (dtype == DTYPE_MXFP4 && !begins) from += LINE_BYTES;
    for (int t = 0; t < tiles_of(form.strips); t++, from += tile_bytes)
        for (int i = 0; i < lines; i++) {
            if (near)
                __builtin_prefetch(from + i * LINE_BYTES, 0, 3);
            else
                __builtin_prefetch(from + i * LINE_BYTES, 0, 2);
        }
}

ALWAYS_INLINE void block_kernel(const struct block_place *place, const struct kernel_form form) {
    const int rows = form.rows, strips = form.strips;
    const enum dtype dtype = form.dtype;
    const struct linear_args *args = place->product->args;
    const struct weight *weight = args->weight;
    const size_t blocks = (size_t)weight->n_in / QUANTISE_BLOCK,
                 tile_bytes = packed_tile_bytes(dtype, weight->n_in);
    const struct input_block *block = group_input(place->product, place->row);
    const char *tile =
        (const char *)weight->data + (size_t)(place->strip / TILE_STRIPS) * tile_bytes;
    struct block_fetch fetch = *place->fetch;
    struct block_sums sums;
    for (int i = 0; i < rows * strips; i++) sums.totals[i] = floats_zero();
    for (size_t b = 0; b < blocks; b++, block += rows) {
        struct block_at at[MOST_STRIPS];
        for (int s = 0; s < strips; s++)
            at[s] =
                block_at(tile + (size_t)(s / TILE_STRIPS) * tile_bytes,
                         (strips < TILE_STRIPS ? place->strip % TILE_STRIPS : 0) + s % TILE_STRIPS,
                         dtype, b);
        fetch_block(&fetch, tile_bytes, form);
        if (dtype == DTYPE_INT8)
            block_int8(&sums, block, at, form);
        else if (dtype == DTYPE_MXFP4)
            block_mxfp4(&sums, block, at, form);
        else
            block_int4(&sums, block, at, form);
    }
    *place->fetch = fetch;
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            int column = (place->strip + s) * LANES, n = min_int(LANES, weight->n_out - column);
            if (n <= 0) continue;
            floats_store(row_f32(args->y, place->row + r) + column, sums.totals[r * strips + s],
                         args->bias == NULL ? NULL : args->bias + column, n);
        }
}

/* Whether there is such a kernel. Each costs the compiler time in every build and for every
 * instruction set, so there are none that no group of rows meets. */
#define BLOCK_EXISTS(rows, strips) \
    (MANY_MEET(rows, strips) || ((rows) <= FEW_ROWS && (strips) == FEW_STRIPS(rows)))

typedef void block_function(const struct block_place *place);

#define FOR_EACH_ROWS(X, ...) \
    X(__VA_ARGS__, 1) \
    X(__VA_ARGS__, 2) X(__VA_ARGS__, 3) X(__VA_ARGS__, 4) X(__VA_ARGS__, 5) X(__VA_ARGS__, 6)

/* A function of its own for each kernel: compilers take minutes over one that holds all. */
#define BLOCK_FUNCTION(type, strips, dtype, powers, rows) \
    static \
        __attribute__((noinline)) void type##_##rows##x##strips(const struct block_place *place) { \
        block_kernel(place, (struct kernel_form){rows, strips, dtype, powers}); \
    }
#define BLOCK_COLUMN(type, rows) \
    {BLOCK_EXISTS(rows, 1) ? type##_##rows##x1 : NULL, \
     BLOCK_EXISTS(rows, 2) ? type##_##rows##x2 : NULL, \
     BLOCK_EXISTS(rows, 4) ? type##_##rows##x4 : NULL},
/* The kernels of a type, by rows - 1 and by strips: 1, 2, 4. */
#define BLOCK_KERNELS(type, dtype, powers) \
    FOR_EACH_ROWS(BLOCK_FUNCTION, type, 1, dtype, powers) \
    FOR_EACH_ROWS(BLOCK_FUNCTION, type, 2, dtype, powers) \
    FOR_EACH_ROWS(BLOCK_FUNCTION, type, 4, dtype, powers) \
    static block_function *const type##_kernels[INPUT_ROWS][3] = { \
        FOR_EACH_ROWS(BLOCK_COLUMN, type)};

BLOCK_KERNELS(int8, DTYPE_INT8, false)
BLOCK_KERNELS(int4, DTYPE_INT4, false)
BLOCK_KERNELS(mxfp4, DTYPE_MXFP4, false)

/* All groups of rows pass over the same strips, which stay in cache meanwhile. */
static void strips_pass(const struct block_product *product, int strip, int strips,
                        block_function *const kernels[INPUT_ROWS][3]) {
    const struct weight *weight = product->args->weight;
    const int rows = product->args->x.rows;
    const size_t tile_bytes = packed_tile_bytes(weight->dtype, weight->n_in);
    /* Half a tile fetches half of the next. */
    const int passes = product->groups * max_int(1, TILE_STRIPS / strips);
    struct block_fetch fetch = {.every = passes, .wait = passes};
    fetch.from = (const char *)weight->data + (size_t)(strip / TILE_STRIPS) * tile_bytes;
    fetch.from += rows <= FEW_ROWS ? FETCH_AHEAD : (size_t)tiles_of(strips) * tile_bytes;
    if (strip % TILE_STRIPS != 0 && strips < TILE_STRIPS)
        fetch.block =
            (size_t)weight->n_in / QUANTISE_BLOCK * (size_t)(strip % TILE_STRIPS) / TILE_STRIPS;
    for (int row = 0; row < rows; row += group_rows(product, row)) {
        const struct block_place place = {
            .product = product, .fetch = &fetch, .row = row, .strip = strip};
        block_function *kernel = kernels[group_rows(product, row) - 1][strips / 2];
        CHECK(kernel != NULL);
        kernel(&place);
    }
}

static void tiles_pass(const struct block_product *product, int first_tile, int n_tiles,
                       block_function *const kernels[INPUT_ROWS][3]) {
    const int rows = product->args->x.rows, end = (first_tile + n_tiles) * TILE_STRIPS;
    const int most = rows <= FEW_ROWS ? FEW_STRIPS(rows) : PASS_STRIPS;
    for (int strip = first_tile * TILE_STRIPS, strips; strip < end; strip += strips) {
        strips = min_int(most, end - strip);
        strips_pass(product, strip, strips, kernels);
    }
}

static inline void blocks_vector(const struct block_product *product, int first_tile, int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_INT8: tiles_pass(product, first_tile, n_tiles, int8_kernels); break;
        case DTYPE_INT4: tiles_pass(product, first_tile, n_tiles, int4_kernels); break;
        case DTYPE_MXFP4: tiles_pass(product, first_tile, n_tiles, mxfp4_kernels); break;
        default: break; /* supers_vector.h and linear_vector.h */
    }
}
