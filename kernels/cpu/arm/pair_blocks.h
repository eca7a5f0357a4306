/* kernels/cpu/arm/pair_blocks.h: products of pairs of rows with int8, int4 and MXFP4 weights on
 * SMMLA, which multiplies two rows by two columns of eight bytes each and adds the four sums to a
 * register, or on SDOT by element; include after dots_neon.h. Sums of integers are exact, so the
 * chain of floats is that of blocks_vector.h, bit for bit.
 *
 * A few blocks of a tile are taken apart into a panel that the first-level cache holds, and all
 * rows pass over it. Sums of a row wait in y from one panel to the next. */
#pragma once

#include "kernels/cpu/arm/pair_sums.h"

enum { PANEL_BLOCKS = 32 };

/* One block of one strip. */
struct strip_block {
    int8_t values[BLOCK_OCTETS][PAIR_SUMS][2 * OCTET];
    float scales[COLUMN_NUMBERS][LANES], minimums[COLUMN_NUMBERS][LANES]; /* of int4 */
};

struct block_panel {
    struct strip_block at[TILE_STRIPS][PANEL_BLOCKS];
};

/* A quad of packed bytes, or of codes of four bits, as bytes with a sign. */
ALWAYS_INLINE uint8x16_t signed_bytes(uint8x16_t v, const enum dtype dtype) {
    return dtype == DTYPE_MXFP4 ? vsubq_u8(codes_look_up(v), vdupq_n_u8(MXFP4_LARGEST)) : v;
}

/* One strip of a packed block, whose values, scales or exponents these are. */
ALWAYS_INLINE void block_unpack(struct strip_block *to, struct packed_block from, int strip,
                                const enum dtype dtype) {
    const int loads = dtype == DTYPE_INT8 ? BLOCK_OCTETS : BLOCK_OCTETS / 2;
    const uint8_t *values = from.values + strip * STRIP_BYTES;
    UNROLLED
    for (int i = 0; i < loads; i++) {
        uint8x16_t first = load_quads(values + 2 * i * QUAD_BYTES),
                   second = load_quads(values + (2 * i + 1) * QUAD_BYTES);
        if (dtype == DTYPE_INT8) {
            octets_store(to->values[i], first, second);
            continue;
        }
        octets_store(to->values[i], signed_bytes(low_halves(first), dtype),
                     signed_bytes(low_halves(second), dtype));
        octets_store(to->values[i + loads], signed_bytes(high_halves(first), dtype),
                     signed_bytes(high_halves(second), dtype));
    }
    if (dtype == DTYPE_MXFP4)
        columns_store(to->scales, floats_load_exponents(from.exponents + strip * LANES).v);
    else
        columns_store(to->scales, floats_load_f16(from.scales + strip * LANES).v);
    if (dtype == DTYPE_INT4)
        columns_store(to->minimums, floats_load_f16(from.scales + TILE_COLUMNS + strip * LANES).v);
}

/* One block of one pair enters its sums. */
ALWAYS_INLINE void block_add(float32x4_t sums[PAIR_SUMS],
                             const int8x16_t values[BLOCK_OCTETS * PAIR_SUMS],
                             const struct pair_octets *x, struct column_numbers scales,
                             float32x4_t rows_scales, const int32_t **begins) {
    int32x4_t products[PAIR_SUMS];
    int8x16_t rows[BLOCK_OCTETS];
    products_begin(products, begins);
    octets_load(rows, x->q[0][0]);
    UNROLLED
    for (int octet = 0; octet < BLOCK_OCTETS; octet++)
        octet_multiply(products, values + octet * PAIR_SUMS, rows[octet]);
    rows_multiply(scales.at, rows_scales);
    for (int i = 0; i < PAIR_SUMS; i++)
        sums[i] = vfmaq_f32(sums[i], scales.at[i], products_end(products[i]));
}

