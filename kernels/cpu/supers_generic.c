/* kernels/cpu/supers_generic.c: products with Q4_K, Q5_K and Q6_K weights in plain loops, the
 * specification of what blocks.h states, and of the packed layout of super-blocks. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/variants.h"

void quantise_supers_generic(struct super_input *to, int step, const float *from, int supers,
                             enum dtype weights) {
    const int part = super_part(weights);
    for (int s = 0; s < supers; s++, to += step, from += SUPER_BLOCK) {
        float largest = 0;
        bool finite = true;
        for (int k = 0; k < SUPER_BLOCK; k++) {
            finite &= isfinite(from[k]) != 0;
            largest = fmaxf(largest, fabsf(from[k]));
        }
        float inverse = input_inverse(largest, finite);
        for (int p = 0; p < SUPER_BLOCK / part; p++) {
            int sum = 0;
            for (int k = p * part; k < (p + 1) * part; k++) {
                to->q[k] = inverse == 0 ? 0 : (int8_t)rintf(from[k] * inverse);
                sum += to->q[k];
            }
            super_input_finish(to, p, sum, weights);
        }
        to->scale = input_scale(largest, finite);
    }
}

/* The scales of column `lane`: `lines` are those before the values. */
static void packed_scales_read(struct super_block *to, enum dtype dtype, const uint8_t *lines,
                               int lane) {
    const uint8_t *quad = lines + LINE_BYTES + lane * QUAD;
    for (int i = 0; i < QUAD; i++) {
        if (dtype == DTYPE_Q6_K) {
            for (int line = 0; line < 4; line++)
                to->scales[line * QUAD + i] = (int8_t)quad[line * LINE_BYTES + i];
            continue;
        }
        uint8_t first = quad[i], second = quad[LINE_BYTES + i], third = quad[2 * LINE_BYTES + i];
        to->scales[i] = first & 63;
        to->scales[QUAD + i] = second & 63;
        to->minimums[i] = third & 63;
        to->minimums[QUAD + i] = (uint8_t)(first >> 6 | second >> 6 << 2 | third >> 6 << 4);
    }
}

/* The upper bits of value i of quad `quad` of a block. */
static int packed_upper(enum dtype dtype, const uint8_t *upper, int quad, int i) {
    int half = BLOCK_QUADS / 2;
    if (dtype == DTYPE_Q5_K) return (upper[i] >> quad & 1) << 4;
    if (dtype == DTYPE_Q4_K) return 0;
    int place = quad % half % 2 * 2 + quad / half;
    return (upper[quad % half / 2 * LINE_BYTES + i] >> 2 * place & 3) << 4;
}

void packed_super_read(struct super_block *to, enum dtype dtype, const uint8_t *packed, int lane) {
    const uint16_t *halves = (const uint16_t *)(const void *)packed;
    const int half = BLOCK_QUADS / 2;
    memset(to, 0, sizeof *to);
    to->d = halves[lane];
    to->dmin = halves[TILE_COLUMNS + lane];
    packed_scales_read(to, dtype, packed, lane);
    for (int b = 0; b < SUPER_BLOCKS; b++)
        for (int k = 0; k < QUANTISE_BLOCK; k++) {
            const uint8_t *block =
                packed + (super_head_lines(dtype) + b * super_block_lines(dtype)) * LINE_BYTES +
                lane * QUAD;
            int quad = k / QUAD,
                low = block[quad % half * LINE_BYTES + k % QUAD] >> (quad < half ? 0 : 4) & 15;
            to->q[b * QUANTISE_BLOCK + k] =
                (uint8_t)(low | packed_upper(dtype, block + half * LINE_BYTES, quad, k % QUAD));
        }
}

static float super_sum(float sum, const struct super_input *input, const struct super_block *block,
                       enum dtype dtype) {
    const int part = super_part(dtype), centre = dtype == DTYPE_Q6_K ? KQUANT_CENTRE : 0;
    float inner = 0;
    if (dtype != DTYPE_Q6_K) {
        int minimum = 0;
        for (int p = 0; p < SUPER_BLOCKS; p++)
            minimum += block->minimums[p] * input->sums[super_sum_place(p)];
        inner = -(f16_to_f32(block->dmin) * (float)minimum);
    }
    for (int p = 0; p < SUPER_BLOCK / part; p++) {
        int dot = 0;
        for (int k = p * part; k < (p + 1) * part; k++) dot += (block->q[k] - centre) * input->q[k];
        inner += f16_to_f32(block->d) * (float)block->scales[p] * (float)dot;
    }
    return sum + input->scale * inner;
}

static void column_rows(const struct block_product *product, int tile, int lane) {
    const struct linear_args *args = product->args;
    const struct weight *weight = args->weight;
    const int rows = args->x.rows, column = tile * TILE_COLUMNS + lane;
    for (int i = 0; i < rows; i++) row_f32(args->y, i)[column] = 0;
    for (int s = 0; s < weight->n_in / SUPER_BLOCK; s++) {
        struct super_block block;
        packed_super_read(&block, weight->dtype, packed_super(weight, tile, (size_t)s), lane);
        for (int i = 0; i < rows; i++) {
            const struct super_input *input = group_super(product, i) + s * group_rows(product, i);
            float *y = &row_f32(args->y, i)[column];
            *y = super_sum(*y, input, &block, weight->dtype);
        }
    }
    if (args->bias == NULL) return;
    for (int i = 0; i < rows; i++) row_f32(args->y, i)[column] += args->bias[column];
}

void supers_generic(const struct block_product *product, int first_tile, int n_tiles) {
    const int n_out = product->args->weight->n_out;
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int lane = 0; lane < min_int(TILE_COLUMNS, n_out - tile * TILE_COLUMNS); lane++)
            column_rows(product, tile, lane);
}
