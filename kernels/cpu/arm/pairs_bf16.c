/* kernels/cpu/arm/pairs_bf16.c: products of pairs of rows with bf16 weights on BFMMLA, which
 * multiplies two rows by two columns of four bf16 each and adds the four sums to a register of f32.
 * linear_bf16.c says why each row has the bits that it has alone. Other weights go to SMMLA.
 *
 * A part of a tile is put in the order of the instruction, in a panel that the first-level cache
 * holds, and all rows pass over it. Sums of a row wait in y from one panel to the next. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/variants.h"

#include "kernels/cpu/arm/pair_sums.h"

enum {
    PANEL_STEPS = 64, /* of PAIR_DEPTH values along K */
    KERNEL_STRIPS = 2 /* whose sums of a group the registers hold */
};

/* [step][strip]: two registers of four values of two columns. */
struct depth_panel {
    int8_t at[PANEL_STEPS][TILE_STRIPS][PAIR_SUMS][2 * OCTET];
};

/* Steps [first, first + steps) of a tile. */
static void panel_unpack(struct depth_panel *panel, const struct weight *weight, int tile,
                         int first, int steps) {
    const uint8_t *packed =
        (const uint8_t *)weight->data + packed_tile_start(DTYPE_BF16, weight->n_in, tile);
    const size_t pairs = packed_depth(DTYPE_BF16, weight->n_in) / 2, line = packed_step(DTYPE_BF16);
    for (int step = 0; step < steps; step++) {
        const size_t pair = 2 * (size_t)(first + step);
        const uint8_t *at = packed + pair * line;
        for (int strip = 0; strip < TILE_STRIPS; strip++, at += STRIP_BYTES) {
            uint8x16_t second = pair + 1 < pairs ? load_quads(at + line) : vdupq_n_u8(0);
            octets_store(panel->at[step][strip], load_quads(at), second);
        }
    }
}

ALWAYS_INLINE bfloat16x8_t four_of_two(const void *p) { return vld1q_bf16((const bfloat16_t *)p); }

/* `pairs` pairs meet `steps` steps of KERNEL_STRIPS strips from `strip` on. */
ALWAYS_INLINE void group_multiply(struct pair_place place, const struct depth_panel *panel,
                                  int strip, const struct depth_pair *x, const int steps,
                                  const int pairs) {
    const int column = place.column;
    struct strip_sums sums[KERNEL_STRIPS];
    for (int s = 0; s < KERNEL_STRIPS; s++) {
        place.column = column + s * LANES;
        group_begin(&sums[s], &place, pairs);
    }
    for (int step = 0; step < steps; step++, x += pairs) {
        bfloat16x8_t rows[GROUP_PAIRS];
        UNROLLED
        for (int i = 0; i < pairs; i++) rows[i] = four_of_two(x[i].values);
        for (int s = 0; s < KERNEL_STRIPS; s++)
            for (int two = 0; two < PAIR_SUMS; two++) {
                bfloat16x8_t columns = four_of_two(panel->at[step][strip + s][two]);
                UNROLLED
                for (int i = 0; i < pairs; i++)
                    sums[s].at[i][two] = vbfmmlaq_f32(sums[s].at[i][two], columns, rows[i]);
            }
    }
    for (int s = 0; s < KERNEL_STRIPS; s++) {
        place.column = column + s * LANES;
        group_end(&sums[s], &place, pairs);
    }
}

/* All pairs pass over the panel of steps [first, first + steps) of a tile. */
static void panel_multiply(const struct pair_product *product, const struct depth_panel *panel,
                           int tile, int first, int steps) {
    const int all = (int)pair_blocks(product->args->weight);
    struct pair_place place = {
        .product = product, .first = first == 0, .last = first + steps == all};
    for (; place.pair < product->pairs; place.pair += product->group) {
        const struct depth_pair *x = pair_data(product, place.pair, (size_t)first);
        const int pairs = group_pairs(product, place.pair);
        for (int strip = 0; strip < TILE_STRIPS; strip += KERNEL_STRIPS) {
            place.column = tile * TILE_COLUMNS + strip * LANES;
            if (pairs == 1) group_multiply(place, panel, strip, x, steps, 1);
            if (pairs == 2) group_multiply(place, panel, strip, x, steps, 2);
            if (pairs == 3) group_multiply(place, panel, strip, x, steps, 3);
            if (pairs == 4) group_multiply(place, panel, strip, x, steps, 4);
        }
    }
}

void pairs_bf16(const struct pair_product *product, int first_tile, int n_tiles) {
    const struct weight *weight = product->args->weight;
    const int all = (int)pair_blocks(weight);
    struct depth_panel panel;
    if (weight->dtype != DTYPE_BF16) {
        pairs_i8mm(product, first_tile, n_tiles);
        return;
    }
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int first = 0, steps; first < all; first += steps) {
            steps = min_int(PANEL_STEPS, all - first);
            panel_unpack(&panel, weight, tile, first, steps);
            panel_multiply(product, &panel, tile, first, steps);
        }
}

/* Rounds row `row` of the pair, or puts zeros where there is no such row or no such value. */
static void row_round(struct depth_pair *to, int step, const struct linear_args *args, int row,
                      int place) {
    const int n = args->x.cols;
    const float *from = row < args->x.rows ? row_f32(args->x, row) : NULL;
    for (int k = 0; k < n; k += PAIR_DEPTH, to += step) {
        float values[PAIR_DEPTH] = {0};
        if (from != NULL)
            memcpy(values, from + k, (size_t)min_int(PAIR_DEPTH, n - k) * sizeof *values);
        vst1_u16(to->values[place], vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(values))));
    }
}

void pair_bf16(const struct pair_product *product, int pair) {
    const struct linear_args *args = product->args;
    if (args->weight->dtype != DTYPE_BF16) {
        pair_neon(product, pair);
        return;
    }
    const int step = group_pairs(product, pair / product->group * product->group);
    for (int place = 0; place < 2; place++)
        row_round(pair_data(product, pair, 0), step, args, 2 * pair + place, place);
}
