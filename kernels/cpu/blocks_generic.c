/* kernels/cpu/blocks_generic.c: int8 and int4 products in plain loops, the specification of what blocks.h states. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/variants.h"

void quantise_generic(struct input_block *to, int step, const float *from, int blocks, enum dtype weights) {
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

static float block_sum(float sum, const struct input_block *x, struct packed_block w, int lane, enum dtype dtype) {
    int dot = 0;
    for (int k = 0; k < QUANTISE_BLOCK; k++)
        dot += x->q[k] * (dtype == DTYPE_INT8 ? packed_int8(w, lane, k) : packed_int4(w, lane, k));
    if (dtype == DTYPE_INT4) sum += f16_to_f32(w.scales[TILE_COLUMNS + lane]) * x->sum;
    return sum + f16_to_f32(w.scales[lane]) * x->scale * (float)dot;
}

static void tile_row(const struct block_product *p, int tile, int row) {
    const struct linear_args *a = p->args;
    const struct weight *w = a->weight;
    const int column = tile * TILE_COLUMNS, n = min_int(TILE_COLUMNS, w->n_out - column);
    const struct input_block *x = group_input(p, row);
    const int step = group_rows(p, row / p->group * p->group);
    float sums[TILE_COLUMNS] = {0};
    for (int b = 0; b < w->n_in / QUANTISE_BLOCK; b++, x += step)
        for (int j = 0; j < n; j++) sums[j] = block_sum(sums[j], x, packed_block(w, tile, b), j, w->dtype);
    for (int j = 0; j < n; j++)
        row_f32(a->y, row)[column + j] = a->bias == NULL ? sums[j] : sums[j] + a->bias[column + j];
}

void blocks_generic(const struct block_product *p, int first_tile, int n_tiles) {
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int row = 0; row < p->args->x.rows; row++) tile_row(p, tile, row);
}
