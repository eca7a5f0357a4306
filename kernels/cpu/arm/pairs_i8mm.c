/* kernels/cpu/arm/pairs_i8mm.c: products of pairs of rows with int8, int4 and MXFP4 weights on
 * SMMLA, which multiplies two rows by two columns of eight bytes each and adds the four sums to a
 * register. Sums of integers are exact, so the chain of floats is that of blocks_vector.h, bit for
 * bit.
 *
 * A few blocks of a tile are taken apart into a panel that the first-level cache holds, and all
 * rows pass over it. Sums of a row wait in y from one panel to the next. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/blocks_vector.h"
#include "kernels/cpu/variants.h"

#include "kernels/cpu/arm/pair_sums.h"

enum { PANEL_BLOCKS = 16 };

/* One block of one strip. */
struct strip_block {
    int8_t values[BLOCK_OCTETS][STRIP_TWOS][2 * OCTET];
    float scales[STRIP_TWOS][LANES], minimums[STRIP_TWOS][LANES]; /* minimums: of int4 only */
};

struct block_panel {
    struct strip_block at[TILE_STRIPS][PANEL_BLOCKS];
};

/* Numbers that codes and packed bytes stand for. */
ALWAYS_INLINE uint8x16_t signed_bytes(uint8x16_t v, const enum dtype dtype) {
    if (dtype == DTYPE_INT8) return veorq_u8(v, vdupq_n_u8(INT8_OFFSET));
    if (dtype == DTYPE_MXFP4) return vsubq_u8(codes_look_up(v), vdupq_n_u8(MXFP4_LARGEST));
    return v;
}

ALWAYS_INLINE void block_unpack(struct strip_block *to, const struct block_at *at,
                                const enum dtype dtype) {
    const int loads = dtype == DTYPE_INT8 ? BLOCK_OCTETS : BLOCK_OCTETS / 2;
    UNROLLED
    for (int i = 0; i < loads; i++) {
        uint8x16_t first = load_quads(at->values + 2 * i * QUAD_BYTES),
                   second = load_quads(at->values + (2 * i + 1) * QUAD_BYTES);
        if (dtype == DTYPE_INT8) {
            octets_store(to->values[i], signed_bytes(first, dtype), signed_bytes(second, dtype));
            continue;
        }
        octets_store(to->values[i], signed_bytes(low_halves(first), dtype),
                     signed_bytes(low_halves(second), dtype));
        octets_store(to->values[i + loads], signed_bytes(high_halves(first), dtype),
                     signed_bytes(high_halves(second), dtype));
    }
    if (dtype == DTYPE_MXFP4)
        columns_store(to->scales, floats_load_exponents(at->exponents).v);
    else
        columns_store(to->scales, floats_load_f16(at->scales).v);
    if (dtype == DTYPE_INT4)
        columns_store(to->minimums, floats_load_f16(at->scales + TILE_COLUMNS).v);
}

/* One block of one pair enters its sums. */
ALWAYS_INLINE void block_add(float32x4_t sums[STRIP_TWOS], const struct strip_block *w,
                             int8x16_t values[BLOCK_OCTETS][STRIP_TWOS], const union block_pair *x,
                             const enum dtype dtype) {
    int32x4_t products[STRIP_TWOS] = {vdupq_n_s32(SUM_BEGINS), vdupq_n_s32(SUM_BEGINS)};
    for (int octet = 0; octet < BLOCK_OCTETS; octet++) {
        int8x16_t rows = vld1q_s8(x->joined.q[octet][0]);
        for (int two = 0; two < STRIP_TWOS; two++)
            products[two] = vmmlaq_s32(products[two], values[octet][two], rows);
    }
    float32x4_t x_scales = rows_load(x->joined.scales);
    for (int two = 0; two < STRIP_TWOS; two++) {
        if (dtype == DTYPE_INT4)
            sums[two] =
                vfmaq_f32(sums[two], vld1q_f32(w->minimums[two]), rows_load(x->joined.sums));
        float32x4_t scales = vmulq_f32(vld1q_f32(w->scales[two]), x_scales);
        sums[two] = vfmaq_f32(sums[two], scales, products_end(products[two]));
    }
}

/* `pairs` pairs meet `blocks` blocks of a strip. */
ALWAYS_INLINE void group_multiply(const struct pair_place *place, const struct strip_block *w,
                                  const union block_pair *x, const int blocks, const int pairs,
                                  const enum dtype dtype) {
    struct strip_sums sums;
    UNROLLED
    for (int i = 0; i < pairs; i++) sums_begin(sums.at[i], place, i);
    for (int block = 0; block < blocks; block++, w++, x += pairs) {
        int8x16_t values[BLOCK_OCTETS][STRIP_TWOS];
        for (int octet = 0; octet < BLOCK_OCTETS; octet++)
            for (int two = 0; two < STRIP_TWOS; two++)
                values[octet][two] = vld1q_s8(w->values[octet][two]);
        UNROLLED
        for (int i = 0; i < pairs; i++) block_add(sums.at[i], w, values, x + i, dtype);
    }
    UNROLLED
    for (int i = 0; i < pairs; i++) sums_end(sums.at[i], place, i);
}

