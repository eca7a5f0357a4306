/* kernels/cpu/arm/pair_neon.c: rounding rows to int8 and joining them in pairs (pairs.h). */
#include <arm_neon.h>

#include "kernels/cpu/arm/sums_neon.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/variants.h"

/* The bytes of both rows, an octet of each by turns. */
static void octets_join(int8_t to[][2][OCTET], const int8_t *first, const int8_t *second,
                        int octets) {
    for (int i = 0; i < octets; i++)
        vst1q_s8(to[i][0], vcombine_s8(vld1_s8(first + i * OCTET), vld1_s8(second + i * OCTET)));
}

static void both_put(float to[BOTH_TWICE], int row, float number) {
    to[row] = to[row + 2] = number;
}

static void supers_join(union super_pair *pair, int step, int supers) {
    for (int super = 0; super < supers; super++, pair += step) {
        const union super_pair from = *pair;
        octets_join(pair->joined.q, from.rows[0].q, from.rows[1].q, SUPER_OCTETS);
        for (int row = 0; row < 2; row++) {
            both_put(pair->joined.scales, row, from.rows[row].scale);
            for (int part = 0; part < SUPER_BLOCKS; part++) {
                const int sum = from.rows[row].sums[part];
                pair->joined.low[row][part] = (int8_t)(sum & ((1 << SUM_BITS) - 1));
                pair->joined.high[row][part] = (int8_t)(sum >> SUM_BITS);
            }
        }
    }
}

/* Rounds rows 2 pair and 2 pair + 1, of which the second may be missing and is zeros then. */
static void blocks_pair(const struct pair_product *product, int pair) {
    const struct linear_args *args = product->args;
    const enum dtype dtype = args->weight->dtype;
    const int first = pair / product->group * product->group, place = pair - first,
              pairs = group_pairs(product, first), row = 2 * pair,
              blocks = args->weight->n_in / dtype_block(dtype);
    struct input_block both[2] = {{.scale = 0}, {.scale = 0}};
    for (int block = 0; block < blocks; block++) {
        struct pair_octets *octets = group_data(product, first, (size_t)block);
        struct pair_numbers *numbers = group_numbers(octets, pairs);
        for (int i = 0; i < 2 && row + i < args->x.rows; i++) {
            const float *from = row_f32(args->x, row + i) + block * QUANTISE_BLOCK;
            quantise_neon(&both[i], 1, from, 1, dtype);
        }
        octets_join(octets[place].q, both[0].q, both[1].q, BLOCK_OCTETS);
        for (int i = 0; i < 2; i++) {
            both_put(numbers[place].both, i, both[i].scale);
            if (dtype == DTYPE_INT4) both_put(numbers[pairs + place].both, i, both[i].sum);
        }
    }
}

_Static_assert(sizeof(union super_pair) == 2 * sizeof(struct super_input),
               "rows of a pair lie at even steps");

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

void pair_neon(const struct pair_product *product, int pair) {
    const struct linear_args *args = product->args;
    if (!dtype_kquant(args->weight->dtype)) {
        blocks_pair(product, pair);
        return;
    }
    const int step = group_pairs(product, pair / product->group * product->group);
    union super_pair *to = pair_data(product, pair, 0);
    for (int place = 0; place < 2; place++) supers_round(to, step, args, 2 * pair + place, place);
    supers_join(to, step, (int)pair_blocks(args->weight));
}
