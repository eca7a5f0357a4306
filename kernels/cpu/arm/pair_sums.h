/* kernels/cpu/arm/pair_sums.h: what the kernels of pairs (pairs.h) share: their weights, their sums
 * and where these come from and go to; include after dots_neon.h and blocks_vector.h.
 *
 * SMMLA and BFMMLA take two columns as their first operand and two rows as their second. A register
 * of sums is column 0 of both rows, then column 1 of both rows. A strip of four columns is two such
 * registers a pair of rows. */
#pragma once

#include "kernels/cpu/pairs.h"

enum { STRIP_TWOS = LANES / 2 /* pairs of columns of a strip */ };

/* The sums of a strip, [pair][two columns]. */
struct strip_sums {
    float32x4_t at[GROUP_PAIRS][STRIP_TWOS];
};

/* Where a kernel works: pairs of rows from `pair` on, and the strip's columns from `column` on.
 * `first` and `last`: whether its weights begin and end the chains; between, sums wait in y. */
struct pair_place {
    const struct pair_product *product;
    int pair, column;
    bool first, last;
};

/* Columns of a strip that the matrix has. */
ALWAYS_INLINE int strip_columns(const struct pair_place *place) {
    return max_int(0, min_int(LANES, place->product->args->weight->n_out - place->column));
}

ALWAYS_INLINE float32x4_t waiting_sums(const struct pair_place *place, int row, int columns) {
    const struct linear_args *args = place->product->args;
    if (row >= args->y.rows) return vdupq_n_f32(0);
    const float *y = row_f32(args->y, row) + place->column;
    return columns == LANES ? vld1q_f32(y) : floats_load_n(y, columns).v;
}

ALWAYS_INLINE void sums_begin(float32x4_t sums[STRIP_TWOS], const struct pair_place *place,
                              int pair) {
    if (place->first) {
        sums[0] = sums[1] = vdupq_n_f32(0);
        return;
    }
    const int row = 2 * (place->pair + pair), columns = strip_columns(place);
    float32x4_t even = waiting_sums(place, row, columns),
                odd = waiting_sums(place, row + 1, columns);
    sums[0] = vzip1q_f32(even, odd);
    sums[1] = vzip2q_f32(even, odd);
}

ALWAYS_INLINE void sums_end(const float32x4_t sums[STRIP_TWOS], const struct pair_place *place,
                            int pair) {
    const struct linear_args *args = place->product->args;
    const int row = 2 * (place->pair + pair), columns = strip_columns(place);
    if (columns == 0) return;
    const float *bias = place->last && args->bias != NULL ? args->bias + place->column : NULL;
    struct floats even = {vuzp1q_f32(sums[0], sums[1])}, odd = {vuzp2q_f32(sums[0], sums[1])};
    floats_store(row_f32(args->y, row) + place->column, even, bias, columns);
    if (row + 1 < args->y.rows)
        floats_store(row_f32(args->y, row + 1) + place->column, odd, bias, columns);
}

/* Octets of four columns, two of them a register: out of two quads of four columns. */
ALWAYS_INLINE void octets_store(int8_t to[STRIP_TWOS][2 * OCTET], uint8x16_t first,
                                uint8x16_t second) {
    uint32x4_t front = vreinterpretq_u32_u8(first), back = vreinterpretq_u32_u8(second);
    vst1q_s8(to[0], vreinterpretq_s8_u32(vzip1q_u32(front, back)));
    vst1q_s8(to[1], vreinterpretq_s8_u32(vzip2q_u32(front, back)));
}

/* A number of each column becomes one for each sum. */
ALWAYS_INLINE void columns_store(float to[STRIP_TWOS][LANES], float32x4_t columns) {
    vst1q_f32(to[0], vzip1q_f32(columns, columns));
    vst1q_f32(to[1], vzip2q_f32(columns, columns));
}

/* Sums of products of integers begin with the bits of 1.5 * 2^23: as a float that is that number
 * plus the sum, while the sum is below 2^22, and taking it off is exact. SCVTF would take the time
 * of two to four additions. */
enum { SUM_BEGINS = 0x4b400000 };
#define SUM_BEGINS_AS_FLOAT 0x1.8p23f

ALWAYS_INLINE float32x4_t products_end(int32x4_t sums) {
    return vsubq_f32(vreinterpretq_f32_s32(sums), vdupq_n_f32(SUM_BEGINS_AS_FLOAT));
}

typedef uint64_t both_of __attribute__((aligned(4), may_alias));

/* A number of both rows becomes one for each sum. GCC 12 takes two instructions for
 * vld1q_dup_u64. */
ALWAYS_INLINE float32x4_t rows_load(const float both[2]) {
    float32x4_t numbers;
    __asm__("ld1r {%0.2d}, %1" : "=w"(numbers) : "Q"(*(const both_of *)(const void *)both));
    return numbers;
}
