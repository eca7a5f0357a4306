/* kernels/cpu/arm/panels_neon.c: products of many rows with f32 weights for NEON, from panels
 * (panels.h). The arithmetic of one element is that of linear_vector.h.
 *
 * A kernel takes half a tile: two registers of weights meet up to PANEL_ROWS rows, of which a
 * register holds four and an instruction names one. */
#include "kernels/cpu/arm/simd_neon.h"

#include "kernels/cpu/panel_copy.h"
#include "kernels/cpu/variants.h"

enum {
    LANES = 4,
    PANEL_ROWS = 12, /* panels have at least half as many */
    HALF_VECTORS = 2,
    HALF_COLUMNS = HALF_VECTORS * LANES,
    HALF_SUMS = PANEL_ROWS * HALF_VECTORS,
    ROW_VECTORS = PANEL_ROWS / LANES
};

/* Where a kernel works: rows of y from `row` on, whose panel is at `x`, and eight columns. */
struct half_place {
    const struct linear_args *args;
    const float *x, *weights;
    int row, column;
};

/* sum + w x[lane]; `lane` is a constant where loops are unrolled. */
ALWAYS_INLINE float32x4_t fma_lane(float32x4_t sum, float32x4_t w, float32x4_t x, const int lane) {
    switch (lane) {
        case 0: return vfmaq_laneq_f32(sum, w, x, 0);
        case 1: return vfmaq_laneq_f32(sum, w, x, 1);
        case 2: return vfmaq_laneq_f32(sum, w, x, 2);
        default: return vfmaq_laneq_f32(sum, w, x, 3);
    }
}

/* The first row of four that are loaded together; the last four begin earlier where rows are no
 * whole fours, as nothing is read past the panel. */
ALWAYS_INLINE int four_first(int four, int rows) { return min_int(four * LANES, rows - LANES); }

/* One chain of all rows, over so many depths; returns where the next chain of the panel begins. */
ALWAYS_INLINE const float *chain_sum(float32x4_t *sums, const float *weights, const float *x,
                                     int depths, const int rows) {
    UNROLLED
    for (int i = 0; i < rows * HALF_VECTORS; i++) sums[i] = vdupq_n_f32(0);
    for (; depths > 0; depths--) {
        const float32x4_t w[HALF_VECTORS] = {vld1q_f32(weights), vld1q_f32(weights + LANES)};
        float32x4_t fours[ROW_VECTORS];
        UNROLLED
        for (int i = 0; i * LANES < rows; i++) fours[i] = vld1q_f32(x + four_first(i, rows));
        UNROLLED
        for (int r = 0; r < rows; r++) {
            const int four = r / LANES, lane = r - four_first(four, rows);
            for (int i = 0; i < HALF_VECTORS; i++) {
                float32x4_t *sum = &sums[r * HALF_VECTORS + i];
                *sum = fma_lane(*sum, w[i], fours[four], lane);
            }
        }
        x += rows;
        weights += 2 * TILE_COLUMNS;
    }
    return x;
}

/* y = (even + odd) + bias for the columns that there are. */
ALWAYS_INLINE void half_store(const struct half_place *place, int r, const float *even,
                              const float32x4_t odd[HALF_VECTORS]) {
    const struct linear_args *args = place->args;
    const int n = min_int(HALF_COLUMNS, args->weight->n_out - place->column);
    float *y = row_f32(args->y, place->row + r) + place->column, sums[HALF_COLUMNS];
    float *to = n == HALF_COLUMNS ? y : sums;
    float bias[HALF_COLUMNS] = {0};
    if (n <= 0) return;
    if (args->bias != NULL) memcpy(bias, args->bias + place->column, (size_t)n * sizeof *bias);
    for (int i = 0; i < HALF_VECTORS; i++) {
        float32x4_t sum = vaddq_f32(vld1q_f32(even + i * LANES), odd[i]);
        if (args->bias != NULL) sum = vaddq_f32(sum, vld1q_f32(bias + i * LANES));
        vst1q_f32(to + i * LANES, sum);
    }
    if (to != y) memcpy(y, sums, (size_t)n * sizeof *y);
}

ALWAYS_INLINE void half_kernel(const struct half_place *place, const int rows) {
    const int n_in = place->args->weight->n_in;
    float32x4_t sums[HALF_SUMS];
    float even[HALF_SUMS * LANES];
    const float *x = chain_sum(sums, place->weights, place->x, (n_in + 1) / 2, rows);
    UNROLLED
    for (int i = 0; i < rows * HALF_VECTORS; i++) vst1q_f32(even + i * LANES, sums[i]);
    chain_sum(sums, place->weights + TILE_COLUMNS, x, n_in / 2, rows);
    UNROLLED
    for (int r = 0; r < rows; r++)
        half_store(place, r, even + r * HALF_COLUMNS, sums + r * HALF_VECTORS);
}

typedef void half_function(const struct half_place *place);

/* A function of its own for each number of rows. */
#define HALF_FUNCTION(rows) \
    static __attribute__((noinline)) void half_##rows(const struct half_place *place) { \
        half_kernel(place, rows); \
    }
HALF_FUNCTION(6)
HALF_FUNCTION(7)
HALF_FUNCTION(8)
HALF_FUNCTION(9)
HALF_FUNCTION(10)
HALF_FUNCTION(11)
HALF_FUNCTION(12)
static half_function *const half_kernels[PANEL_ROWS / 2 + 1] = {half_6,  half_7,  half_8, half_9,
                                                                half_10, half_11, half_12};

/* Panels [first, end) past the eight columns of a place. */
static void panels_pass(const struct panel_product *product, struct half_place place, int first,
                        int end) {
    for (int panel = first; panel < end; panel++) {
        place.row = panel_start(product, panel);
        place.x = panel_data(product, panel);
        half_kernels[panel_start(product, panel + 1) - place.row - PANEL_ROWS / 2](&place);
    }
}

void panels_neon(const struct panel_product *product, int first_tile, int n_tiles) {
    const struct linear_args *args = product->args;
    const int chunks = (product->panels + PANEL_CHUNK - 1) / PANEL_CHUNK;
    for (int chunk = 0; chunk < chunks; chunk++)
        for (int tile = first_tile; tile < first_tile + n_tiles; tile++) {
            const char *weights = (const char *)args->weight->data +
                                  packed_tile_start(DTYPE_F32, args->weight->n_in, tile);
            struct half_place place = {.args = args, .column = tile * TILE_COLUMNS};
            place.weights = (const float *)(const void *)weights;
            for (int half = 0; half < TILE_COLUMNS / HALF_COLUMNS; half++) {
                panels_pass(product, place, product->panels * chunk / chunks,
                            product->panels * (chunk + 1) / chunks);
                place.weights += HALF_COLUMNS;
                place.column += HALF_COLUMNS;
            }
        }
}

void panel_neon(const struct panel_product *product, int panel) { panel_vector(product, panel); }