/* `pairs` pairs meet `blocks` blocks of a strip. */
ALWAYS_INLINE void group_multiply(const struct pair_place *place, const struct strip_block *w,
                                  const char *x, const int blocks, const int pairs,
                                  const enum dtype dtype) {
    const size_t step = (size_t)pairs * pair_block_bytes(dtype);
    const int32_t *begins = sum_begins();
    struct strip_sums sums;
    group_begin(&sums, place, pairs);
    for (int block = 0; block < blocks; block++, w++, x += step) {
        const struct pair_octets *octets = (const struct pair_octets *)(const void *)x;
        const struct pair_numbers *numbers = (const struct pair_numbers *)(octets + pairs);
        const struct column_numbers scales = columns_load(w->scales);
        int8x16_t values[BLOCK_OCTETS * PAIR_SUMS];
        float32x4_t rows_scales[GROUP_PAIRS];
        UNROLLED
        for (int i = 0; i < pairs; i++) rows_scales[i] = vld1q_f32(numbers[i].both);
        UNROLLED
        for (int i = 0; i < pairs && dtype == DTYPE_INT4; i++)
            rows_add(sums.at[i], columns_load(w->minimums).at, numbers[pairs + i].both);
        for (int i = 0; i < BLOCK_OCTETS * PAIR_SUMS; i++)
            values[i] = vld1q_s8(w->values[0][0] + i * 2 * OCTET);
        UNROLLED
        for (int i = 0; i < pairs; i++)
            block_add(sums.at[i], values, octets + i, scales, rows_scales[i], &begins);
    }
    group_end(&sums, place, pairs);
}

/* All pairs pass over the panel of blocks [first, first + blocks) of a tile. */
ALWAYS_INLINE void panel_multiply(const struct pair_product *product,
                                  const struct block_panel *panel, int tile, int first,
                                  const int blocks, const enum dtype dtype) {
    const int all = (int)pair_blocks(product->args->weight);
    struct pair_place place = {
        .product = product, .first = first == 0, .last = first + blocks == all};
    for (; place.pair < product->pairs; place.pair += product->group) {
        const char *x = group_data(product, place.pair, (size_t)first);
        const int pairs = group_pairs(product, place.pair);
        for (int strip = 0; strip < TILE_STRIPS; strip++) {
            const struct strip_block *w = panel->at[strip];
            place.column = tile * TILE_COLUMNS + strip * LANES;
            if (pairs == 1) group_multiply(&place, w, x, blocks, 1, dtype);
            if (pairs == 2) group_multiply(&place, w, x, blocks, 2, dtype);
            if (pairs == 3) group_multiply(&place, w, x, blocks, 3, dtype);
            if (pairs == 4) group_multiply(&place, w, x, blocks, 4, dtype);
        }
    }
}

ALWAYS_INLINE void tiles_multiply(const struct pair_product *product, int first_tile, int n_tiles,
                                  const enum dtype dtype) {
    const struct weight *weight = product->args->weight;
    const int all = (int)pair_blocks(weight);
    struct block_panel panel;
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int first = 0, blocks; first < all; first += blocks) {
            blocks = min_int(PANEL_BLOCKS, all - first);
            for (int block = 0; block < blocks; block++) {
                const struct packed_block packed = packed_block(weight, tile, first + block);
                for (int strip = 0; strip < TILE_STRIPS; strip++)
                    block_unpack(&panel.at[strip][block], packed, strip, dtype);
            }
            panel_multiply(product, &panel, tile, first, blocks, dtype);
        }
}

ALWAYS_INLINE void pairs_vector(const struct pair_product *product, int first_tile, int n_tiles) {
    const enum dtype dtype = product->args->weight->dtype;
    if (dtype == DTYPE_INT8)
        tiles_multiply(product, first_tile, n_tiles, DTYPE_INT8);
    else if (dtype == DTYPE_MXFP4)
        tiles_multiply(product, first_tile, n_tiles, DTYPE_MXFP4);
    else
        tiles_multiply(product, first_tile, n_tiles, DTYPE_INT4);
}
