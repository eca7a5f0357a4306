/* kernels/cpu/arm/pair_supers.h: products of pairs of rows with Q4_K, Q5_K and Q6_K weights on
 * SMMLA or SDOT, as pair_blocks.h does: the chains are those of supers_vector.h, bit for bit;
 * include after dots_neon.h.
 *
 * The minimums of a super-block, eight of six bits a column, meet the eight sums of the row's parts
 * as bytes too: sums of up to 14 bits are cut in two bytes. */
#pragma once

#include "kernels/cpu/arm/pair_sums.h"
#include "kernels/cpu/supers_unpack.h"

enum { PANEL_SUPERS = 4 };

/* One super-block of one strip. */
struct strip_super {
    int8_t values[SUPER_OCTETS][PAIR_SUMS][2 * OCTET];
    float scales[SUPER_PARTS][COLUMN_NUMBERS][LANES];
    int8_t minimums[PAIR_SUMS][2 * SUPER_BLOCKS]; /* in the order of super_input's sums */
    float minimum_scale[COLUMN_NUMBERS][LANES];
};

struct strip_panel {
    struct strip_super at[TILE_STRIPS][PANEL_SUPERS];
};

static inline int parts_of(enum dtype dtype) { return SUPER_BLOCK / super_part(dtype); }

ALWAYS_INLINE uint16x4_t minimums_narrow(words_of minimums) {
    return vreinterpret_u16_u8(vmovn_u16(vreinterpretq_u16_u32((uint32x4_t)minimums)));
}

/* As octets_store has them. */
ALWAYS_INLINE void minimums_store(int8_t to[PAIR_SUMS][2 * SUPER_BLOCKS], const words_of words[4]) {
    uint16x4_t pairs[4];
    for (int i = 0; i < 4; i++) pairs[i] = minimums_narrow(words[i]);
    if (COLUMNS_IN_TWOS) {
        const uint16x4x4_t four = {{pairs[0], pairs[1], pairs[2], pairs[3]}};
        vst4_u16((uint16_t *)(void *)to, four);
        return;
    }
    const uint16x4x2_t first = {{pairs[0], pairs[1]}}, last = {{pairs[2], pairs[3]}};
    vst2_u16((uint16_t *)(void *)to[0], first);
    vst2_u16((uint16_t *)(void *)to[1], last);
}

/* `packed` is the tile's super-block, `strip` which strip of it. */
ALWAYS_INLINE void strip_unpack(struct strip_super *to, const uint8_t *packed, int strip,
                                const enum dtype dtype) {
    struct panel_super head;
    const uint8_t *values = packed + super_head_lines(dtype) * LINE_BYTES + strip * STRIP_BYTES;
    scales_unpack(&head, packed + LINE_BYTES + strip * STRIP_BYTES,
                  (const uint16_t *)(const void *)packed + strip * LANES, dtype);
    for (int part = 0; part < parts_of(dtype); part++)
        columns_store(to->scales[part], (float32x4_t)head.scales[part]);
    if (dtype != DTYPE_Q6_K) {
        minimums_store(to->minimums, head.minimums);
        columns_store(to->minimum_scale, (float32x4_t)head.minimum_scale);
    }

    const uint8x16_t centre = vdupq_n_u8(dtype == DTYPE_Q6_K ? KQUANT_CENTRE : 0);
    for (int block = 0; block < SUPER_BLOCKS; block++) {
        UNROLLED
        for (int octet = 0; octet < BLOCK_OCTETS; octet++) {
            uint8x16_t first = (uint8x16_t)quad_unpack(values, 2 * octet, dtype),
                       second = (uint8x16_t)quad_unpack(values, 2 * octet + 1, dtype);
            octets_store(to->values[block * BLOCK_OCTETS + octet], vsubq_u8(first, centre),
                         vsubq_u8(second, centre));
        }
        values += super_block_lines(dtype) * LINE_BYTES;
    }
}

/* The share of the minimums in the sums of a pair. */
ALWAYS_INLINE void minimums_begin(float32x4_t inner[PAIR_SUMS], const struct strip_super *w,
                                  const union super_pair *x) {
    const int8x16_t minimums[PAIR_SUMS] = {vld1q_s8(w->minimums[0]), vld1q_s8(w->minimums[1])},
                    low = vld1q_s8(x->joined.low[0]), high = vld1q_s8(x->joined.high[0]);
    const struct column_numbers scales = columns_load(w->minimum_scale);
    int32x4_t sums[PAIR_SUMS];
    for (int i = 0; i < PAIR_SUMS; i++) sums[i] = vdupq_n_s32(SUM_BEGINS >> SUM_BITS);
    octet_multiply(sums, minimums, high);
    for (int i = 0; i < PAIR_SUMS; i++) sums[i] = vshlq_n_s32(sums[i], SUM_BITS);
    octet_multiply(sums, minimums, low);
    for (int i = 0; i < PAIR_SUMS; i++) inner[i] = vmulq_f32(scales.at[i], products_end(sums[i]));
}

