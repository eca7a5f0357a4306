/* kernels/cpu/arm/linear_bf16.c: products with bf16 weights of few rows on BFDOT, which multiplies
 * pairs of bf16 and adds the sum of both products to an f32. linear.c has rounded the activations
 * to bf16; other weights go to the NEON kernels.
 *
 * Element (i, j) is one chain over the pairs of K in rising order, from zero, then + bias. BFMMLA,
 * which takes many rows (pairs_bf16.c), adds two such pairs in the same order with the same
 * roundings (Arm Architecture Reference Manual, BFDotAdd), so a row has the same bits alone and
 * among others. It takes pairs two at a time: where their number is odd, one of zeros ends the
 * chain in both, since a sum of -0 becomes +0 by it. */
#include "kernels/cpu/arm/simd_neon.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/variants.h"

enum {
    LANES = 4,
    TILE_REGISTERS = TILE_COLUMNS / LANES,
    STREAM_TILES = 2, /* lie side by side */
    STREAM_ROWS = 3   /* whose sums of both tiles the registers hold */
};

/* Where one kernel works: rows of x and y from `row`, tiles of the weight from `tile`. */
struct dot_place {
    const struct linear_args *args;
    int row, tile;
};

ALWAYS_INLINE void store_tile(const struct dot_place *place, int row, int t,
                              const float32x4_t *sums) {
    const struct linear_args *args = place->args;
    const int column = (place->tile + t) * TILE_COLUMNS,
              n = min_int(TILE_COLUMNS, args->weight->n_out - column);
    float *y = row_f32(args->y, place->row + row) + column;
    struct vec sum = {{sums[0], sums[1], sums[2], sums[3]}};
    if (args->bias != NULL) sum = vec_add(sum, vec_load_n(args->bias + column, n));
    if (n == TILE_COLUMNS)
        vec_store(y, sum);
    else
        vec_store_n(y, sum, n);
}

ALWAYS_INLINE void dot_kernel(const struct dot_place *place, const int rows, const int tiles) {
    const struct weight *weight = place->args->weight;
    const struct tensor x = place->args->x;
    const int registers = tiles * TILE_REGISTERS;
    const size_t pairs = packed_depth(DTYPE_BF16, weight->n_in) / 2;
    const char *at =
        (const char *)weight->data + packed_tile_start(DTYPE_BF16, weight->n_in, place->tile);
    const uint32_t *values = row_of(x, place->row); /* a pair of bf16 is one lane */
    float32x4_t sums[STREAM_ROWS][STREAM_TILES * TILE_REGISTERS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < registers; i++) sums[r][i] = vdupq_n_f32(0);
    for (size_t k = 0; k < pairs; k++, at += packed_step(DTYPE_BF16)) {
        bfloat16x8_t value[STREAM_ROWS];
        for (int t = 0; t < tiles; t++) __builtin_prefetch(at + t * QUAD_BYTES + FETCH_AHEAD, 0, 2);
        for (int r = 0; r < rows; r++)
            value[r] =
                vreinterpretq_bf16_u32(vdupq_n_u32(values[(size_t)r * (size_t)x.stride / 2 + k]));
        for (int i = 0; i < registers; i++) {
            bfloat16x8_t w = vld1q_bf16((const bfloat16_t *)(const void *)at + i * 2 * LANES);
            for (int r = 0; r < rows; r++) sums[r][i] = vbfdotq_f32(sums[r][i], w, value[r]);
        }
    }
    const bfloat16x8_t nothing = vreinterpretq_bf16_u32(vdupq_n_u32(0));
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < registers && pairs % 2 == 1; i++)
            sums[r][i] = vbfdotq_f32(sums[r][i], nothing, nothing);
        for (int t = 0; t < tiles; t++) store_tile(place, r, t, sums[r] + t * TILE_REGISTERS);
    }
}

ALWAYS_INLINE void dot_rows(const struct dot_place *place, int rows, const int tiles) {
    if (rows == 1) dot_kernel(place, 1, tiles);
    if (rows == 2) dot_kernel(place, 2, tiles);
    if (rows == 3) dot_kernel(place, 3, tiles);
}

/* Four rows are two and two: the second two find the tiles in the cache. */
ALWAYS_INLINE void tiles_dot(const struct linear_args *args, int tile, const int tiles) {
    const int rows = args->x.rows, passes = (rows + STREAM_ROWS - 1) / STREAM_ROWS;
    for (int pass = 0, row = 0; pass < passes; pass++) {
        int end = (int)((int64_t)rows * (pass + 1) / passes);
        dot_rows(&(struct dot_place){.args = args, .row = row, .tile = tile}, end - row, tiles);
        row = end;
    }
}

void linear_bf16(const struct linear_args *args, int first_tile, int n_tiles) {
    const int end = first_tile + n_tiles;
    if (args->x.dtype != DTYPE_BF16) {
        linear_neon(args, first_tile, n_tiles);
        return;
    }
    for (int tile = first_tile, now; tile < end; tile += now) {
        now = tile + STREAM_TILES <= end ? STREAM_TILES : 1;
        if (now == STREAM_TILES)
            tiles_dot(args, tile, STREAM_TILES);
        else
            tiles_dot(args, tile, 1);
    }
}

void round_bf16(uint16_t *to, const float *from, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        vst1_u16(to + i, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(from + i))));
    if (i == n) return;
    float rest[LANES] = {0};
    memcpy(rest, from + i, (size_t)(n - i) * sizeof *rest);
    uint16_t rounded[LANES];
    vst1_u16(rounded, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(rest))));
    memcpy(to + i, rounded, (size_t)(n - i) * sizeof *to);
}
