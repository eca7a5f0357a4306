/* kernels/cpu/linear_generic.c: the linear kernel in plain loops. It is the specification of the
 * order of sums that linear.c states, and what a CPU without AVX2 runs. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/variants.h"

/* 16 weights of one k become floats. */
static void load_lanes(float to[TILE_COLUMNS], const struct weight *weight, int tile, int k) {
    size_t first = packed_index(weight->dtype, weight->n_in, tile * TILE_COLUMNS, k);
    const uint16_t *halves = weight->data;
    for (size_t j = 0; j < TILE_COLUMNS; j++) {
        switch (weight->dtype) {
            case DTYPE_F32: to[j] = ((const float *)weight->data)[first + j]; break;
            case DTYPE_F16: to[j] = f16_to_f32(halves[first + j]); break;
            case DTYPE_BF16: to[j] = bf16_to_f32(halves[first + 2 * j]); break;
            default: break; /* quantised: blocks_generic.c; fp8: refused by pack */
        }
    }
}

/* Up to four rows share the converted weights. */
enum { GENERIC_ROWS = 4 };

static void tile_rows(const struct linear_args *args, int tile, int first, int rows) {
    const struct weight *weight = args->weight;
    float sums[2][GENERIC_ROWS][TILE_COLUMNS] = {{{0}}}, lanes[TILE_COLUMNS];
    for (int k = 0; k < weight->n_in; k++) {
        load_lanes(lanes, weight, tile, k);
        for (int i = 0; i < rows; i++) {
            float x = row_f32(args->x, first + i)[k];
            for (int j = 0; j < TILE_COLUMNS; j++) sums[k & 1][i][j] += x * lanes[j];
        }
    }
    int column = tile * TILE_COLUMNS, n = min_int(TILE_COLUMNS, weight->n_out - column);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < n; j++) {
            float sum = sums[0][i][j] + sums[1][i][j];
            row_f32(args->y, first + i)[column + j] =
                args->bias == NULL ? sum : sum + args->bias[column + j];
        }
}

void linear_generic(const struct linear_args *args, int first_tile, int n_tiles) {
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int i = 0; i < args->x.rows; i += GENERIC_ROWS)
            tile_rows(args, tile, i, min_int(GENERIC_ROWS, args->x.rows - i));
}
