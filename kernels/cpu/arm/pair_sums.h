/* kernels/cpu/arm/pair_sums.h: what the kernels of pairs (pairs.h) share: their weights, their sums
 * and where these come from and go to; include after dots_neon.h.
 *
 * A strip of four columns and a pair of rows have eight sums in two registers. SMMLA and BFMMLA
 * take two columns as their first operand and two rows as their second: a register of sums is
 * column 0 of both rows, then column 1 of both rows. SDOT takes a quad of four columns and one quad
 * of a row: a register of sums is four columns of one row. */
#pragma once

#include "kernels/cpu/arm/sums_neon.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/strips.h"

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

ALWAYS_INLINE float *waiting_place(const struct pair_place *place, int row) {
    return row_f32(place->product->args->y, row) + place->column;
}

ALWAYS_INLINE float32x4_t waiting_sums(const struct pair_place *place, int row, int columns) {
    if (row >= place->product->args->y.rows) return vdupq_n_f32(0);
    return floats_load_n(waiting_place(place, row), columns).v;
}

/* The sums of a pair, whose rows have them in `even` and `odd`, and back. */
ALWAYS_INLINE void rows_join(float32x4_t sums[PAIR_SUMS], float32x4_t even, float32x4_t odd) {
    sums[0] = COLUMNS_IN_TWOS ? vzip1q_f32(even, odd) : even;
    sums[1] = COLUMNS_IN_TWOS ? vzip2q_f32(even, odd) : odd;
}
ALWAYS_INLINE float32x4_t even_row(const float32x4_t sums[PAIR_SUMS]) {
    return COLUMNS_IN_TWOS ? vuzp1q_f32(sums[0], sums[1]) : sums[0];
}
ALWAYS_INLINE float32x4_t odd_row(const float32x4_t sums[PAIR_SUMS]) {
    return COLUMNS_IN_TWOS ? vuzp2q_f32(sums[0], sums[1]) : sums[1];
}

/* Whether the matrix has all columns of the strip, and all rows of so many pairs. */
ALWAYS_INLINE bool group_whole(const struct pair_place *place, int pairs) {
    return 2 * (place->pair + pairs) <= place->product->args->y.rows &&
           strip_columns(place) == LANES;
}

ALWAYS_INLINE void group_begin(struct strip_sums *sums, const struct pair_place *place,
                               const int pairs) {
    if (place->first) {
        UNROLLED
        for (int i = 0; i < pairs; i++) sums->at[i][0] = sums->at[i][1] = vdupq_n_f32(0);
        return;
    }
    const bool whole = group_whole(place, pairs);
    const float *y = waiting_place(place, 2 * place->pair);
    const ptrdiff_t stride = place->product->args->y.stride;
    UNROLLED
    for (int i = 0; i < pairs && whole; i++, y += 2 * stride)
        rows_join(sums->at[i], vld1q_f32(y), vld1q_f32(y + stride));
    if (whole) return;
    const int columns = strip_columns(place);
    UNROLLED
    for (int i = 0; i < pairs; i++) {
        const int row = 2 * (place->pair + i);
        rows_join(sums->at[i], waiting_sums(place, row, columns),
                  waiting_sums(place, row + 1, columns));
    }
}

ALWAYS_INLINE void group_end(const struct strip_sums *sums, const struct pair_place *place,
                             const int pairs) {
    const struct linear_args *args = place->product->args;
    const bool biased = place->last && args->bias != NULL;
    if (group_whole(place, pairs)) {
        const float32x4_t bias = biased ? vld1q_f32(args->bias + place->column) : vdupq_n_f32(0);
        float *y = waiting_place(place, 2 * place->pair);
        UNROLLED
        for (int i = 0; i < pairs; i++, y += 2 * (ptrdiff_t)args->y.stride) {
            float32x4_t even = even_row(sums->at[i]), odd = odd_row(sums->at[i]);
            vst1q_f32(y, biased ? vaddq_f32(even, bias) : even);
            vst1q_f32(y + args->y.stride, biased ? vaddq_f32(odd, bias) : odd);
        }
        return;
    }
    const int columns = strip_columns(place);
    if (columns == 0) return;
    const float *bias = biased ? args->bias + place->column : NULL;
    UNROLLED
    for (int i = 0; i < pairs; i++) {
        const int row = 2 * (place->pair + i);
        floats_store(waiting_place(place, row), (struct floats){even_row(sums->at[i])}, bias,
                     columns);
        if (row + 1 < args->y.rows)
            floats_store(waiting_place(place, row + 1), (struct floats){odd_row(sums->at[i])}, bias,
                         columns);
    }
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

/* The sums of sums_neon.h begin by loads, one instruction for both registers, done by units that
 * multiply nothing. For the compiler the assembly changes the address each time, so that it copies
 * no registers instead. */
ALWAYS_INLINE const int32_t *sum_begins(void) {
    static const int32_t begins[PAIR_SUMS][LANES] = {
        {SUM_BEGINS, SUM_BEGINS, SUM_BEGINS, SUM_BEGINS},
        {SUM_BEGINS, SUM_BEGINS, SUM_BEGINS, SUM_BEGINS}};
    return begins[0];
}
ALWAYS_INLINE void products_begin(int32x4_t products[PAIR_SUMS], const int32_t **begins) {
    __asm__("" : "+r"(*begins));
    for (int i = 0; i < PAIR_SUMS; i++) products[i] = vld1q_s32(*begins + i * LANES);
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
ALWAYS_INLINE void rows_multiply(float32x4_t to[PAIR_SUMS], float32x4_t rows) {
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
