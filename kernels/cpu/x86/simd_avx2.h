/* kernels/cpu/x86/simd_avx2.h: `struct vec`, sixteen floats, in two AVX registers. The kernels in
 * *_vector.h are written on these few functions once and compiled for each instruction set. */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

struct vec {
    __m256 a, b;
};

/* How many of these a kernel keeps as running sums, of 16 registers: two chains of half as many, or
 * one chain alone, where the weights leave room for that: not here. */
enum { VEC_SUMS = 6, CHAINS_ALONE = 0 };

static inline struct vec vec_set1(float v) {
    return (struct vec){_mm256_set1_ps(v), _mm256_set1_ps(v)};
}
static inline struct vec vec_zero(void) {
    return (struct vec){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline struct vec vec_load(const float *p) {
    return (struct vec){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void vec_store(float *p, struct vec v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
/* The first n <= 16 elements; the others are zero, and not touched by the store. */
static inline struct vec vec_load_n(const float *p, int n) {
    float padded[16] = {0};
    memcpy(padded, p, (size_t)n * sizeof *p);
    return vec_load(padded);
}
static inline void vec_store_n(float *p, struct vec v, int n) {
    float padded[16];
    vec_store(padded, v);
    memcpy(p, padded, (size_t)n * sizeof *p);
}

static inline struct vec vec_load_f16(const uint16_t *p) {
    return (struct vec){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline struct vec vec_load_int8(const int8_t *p) {
    const __m128i v = _mm_loadu_si128((const __m128i *)p);
    return (struct vec){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}
static inline __m256 widen_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
static inline struct vec vec_load_bf16(const uint16_t *p) {
    return (struct vec){widen_bf16(p), widen_bf16(p + 8)};
}
/* The first bf16 of each of 16 pairs (even k) and the second (odd k): a bf16 is the upper half of a
 * float. */
static inline struct vec vec_load_bf16_even(const uint16_t *p) {
    __m256i x = _mm256_loadu_si256((const __m256i *)p),
            y = _mm256_loadu_si256((const __m256i *)(p + 16));
    return (struct vec){_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                        _mm256_castsi256_ps(_mm256_slli_epi32(y, 16))};
}
static inline struct vec vec_load_bf16_odd(const uint16_t *p) {
    __m256i x = _mm256_loadu_si256((const __m256i *)p),
            y = _mm256_loadu_si256((const __m256i *)(p + 16));
    __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    return (struct vec){_mm256_castsi256_ps(_mm256_and_si256(x, upper)),
                        _mm256_castsi256_ps(_mm256_and_si256(y, upper))};
}

static inline struct vec vec_add(struct vec x, struct vec y) {
    return (struct vec){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
static inline struct vec vec_sub(struct vec x, struct vec y) {
    return (struct vec){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
static inline struct vec vec_mul(struct vec x, struct vec y) {
    return (struct vec){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
static inline struct vec vec_div(struct vec x, struct vec y) {
    return (struct vec){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
/* x y + z, rounded once */
static inline struct vec vec_fma(struct vec x, struct vec y, struct vec z) {
    return (struct vec){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* Where y is NaN the result is y. */
static inline struct vec vec_max(struct vec x, struct vec y) {
    return (struct vec){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
static inline struct vec vec_min(struct vec x, struct vec y) {
    return (struct vec){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
static inline struct vec vec_round(struct vec x) {
    return (struct vec){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                        _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/* x 2^n in two exact steps, n integer-valued, |n| < 250: rounded once, also into subnormals, zero
 * and infinity. */
static inline __m256 scale_half(__m256 x, __m256 n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1),
            bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(x,
                         _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
static inline struct vec vec_scale(struct vec x, struct vec n) {
    return (struct vec){scale_half(x.a, n.a), scale_half(x.b, n.b)};
}
static inline struct vec vec_abs(struct vec x) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (struct vec){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
/* Where x < 0: yes, elsewhere (NaN too): no. */
static inline struct vec vec_if_negative(struct vec x, struct vec yes, struct vec no) {
    __m256 zero = _mm256_setzero_ps();
    return (struct vec){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, zero, _CMP_LT_OQ)),
                        _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, zero, _CMP_LT_OQ))};
}
/* The first n elements of x, the others `fill`. */
static inline struct vec vec_first(struct vec x, int n, float fill) {
    __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    __m256i end = _mm256_set1_epi32(n);
    __m256 f = _mm256_set1_ps(fill);
    return (struct vec){
        _mm256_blendv_ps(f, x.a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(end, low))),
        _mm256_blendv_ps(f, x.b, _mm256_castsi256_ps(_mm256_cmpgt_epi32(end, high)))};
}
static inline float vec_largest(struct vec x) {
    __m256 m = _mm256_max_ps(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
/* The sums of four vectors, bitwise the same whatever the others are: elements 8 apart first, then
 * 4, 2 and 1. */
static inline void vec_sum_four(float to[4], struct vec x, struct vec y, struct vec z,
                                struct vec w) {
    __m256 i = _mm256_add_ps(x.a, x.b), j = _mm256_add_ps(y.a, y.b);
    __m256 k = _mm256_add_ps(z.a, z.b), l = _mm256_add_ps(w.a, w.b);
    i = _mm256_add_ps(_mm256_permute2f128_ps(i, k, 0x20),
                      _mm256_permute2f128_ps(i, k, 0x31)); /* x | z */
    j = _mm256_add_ps(_mm256_permute2f128_ps(j, l, 0x20),
                      _mm256_permute2f128_ps(j, l, 0x31)); /* y | w */
    i = _mm256_add_ps(_mm256_shuffle_ps(i, j, 0x44),
                      _mm256_shuffle_ps(i, j, 0xee)); /* x x y y | z z w w */
    i = _mm256_add_ps(i, _mm256_permute_ps(i, 0xb1));
    _mm_storeu_ps(to, _mm_shuffle_ps(_mm256_castps256_ps128(i), _mm256_extractf128_ps(i, 1), 0x88));
}
/* to [16][16] = the sixteen columns at `from` of sixteen rows that lie `apart` floats apart,
 * turned: column j becomes row j. Of fewer rows the last stands for those that are not there. */
static inline void vec_turn(float *to, const float *from, int64_t apart, int rows) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[16 * j + i] = from[(i < rows ? i : rows - 1) * apart + j];
}
