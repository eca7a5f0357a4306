/* kernels/cpu/row_math.h: norm, residual sum, scaling and narrowing of one row, in plain loops that
 * every variant's file compiles for its instruction set. Each loop has one order of operations,
 * whatever the width: the results are bitwise the same in all variants. `omp simd` says what the
 * compiler cannot know: y is x or apart from it. */
#pragma once

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/half.h"

enum { CHAINS = 8 };

/* Chains are added pairwise. */
static inline double chains_sum(const double c[CHAINS]) {
    return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

/* Sums are in double, element j in chain j mod 8: they depend on nothing but the row and its
 * length. */
static inline double row_sum(const float *x, int n) {
    double chains[CHAINS] = {0};
    int j = 0;
    for (; j + CHAINS <= n; j += CHAINS)
        for (int c = 0; c < CHAINS; c++) chains[c] += (double)x[j + c];
    for (; j < n; j++) chains[j % CHAINS] += (double)x[j];
    return chains_sum(chains);
}

/* sum (x - centre)^2 */
static inline double row_squares(const float *x, int n, double centre) {
    double chains[CHAINS] = {0};
    int j = 0;
    for (; j + CHAINS <= n; j += CHAINS)
        for (int c = 0; c < CHAINS; c++) {
            double v = (double)x[j + c] - centre;
            chains[c] += v * v;
        }
    for (; j < n; j++) {
        double v = (double)x[j] - centre;
        chains[j % CHAINS] += v * v;
    }
    return chains_sum(chains);
}

/* Two passes over the n columns, whose gamma and beta begin `at` behind the first: the variance of
 * x
 * - mean has no cancellation. `squares` is the sum of a longer row's, NULL without. */
static inline void norm_columns(const struct norm_args *args, float *y, const float *x, int n,
                                const float *squares, int at) {
    const float *gamma = args->gamma == NULL ? NULL : args->gamma + at,
                *beta = args->beta == NULL ? NULL : args->beta + at;
    double mean = args->kind == NORM_LAYER ? row_sum(x, n) / n : 0;
    double variance =
        squares == NULL ? row_squares(x, n, mean) / n : (double)*squares / args->whole;
    float centre = (float)mean, scale = (float)(1 / sqrt(variance + (double)args->epsilon));
    if (gamma == NULL)
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] = (x[j] - centre) * scale;
    else if (beta == NULL)
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] = (x[j] - centre) * scale * gamma[j];
    else
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] = (x[j] - centre) * scale * gamma[j] + beta[j];
}

static inline void norm_row(const struct norm_args *args, int i) {
    const float *x = row_f32(args->x, i),
                *squares = args->squares.data == NULL ? NULL : row_f32(args->squares, i);
    float *y = row_f32(args->y, i);
    int heads = max_int(1, args->heads), n = args->x.cols / heads;
    for (int head = 0; head < heads; head++)
        norm_columns(args, y + head * n, x + head * n, n, squares, args->each_head ? head * n : 0);
}

static inline void square_row(const struct square_rows_args *args, int i) {
    *row_f32(args->y, i) = (float)row_squares(row_f32(args->x, i), args->x.cols, 0);
}

static inline void add_row(const struct add_args *args, int i) {
    const float *x = row_f32(args->a, i), *z = row_f32(args->b, i), *bias = args->bias;
    float *y = row_f32(args->y, i), scale = args->row_scale == NULL ? 1 : args->row_scale[i];
    if (args->scale > 0) scale *= args->scale;
    int n = args->y.cols;
    /* A closed gate must not let NaN or infinity through, so it is a choice, not a product. */
    if (scale == 0)
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] = x[j];
    else if (bias == NULL)
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] = x[j] + scale * z[j];
    else
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] = x[j] + scale * (z[j] + bias[j]);
}

/* Rows x[0 .. kernel), the oldest first; the filter is [kernel][n]. */
static inline void convolve_row(float *y, const float *const *x, const float *filter, int kernel,
                                int n) {
    const float *first = x[0];
#pragma omp simd
    for (int i = 0; i < n; i++) y[i] = filter[i] * first[i];
    for (int j = 1; j < kernel; j++) {
        const float *row = x[j], *weights = filter + (int64_t)j * n;
#pragma omp simd
        for (int i = 0; i < n; i++) y[i] += weights[i] * row[i];
    }
}

static inline void scale_row(float *y, const float *x, int n, float scale) {
#pragma omp simd
    for (int j = 0; j < n; j++) y[j] = x[j] * scale;
}

static inline void halve_row(uint16_t *to, const float *from, int n) {
#pragma omp simd
    for (int j = 0; j < n; j++) to[j] = narrow_half(from[j]);
}

/* The scale of a group whose largest magnitude has these bits: an infinity or NaN makes it NaN. */
static inline uint16_t scale_of_largest(int32_t bits) {
    union float_bits largest = {.i = bits}, scale = {.f = largest.f / 127};
    if (bits >= 0x7f800000) return 0x7fc0;
    return largest.f < 0x1p-100f ? 0 : (uint16_t)((scale.u + 0xffff) >> 16);
}

/* Magnitudes are compared as integers, so that NaN is the largest; adding and taking away 1.5 2^23
 * rounds to nearest even. */
static inline uint16_t narrow_row(int8_t *to, const float *from, int n) {
    const union float_bits shift = {.f = 0x1.8p23f};
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int j = 0; j < n; j++) {
        union float_bits bits = {.f = from[j]};
        int32_t magnitude = bits.i & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    uint16_t scale = scale_of_largest(largest);
    float inverse = scale == 0 || scale == 0x7fc0 ? 0 : 1 / bf16_to_f32(scale);
#pragma omp simd
    for (int j = 0; j < n; j++) {
        union float_bits rounded = {.f = from[j] * inverse + shift.f};
        to[j] = (int8_t)(rounded.i - shift.i);
    }
    return scale;
}
