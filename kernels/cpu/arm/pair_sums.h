/* kernels/cpu/arm/pair_sums.h: what the kernels of pairs (pairs.h) share: their weights, their sums
 * and where these come from and go to; include after dots_neon.h and blocks_vector.h.
 *
 * A strip of four columns and a pair of rows have eight sums in two registers. SMMLA and BFMMLA
 * take two columns as their first operand and two rows as their second: a register of sums is
 * column 0 of both rows, then column 1 of both rows. SDOT takes a quad of four columns and one quad
 * of a row: a register of sums is four columns of one row. */
#pragma once

#include "kernels/cpu/pairs.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
#define COLUMNS_IN_TWOS true
#else
#define COLUMNS_IN_TWOS false
#endif

enum {
    PAIR_SUMS = 2,                            /* registers of sums of a pair */
    COLUMN_NUMBERS = COLUMNS_IN_TWOS ? 2 : 1, /* registers of one number of each column */
    FOUR = 4                                  /* registers that one instruction loads */
};

/* The sums of a strip, [pair][register]. */
struct strip_sums {
    float32x4_t at[GROUP_PAIRS][PAIR_SUMS];
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

ALWAYS_INLINE void sums_begin(float32x4_t sums[PAIR_SUMS], const struct pair_place *place,
                              int pair) {
    if (place->first) {
        sums[0] = sums[1] = vdupq_n_f32(0);
        return;
    }
    const int row = 2 * (place->pair + pair), columns = strip_columns(place);
    float32x4_t even = waiting_sums(place, row, columns),
                odd = waiting_sums(place, row + 1, columns);
    sums[0] = COLUMNS_IN_TWOS ? vzip1q_f32(even, odd) : even;
    sums[1] = COLUMNS_IN_TWOS ? vzip2q_f32(even, odd) : odd;
}

ALWAYS_INLINE void sums_end(const float32x4_t sums[PAIR_SUMS], const struct pair_place *place,
                            int pair) {
    const struct linear_args *args = place->product->args;
    const int row = 2 * (place->pair + pair), columns = strip_columns(place);
    if (columns == 0) return;
    const float *bias = place->last && args->bias != NULL ? args->bias + place->column : NULL;
    struct floats even = {COLUMNS_IN_TWOS ? vuzp1q_f32(sums[0], sums[1]) : sums[0]},
                  odd = {COLUMNS_IN_TWOS ? vuzp2q_f32(sums[0], sums[1]) : sums[1]};
    floats_store(row_f32(args->y, row) + place->column, even, bias, columns);
    if (row + 1 < args->y.rows)
        floats_store(row_f32(args->y, row + 1) + place->column, odd, bias, columns);
}

/* An octet of four columns out of two quads: two columns a register, or a quad a register. */
ALWAYS_INLINE void octets_store(int8_t to[PAIR_SUMS][2 * OCTET], uint8x16_t first,
                                uint8x16_t second) {
    uint32x4_t front = vreinterpretq_u32_u8(first), back = vreinterpretq_u32_u8(second);
    vst1q_s8(to[0], vreinterpretq_s8_u32(COLUMNS_IN_TWOS ? vzip1q_u32(front, back) : front));
    vst1q_s8(to[1], vreinterpretq_s8_u32(COLUMNS_IN_TWOS ? vzip2q_u32(front, back) : back));
}

/* Four octets of both rows. */
ALWAYS_INLINE void octets_load(int8x16_t to[FOUR], const int8_t *from) {
    int8x16x4_t four = vld1q_s8_x4(from);
    for (int i = 0; i < FOUR; i++) to[i] = four.val[i];
}

/* Sums of products of integers begin with the bits of 1.5 * 2^23: as a float that is that number
 * plus the sum, while the sum is below 2^22, and taking it off is exact. SCVTF would take the time
 * of two to four additions. */
enum { SUM_BEGINS = 0x4b400000 };
#define SUM_BEGINS_AS_FLOAT 0x1.8p23f

ALWAYS_INLINE float32x4_t products_end(int32x4_t sums) {
    return vsubq_f32(vreinterpretq_f32_s32(sums), vdupq_n_f32(SUM_BEGINS_AS_FLOAT));
}

/* products += the columns' octet times the rows'. */
ALWAYS_INLINE void octet_multiply(int32x4_t products[PAIR_SUMS], const int8x16_t columns[PAIR_SUMS],
                                  int8x16_t rows) {
#if COLUMNS_IN_TWOS
    products[0] = vmmlaq_s32(products[0], columns[0], rows);
    products[1] = vmmlaq_s32(products[1], columns[1], rows);
#else
    products[0] = vdotq_laneq_s32(products[0], columns[0], rows, 0);
    products[1] = vdotq_laneq_s32(products[1], columns[0], rows, 2);
    products[0] = vdotq_laneq_s32(products[0], columns[1], rows, 1);
    products[1] = vdotq_laneq_s32(products[1], columns[1], rows, 3);
#endif
}

/* A number of each column as the products with a row's number take it. */
ALWAYS_INLINE void columns_store(float to[COLUMN_NUMBERS][LANES], float32x4_t columns) {
    vst1q_f32(to[0], COLUMNS_IN_TWOS ? vzip1q_f32(columns, columns) : columns);
    if (COLUMNS_IN_TWOS) vst1q_f32(to[COLUMN_NUMBERS - 1], vzip2q_f32(columns, columns));
}

/* The columns' numbers for each register of sums. */
struct column_numbers {
    float32x4_t at[PAIR_SUMS];
};
ALWAYS_INLINE struct column_numbers columns_load(const float (*from)[LANES]) {
    return (struct column_numbers){{vld1q_f32(from[0]), vld1q_f32(from[COLUMN_NUMBERS - 1])}};
}

/* to *= the rows' numbers */
ALWAYS_INLINE void rows_multiply(float32x4_t to[PAIR_SUMS], const float both[BOTH_TWICE]) {
    const float32x4_t rows = vld1q_f32(both);
    to[0] = COLUMNS_IN_TWOS ? vmulq_f32(to[0], rows) : vmulq_laneq_f32(to[0], rows, 0);
    to[1] = COLUMNS_IN_TWOS ? vmulq_f32(to[1], rows) : vmulq_laneq_f32(to[1], rows, 1);
}
/* sums += values times the rows' numbers */
ALWAYS_INLINE void rows_add(float32x4_t sums[PAIR_SUMS], const float32x4_t values[PAIR_SUMS],
                            const float both[BOTH_TWICE]) {
    const float32x4_t rows = vld1q_f32(both);
    sums[0] = COLUMNS_IN_TWOS ? vfmaq_f32(sums[0], values[0], rows)
                              : vfmaq_laneq_f32(sums[0], values[0], rows, 0);
    sums[1] = COLUMNS_IN_TWOS ? vfmaq_f32(sums[1], values[1], rows)
                              : vfmaq_laneq_f32(sums[1], values[1], rows, 1);
}
