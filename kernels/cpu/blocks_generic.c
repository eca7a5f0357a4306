/* kernels/cpu/blocks_generic.c: int8, int4 and MXFP4 products in plain loops, the specification of
 * what blocks.h states. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/variants.h"

void quantise_generic(struct input_block *to, int step, const float *from, int blocks,
                      enum dtype weights) {
    for (int b = 0; b < blocks; b++, to += step, from += QUANTISE_BLOCK) {
        float largest = 0;
        bool finite = true;
        for (int k = 0; k < QUANTISE_BLOCK; k++) {
            finite &= isfinite(from[k]) != 0;
            largest = fmaxf(largest, fabsf(from[k]));
        }
        const float inverse = input_begin(to, largest, finite, weights);
        int sum = 0;
        for (int k = 0; k < QUANTISE_BLOCK; k++) {
            to->q[k] = inverse == 0 ? 0 : (int8_t)rintf(from[k] * inverse);
            sum += to->q[k];
        }
        input_finish(to, sum, weights);
    }
}

static int weight_of(struct packed_block block, int lane, int k, enum dtype dtype) {
    if (dtype == DTYPE_INT8) return packed_int8(block, lane, k);
    int code = packed_int4(block, lane, k);
    return dtype == DTYPE_MXFP4 ? mxfp4_doubled(code) : code;
}

static float block_sum(float sum, const struct input_block *block, struct packed_block packed_block,
                       int lane, enum dtype dtype) {
    int dot = 0;
    for (int k = 0; k < QUANTISE_BLOCK; k++)
        dot += block->q[k] * weight_of(packed_block, lane, k, dtype);
    if (dtype == DTYPE_MXFP4)
        return sum + mxfp4_scale(packed_block.exponents[lane]) * block->scale * (float)dot;
    if (dtype == DTYPE_INT4)
        sum += f16_to_f32(packed_block.scales[TILE_COLUMNS + lane]) * block->sum;
    return sum + f16_to_f32(packed_block.scales[lane]) * block->scale * (float)dot;
}

static void tile_row(const struct block_product *product, int tile, int row) {
    const struct linear_args *args = product->args;
    const struct weight *weight = args->weight;
    const int column = tile * TILE_COLUMNS, n = min_int(TILE_COLUMNS, weight->n_out - column);
    const struct input_block *block = group_input(product, row);
    const int step = group_rows(product, row);
    float sums[TILE_COLUMNS] = {0};
    for (int b = 0; b < weight->n_in / QUANTISE_BLOCK; b++, block += step)
        for (int j = 0; j < n; j++)
            sums[j] = block_sum(sums[j], block, packed_block(weight, tile, b), j, weight->dtype);
    for (int j = 0; j < n; j++)
        row_f32(args->y, row)[column + j] =
            args->bias == NULL ? sums[j] : sums[j] + args->bias[column + j];
}

void blocks_generic(const struct block_product *product, int first_tile, int n_tiles) {
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int row = 0; row < product->args->x.rows; row++) tile_row(product, tile, row);
}
