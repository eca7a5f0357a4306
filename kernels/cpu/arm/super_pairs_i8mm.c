/* kernels/cpu/arm/super_pairs_i8mm.c: products of pairs of rows with Q4_K, Q5_K and Q6_K weights on
 * SMMLA, as pairs_i8mm.c does: the chains are those of supers_vector.h, bit for bit.
 *
 * The minimums of a super-block, eight of six bits a column, meet the eight sums of the row's parts
 * in SMMLA too: sums of up to 14 bits are cut in two bytes. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/blocks_vector.h"
#include "kernels/cpu/supers_unpack.h"
#include "kernels/cpu/variants.h"

#include "kernels/cpu/arm/pair_sums.h"

enum { PANEL_SUPERS = 2 };

/* One super-block of one strip. */
struct strip_super {
    int8_t values[SUPER_OCTETS][STRIP_TWOS][2 * OCTET];
    float scales[SUPER_PARTS][STRIP_TWOS][LANES];
    int8_t minimums[STRIP_TWOS][2 * SUPER_BLOCKS]; /* in the order of super_input's sums */
    float minimum_scale[STRIP_TWOS][LANES];
};

struct strip_panel {
    struct strip_super at[TILE_STRIPS][PANEL_SUPERS];
};

static inline int parts_of(enum dtype dtype) { return SUPER_BLOCK / super_part(dtype); }

ALWAYS_INLINE uint16x4_t minimums_narrow(words_of minimums) {
    return vreinterpret_u16_u8(vmovn_u16(vreinterpretq_u16_u32((uint32x4_t)minimums)));
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
        const uint16x4x4_t minimums = {
            {minimums_narrow(head.minimums[0]), minimums_narrow(head.minimums[1]),
             minimums_narrow(head.minimums[2]), minimums_narrow(head.minimums[3])}};
        vst4_u16((uint16_t *)(void *)to->minimums, minimums);
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
ALWAYS_INLINE void minimums_begin(float32x4_t inner[STRIP_TWOS], const struct strip_super *w,
                                  const union super_pair *x) {
    int8x16_t low = vld1q_s8(x->joined.low[0]), high = vld1q_s8(x->joined.high[0]);
    for (int two = 0; two < STRIP_TWOS; two++) {
        int8x16_t minimums = vld1q_s8(w->minimums[two]);
        int32x4_t sum = vmmlaq_s32(vdupq_n_s32(SUM_BEGINS >> SUM_BITS), minimums, high);
        sum = vmmlaq_s32(vshlq_n_s32(sum, SUM_BITS), minimums, low);
        inner[two] = vmulq_f32(vld1q_f32(w->minimum_scale[two]), products_end(sum));
    }
}

/* Adds the products of a super-block before the scale of the input: parts of `octets` octets. */
ALWAYS_INLINE void parts_add(struct strip_sums *inner, const struct strip_super *w,
                             const union super_pair *x, const int pairs, const int octets) {
    for (int part = 0; part < SUPER_OCTETS / octets; part++) {
        int8x16_t values[BLOCK_OCTETS][STRIP_TWOS];
        for (int i = 0; i < octets; i++)
            for (int two = 0; two < STRIP_TWOS; two++)
                values[i][two] = vld1q_s8(w->values[part * octets + i][two]);
        UNROLLED
        for (int pair = 0; pair < pairs; pair++) {
            int32x4_t products[STRIP_TWOS] = {vdupq_n_s32(SUM_BEGINS), vdupq_n_s32(SUM_BEGINS)};
            for (int i = 0; i < octets; i++) {
                int8x16_t rows = vld1q_s8(x[pair].joined.q[part * octets + i][0]);
                for (int two = 0; two < STRIP_TWOS; two++)
                    products[two] = vmmlaq_s32(products[two], values[i][two], rows);
            }
            for (int two = 0; two < STRIP_TWOS; two++) {
                float32x4_t *sum = &inner->at[pair][two];
                *sum =
                    vfmaq_f32(*sum, vld1q_f32(w->scales[part][two]), products_end(products[two]));
            }
        }
    }
}

ALWAYS_INLINE void group_multiply(const struct pair_place *place, const struct strip_super *w,
                                  const union super_pair *x, const int supers, const int pairs,
                                  const enum dtype dtype) {
    struct strip_sums sums;
    UNROLLED
    for (int i = 0; i < pairs; i++) sums_begin(sums.at[i], place, i);
    for (int super = 0; super < supers; super++, w++, x += pairs) {
        struct strip_sums inner;
        UNROLLED
        for (int i = 0; i < pairs; i++) {
            inner.at[i][0] = inner.at[i][1] = vdupq_n_f32(0);
            if (dtype != DTYPE_Q6_K) minimums_begin(inner.at[i], w, x + i);
        }
        parts_add(&inner, w, x, pairs, super_part(dtype) / OCTET);
        UNROLLED
        for (int i = 0; i < pairs; i++)
            for (int two = 0; two < STRIP_TWOS; two++)
                sums.at[i][two] =
                    vfmaq_f32(sums.at[i][two], rows_load(x[i].joined.scales), inner.at[i][two]);
    }
    UNROLLED
    for (int i = 0; i < pairs; i++) sums_end(sums.at[i], place, i);
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

void super_pairs_i8mm(const struct pair_product *product, int first_tile, int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_Q4_K: tiles_multiply(product, first_tile, n_tiles, DTYPE_Q4_K); break;
        case DTYPE_Q5_K: tiles_multiply(product, first_tile, n_tiles, DTYPE_Q5_K); break;
        case DTYPE_Q6_K: tiles_multiply(product, first_tile, n_tiles, DTYPE_Q6_K); break;
        default: break; /* pairs_i8mm.c */
    }
}