/* All pairs pass over the panel of blocks [first, first + blocks) of a tile. */
ALWAYS_INLINE void panel_multiply(const struct pair_product *product,
                                  const struct block_panel *panel, int tile, int first,
                                  const int blocks, const enum dtype dtype) {
    const int all = (int)pair_blocks(product->args->weight);
    struct pair_place place = {
        .product = product, .first = first == 0, .last = first + blocks == all};
    for (; place.pair < product->pairs; place.pair += product->group) {
        const union block_pair *x = pair_data(product, place.pair, (size_t)first);
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
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++) {
        const char *packed =
            (const char *)weight->data + (size_t)tile * packed_tile_bytes(dtype, weight->n_in);
        for (int first = 0, blocks; first < all; first += blocks) {
            blocks = min_int(PANEL_BLOCKS, all - first);
            for (int block = 0; block < blocks; block++)
                for (int strip = 0; strip < TILE_STRIPS; strip++) {
                    struct block_at at = block_at(packed, strip, dtype, (size_t)(first + block));
                    block_unpack(&panel.at[strip][block], &at, dtype);
                }
            panel_multiply(product, &panel, tile, first, blocks, dtype);
        }
    }
}

void pairs_i8mm(const struct pair_product *product, int first_tile, int n_tiles) {
    const enum dtype dtype = product->args->weight->dtype;
    if (dtype_kquant(dtype))
        super_pairs_i8mm(product, first_tile, n_tiles);
    else if (dtype == DTYPE_INT8)
        tiles_multiply(product, first_tile, n_tiles, DTYPE_INT8);
    else if (dtype == DTYPE_MXFP4)
        tiles_multiply(product, first_tile, n_tiles, DTYPE_MXFP4);
    else
        tiles_multiply(product, first_tile, n_tiles, DTYPE_INT4);
}

/* The bytes of both rows, an octet of each by turns. */
static void octets_join(int8_t to[][2][OCTET], const int8_t *first, const int8_t *second,
                        int octets) {
    for (int i = 0; i < octets; i++)
        vst1q_s8(to[i][0], vcombine_s8(vld1_s8(first + i * OCTET), vld1_s8(second + i * OCTET)));
}

static void blocks_join(union block_pair *pair, int step, int blocks) {
    for (int block = 0; block < blocks; block++, pair += step) {
        const union block_pair from = *pair;
        octets_join(pair->joined.q, from.rows[0].q, from.rows[1].q, BLOCK_OCTETS);
        for (int row = 0; row < 2; row++) {
            pair->joined.scales[row] = from.rows[row].scale;
            pair->joined.sums[row] = from.rows[row].sum;
        }
    }
}

static void supers_join(union super_pair *pair, int step, int supers) {
    for (int super = 0; super < supers; super++, pair += step) {
        const union super_pair from = *pair;
        octets_join(pair->joined.q, from.rows[0].q, from.rows[1].q, SUPER_OCTETS);
        for (int row = 0; row < 2; row++) {
            pair->joined.scales[row] = from.rows[row].scale;
            for (int part = 0; part < SUPER_BLOCKS; part++) {
                const int sum = from.rows[row].sums[part];
                pair->joined.low[row][part] = (int8_t)(sum & ((1 << SUM_BITS) - 1));
                pair->joined.high[row][part] = (int8_t)(sum >> SUM_BITS);
            }
        }
    }
}

/* Rounds row `row` of the pair, or puts zeros where there is no such row. */
static void blocks_round(union block_pair *pair, int step, const struct linear_args *args, int row,
                         int place) {
    const enum dtype dtype = args->weight->dtype;
    const int blocks = args->weight->n_in / dtype_block(dtype);
    if (row < args->x.rows) {
        quantise_neon(&pair->rows[place], 2 * step, row_f32(args->x, row), blocks, dtype);
        return;
    }
    for (int block = 0; block < blocks; block++)
        pair[block * step].rows[place] = (struct input_block){.scale = 0};
}

static void supers_round(union super_pair *pair, int step, const struct linear_args *args, int row,
                         int place) {
    const enum dtype dtype = args->weight->dtype;
    const int supers = args->weight->n_in / dtype_block(dtype);
    if (row < args->x.rows) {
        quantise_supers_neon(&pair->rows[place], 2 * step, row_f32(args->x, row), supers, dtype);
        return;
    }
    for (int super = 0; super < supers; super++)
        pair[super * step].rows[place] = (struct super_input){.scale = 0};
}

void pair_i8mm(const struct pair_product *product, int pair) {
    const struct linear_args *args = product->args;
    const int step = group_pairs(product, pair / product->group * product->group),
              blocks = (int)pair_blocks(args->weight);
    void *to = pair_data(product, pair, 0);
    for (int place = 0; place < 2; place++) {
        if (dtype_kquant(args->weight->dtype))
            supers_round(to, step, args, 2 * pair + place, place);
        else
            blocks_round(to, step, args, 2 * pair + place, place);
    }
    if (dtype_kquant(args->weight->dtype))
        supers_join(to, step, blocks);
    else
        blocks_join(to, step, blocks);
}
