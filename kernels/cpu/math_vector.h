/* kernels/cpu/math_vector.h: exponential and activations on `struct vec`; include after simd_avx2.h or simd_avx512.h.
 */
#pragma once

#include "kernels/cpu/cpu.h"

/* e^x: x = n ln 2 + r with ln 2 in two parts, e^r by the degree 7 polynomial of the Cephes library's expf. Within 2 ulp
 * of the true value where that is normal. The bounds are where the result has long become 0 or infinity. */
static inline struct vec vec_exp(struct vec x) {
    x = vec_min(vec_set1(100), vec_max(vec_set1(-120), x));
    struct vec n = vec_round(vec_mul(x, vec_set1(0x1.715476p0f)));
    struct vec r = vec_fma(n, vec_set1(-0x1.63p-1f), x);
    r = vec_fma(n, vec_set1(0x1.bd0106p-13f), r);
    struct vec p = vec_set1(1.9875691500e-4f);
    p = vec_fma(p, r, vec_set1(1.3981999507e-3f));
    p = vec_fma(p, r, vec_set1(8.3334519073e-3f));
    p = vec_fma(p, r, vec_set1(4.1665795894e-2f));
    p = vec_fma(p, r, vec_set1(1.6666665459e-1f));
    p = vec_fma(p, r, vec_set1(5.0000001201e-1f));
    p = vec_add(vec_fma(p, vec_mul(r, r), r), vec_set1(1));
    return vec_scale(p, n);
}

/* tanh x: near 0 by the polynomial of the Cephes library's tanhf, farther out from e^(2 |x|). Within a few ulp. */
static inline struct vec vec_tanh(struct vec x) {
    struct vec size = vec_abs(x), square = vec_mul(x, x);
    struct vec p = vec_set1(-5.70498872745e-3f);
    p = vec_fma(p, square, vec_set1(2.06390887954e-2f));
    p = vec_fma(p, square, vec_set1(-5.37397155531e-2f));
    p = vec_fma(p, square, vec_set1(1.33314422036e-1f));
    p = vec_fma(p, square, vec_set1(-3.33332819422e-1f));
    struct vec near = vec_fma(vec_mul(p, square), x, x);
    struct vec e = vec_exp(vec_add(size, size));
    struct vec far = vec_sub(vec_set1(1), vec_div(vec_set1(2), vec_add(e, vec_set1(1))));
    far = vec_if_negative(x, vec_sub(vec_zero(), far), far);
    return vec_if_negative(vec_sub(size, vec_set1(0.625f)), near, far);
}

/* x / (1 + e^-z) = x sigmoid(z) */
static inline struct vec vec_gated(struct vec x, struct vec z) {
    struct vec e = vec_exp(vec_sub(vec_zero(), z));
    return vec_div(x, vec_add(vec_set1(1), e));
}

/* erfc(z) for z >= 0, relative error 1.2e-7: t = 1 / (1 + z / 2), t e^(-z^2 + P(t)); the Chebyshev fit of Numerical
 * Recipes, section 6.2. */
static inline struct vec vec_erfc_positive(struct vec z) {
    static const float terms[] = {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f,
                                  0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
    struct vec t = vec_div(vec_set1(1), vec_fma(z, vec_set1(0.5f), vec_set1(1)));
    struct vec p = vec_set1(0.17087277f);
    for (size_t i = 0; i < ARRAY_COUNT(terms); i++) p = vec_fma(p, t, vec_set1(terms[i]));
    return vec_mul(t, vec_exp(vec_fma(vec_sub(vec_zero(), z), z, p)));
}

/* 0.5 x erfc(-x / sqrt 2): for x < 0 directly, so that the small tail keeps its precision, else 2 - erfc(x / sqrt 2).
 * Beyond |x| = 20 the tail is zero in f32; stopping there keeps the square finite. */
static inline struct vec vec_gelu_erf(struct vec x) {
    struct vec z = vec_min(vec_set1(20), vec_mul(vec_abs(x), vec_set1(0.70710678f)));
    struct vec tail = vec_erfc_positive(z), half = vec_mul(x, vec_set1(0.5f));
    return vec_mul(half, vec_if_negative(x, tail, vec_sub(vec_set1(2), tail)));
}

static inline struct vec vec_activate(struct vec x, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: return x;
        case ACTIVATION_GELU_TANH: { /* 0.5 (1 + tanh u) = sigmoid(2 u) */
            struct vec cubic = vec_fma(vec_mul(vec_set1(0.044715f), x), x, vec_set1(1));
            return vec_gated(x, vec_mul(vec_mul(vec_set1(2 * 0.79788456f), x), cubic));
        }
        case ACTIVATION_GELU_ERF: return vec_gelu_erf(x);
        case ACTIVATION_SILU: return vec_gated(x, x);
        case ACTIVATION_RELU: return vec_if_negative(x, vec_zero(), x);
        case ACTIVATION_RELU_SQUARED: return vec_if_negative(x, vec_zero(), vec_mul(x, x));
        case ACTIVATION_QUICK_GELU: return vec_gated(x, vec_mul(vec_set1(1.702f), x));
    }
    return x;
}

static inline void activate_vector(float *y, const float *x, int n, enum activation activation) {
    int i = 0;
    for (; i + TILE_COLUMNS <= n; i += TILE_COLUMNS) vec_store(y + i, vec_activate(vec_load(x + i), activation));
    if (i < n) vec_store_n(y + i, vec_activate(vec_load_n(x + i, n - i), activation), n - i);
}

static inline void softcap_vector(float *x, int n, float cap) {
    struct vec most = vec_set1(cap);
    int i = 0;
    for (; i + TILE_COLUMNS <= n; i += TILE_COLUMNS)
        vec_store(x + i, vec_mul(most, vec_tanh(vec_div(vec_load(x + i), most))));
    if (i < n) vec_store_n(x + i, vec_mul(most, vec_tanh(vec_div(vec_load_n(x + i, n - i), most))), n - i);
}

static inline void exp_vector(float *y, const float *x, int n) {
    int i = 0;
    for (; i + TILE_COLUMNS <= n; i += TILE_COLUMNS) vec_store(y + i, vec_exp(vec_load(x + i)));
    if (i < n) vec_store_n(y + i, vec_exp(vec_load_n(x + i, n - i)), n - i);
}
