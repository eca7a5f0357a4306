/* kernels/cpu/math_vector.h: exponential and activations on `struct vec`; include after simd_avx2.h
 * or simd_avx512.h.
 */
#pragma once

#include "kernels/cpu/cpu.h"

/* e^x: x = n ln 2 + r with ln 2 in two parts, e^r by the degree 7 polynomial of the Cephes
 * library's expf. Within 2 ulp of the true value where that is normal. The bounds are where the
 * result has long become 0 or infinity. */
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

/* 2^x for x <= 0, as the weights of keys need it: 2^n times a polynomial of degree 5 in x - n, in
 * [-1/2, 1/2], with the least relative error, 9e-8. Within 2 ulp; 1 for 0, 0 below -150. */
static inline struct vec vec_exp2_negative(struct vec x) {
    x = vec_max(vec_set1(-160), x);
    struct vec n = vec_round(x), r = vec_sub(x, n);
    struct vec p = vec_set1(0x1.5bba14p-10f);
    p = vec_fma(p, r, vec_set1(0x1.3cea88p-7f));
    p = vec_fma(p, r, vec_set1(0x1.c6b752p-5f));
    p = vec_fma(p, r, vec_set1(0x1.ebf9bcp-3f));
    p = vec_fma(p, r, vec_set1(0x1.62e42ap-1f));
    return vec_scale(vec_fma(p, r, vec_set1(1)), n);
}

/* tanh x: near 0 by the polynomial of the Cephes library's tanhf, farther out from e^(2 |x|).
 * Within a few ulp. */
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

/* erfc(z) for z in [0, 20]: t P(t) e^(-z^2) with t = 1 / (1 + 0.3 z), P the polynomial of degree 8
 * with the least relative error, 4e-8, up to z = 14, beyond which erfc is 0 in f32. The exponential
 * and the polynomial do not wait for each other, and pairs of terms are added as a tree. Within
 * 5e-7 of the true value, relative to it. */
static inline struct vec vec_erfc_positive(struct vec z) {
    struct vec e = vec_exp(vec_mul(vec_sub(vec_zero(), z), z));
    struct vec t = vec_div(vec_set1(1), vec_fma(z, vec_set1(0.3f), vec_set1(1)));
    struct vec square = vec_mul(t, t), fourth = vec_mul(square, square);
    struct vec p01 = vec_fma(t, vec_set1(0.170423722f), vec_set1(0.169204753f));
    struct vec p23 = vec_fma(t, vec_set1(0.206385238f), vec_set1(0.150468848f));
    struct vec p45 = vec_fma(t, vec_set1(0.517049221f), vec_set1(-0.0740493606f));
    struct vec p67 = vec_fma(t, vec_set1(0.471826451f), vec_set1(-0.484692207f));
    struct vec low = vec_fma(square, p23, p01), high = vec_fma(square, p67, p45);
    high = vec_fma(fourth, vec_set1(-0.126616626f), high);
    return vec_mul(vec_mul(t, vec_fma(fourth, high, low)), e);
}

/* 0.5 x erfc(-x / sqrt 2): for x < 0 directly, so that the small tail keeps its precision, else 2 -
 * erfc(x / sqrt 2). Beyond |x| = 20 the tail is zero in f32; stopping there keeps the square
 * finite. */
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
        case ACTIVATION_SIGMOID: return vec_gated(vec_set1(1), x);
    }
    return x;
}

static inline __attribute__((always_inline)) void activate_by(float *y, const float *x, int n,
                                                              const enum activation activation) {
    int i = 0;
    for (; i + TILE_COLUMNS <= n; i += TILE_COLUMNS)
        vec_store(y + i, vec_activate(vec_load(x + i), activation));
    if (i < n) vec_store_n(y + i, vec_activate(vec_load_n(x + i, n - i), activation), n - i);
}

/* A loop for each: the choice is not made again for every vector. */
static inline void activate_vector(float *y, const float *x, int n, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: activate_by(y, x, n, ACTIVATION_NONE); break;
        case ACTIVATION_GELU_TANH: activate_by(y, x, n, ACTIVATION_GELU_TANH); break;
        case ACTIVATION_GELU_ERF: activate_by(y, x, n, ACTIVATION_GELU_ERF); break;
        case ACTIVATION_SILU: activate_by(y, x, n, ACTIVATION_SILU); break;
        case ACTIVATION_RELU: activate_by(y, x, n, ACTIVATION_RELU); break;
        case ACTIVATION_RELU_SQUARED: activate_by(y, x, n, ACTIVATION_RELU_SQUARED); break;
        case ACTIVATION_QUICK_GELU: activate_by(y, x, n, ACTIVATION_QUICK_GELU); break;
        case ACTIVATION_SIGMOID: activate_by(y, x, n, ACTIVATION_SIGMOID); break;
    }
}

static inline void softcap_vector(float *x, int n, float cap) {
    struct vec most = vec_set1(cap);
    int i = 0;
    for (; i + TILE_COLUMNS <= n; i += TILE_COLUMNS)
        vec_store(x + i, vec_mul(most, vec_tanh(vec_div(vec_load(x + i), most))));
    if (i < n)
        vec_store_n(x + i, vec_mul(most, vec_tanh(vec_div(vec_load_n(x + i, n - i), most))), n - i);
}

static inline void exp_vector(float *y, const float *x, int n) {
    int i = 0;
    for (; i + TILE_COLUMNS <= n; i += TILE_COLUMNS) vec_store(y + i, vec_exp(vec_load(x + i)));
    if (i < n) vec_store_n(y + i, vec_exp(vec_load_n(x + i, n - i)), n - i);
}