ALWAYS_INLINE void part_multiply(int32x4_t products[PAIR_SUMS],
                                 const int8x16_t values[BLOCK_OCTETS * PAIR_SUMS], const int8_t *x,
                                 const int octets) {
    int8x16_t rows[BLOCK_OCTETS];
    if (octets == FOUR)
        octets_load(rows, x);
    else
        for (int i = 0; i < octets; i++) rows[i] = vld1q_s8(x + i * 2 * OCTET);
    for (int i = 0; i < octets; i++) octet_multiply(products, values + i * PAIR_SUMS, rows[i]);
}

/* Adds the products of a super-block before the scale of the input: parts of `octets` octets. */
ALWAYS_INLINE void parts_add(struct strip_sums *inner, const struct strip_super *w,
                             const union super_pair *x, const int pairs, const int octets) {
    const int32_t *begins = sum_begins();
    for (int part = 0; part < SUPER_OCTETS / octets; part++) {
        int8x16_t values[BLOCK_OCTETS * PAIR_SUMS];
        for (int i = 0; i < octets * PAIR_SUMS; i++)
            values[i] = vld1q_s8(w->values[part * octets][0] + i * 2 * OCTET);
        const struct column_numbers scales = columns_load(w->scales[part]);
        UNROLLED
        for (int pair = 0; pair < pairs; pair++) {
            int32x4_t products[PAIR_SUMS];
            products_begin(products, &begins);
            part_multiply(products, values, x[pair].joined.q[part * octets][0], octets);
            for (int i = 0; i < PAIR_SUMS; i++) {
                float32x4_t *sum = &inner->at[pair][i];
                *sum = vfmaq_f32(*sum, scales.at[i], products_end(products[i]));
            }
        }
    }
}

ALWAYS_INLINE void group_multiply(const struct pair_place *place, const struct strip_super *w,
                                  const union super_pair *x, const int supers, const int pairs,
                                  const enum dtype dtype) {
    struct strip_sums sums;
    group_begin(&sums, place, pairs);
    for (int super = 0; super < supers; super++, w++, x += pairs) {
        struct strip_sums inner;
        UNROLLED
        for (int i = 0; i < pairs; i++) {
            inner.at[i][0] = inner.at[i][1] = vdupq_n_f32(0);
            if (dtype != DTYPE_Q6_K) minimums_begin(inner.at[i], w, x + i);
        }
        parts_add(&inner, w, x, pairs, super_part(dtype) / OCTET);
        UNROLLED
        for (int i = 0; i < pairs; i++) rows_add(sums.at[i], inner.at[i], x[i].joined.scales);
    }
    group_end(&sums, place, pairs);
}

/* All pairs pass over the panel of super-blocks [first, first + supers) of a tile. */
ALWAYS_INLINE void panel_multiply(const struct pair_product *product,
                                  const struct strip_panel *panel, int tile, int first,
                                  const int supers, const enum dtype dtype) {
    const int all = (int)pair_blocks(product->args->weight);
    struct pair_place place = {
        .product = product, .first = first == 0, .last = first + supers == all};
    for (; place.pair < product->pairs; place.pair += product->group) {
        const union super_pair *x = pair_data(product, place.pair, (size_t)first);
        const int pairs = group_pairs(product, place.pair);
        for (int strip = 0; strip < TILE_STRIPS; strip++) {
            const struct strip_super *w = panel->at[strip];
            place.column = tile * TILE_COLUMNS + strip * LANES;
            if (pairs == 1) group_multiply(&place, w, x, supers, 1, dtype);
            if (pairs == 2) group_multiply(&place, w, x, supers, 2, dtype);
            if (pairs == 3) group_multiply(&place, w, x, supers, 3, dtype);
            if (pairs == 4) group_multiply(&place, w, x, supers, 4, dtype);
        }
    }
}

ALWAYS_INLINE void tiles_multiply(const struct pair_product *product, int first_tile, int n_tiles,
                                  const enum dtype dtype) {
    const struct weight *weight = product->args->weight;
    const int all = (int)pair_blocks(weight);
    struct strip_panel panel;
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int first = 0, supers; first < all; first += supers) {
            supers = min_int(PANEL_SUPERS, all - first);
            for (int super = 0; super < supers; super++)
                for (int strip = 0; strip < TILE_STRIPS; strip++)
                    strip_unpack(&panel.at[strip][super],
                                 packed_super(weight, tile, (size_t)(first + super)), strip, dtype);
            panel_multiply(product, &panel, tile, first, supers, dtype);
        }
}

ALWAYS_INLINE void super_pairs_vector(const struct pair_product *product, int first_tile,
                                      int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_Q4_K: tiles_multiply(product, first_tile, n_tiles, DTYPE_Q4_K); break;
        case DTYPE_Q5_K: tiles_multiply(product, first_tile, n_tiles, DTYPE_Q5_K); break;
        case DTYPE_Q6_K: tiles_multiply(product, first_tile, n_tiles, DTYPE_Q6_K); break;
        default: break; /* pair_blocks.h */
    }
}
