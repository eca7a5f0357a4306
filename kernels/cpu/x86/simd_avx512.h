/* kernels/cpu/x86/simd_avx512.h: `struct vec`, sixteen floats, in one AVX-512 register. The kernels
 * in *_vector.h are written on these few functions once and compiled for each instruction set. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

struct vec {
    __m512 a;
};

/* How many of these a kernel keeps as running sums, of 32 registers: two chains of half as many, or
 * one chain alone. */
enum { VEC_SUMS = 24, CHAINS_ALONE = 1 };

static inline __mmask16 vec_mask(int n) { return (__mmask16)((1u << n) - 1); }
static inline struct vec vec_set1(float v) { return (struct vec){_mm512_set1_ps(v)}; }
static inline struct vec vec_zero(void) { return (struct vec){_mm512_setzero_ps()}; }
static inline struct vec vec_load(const float *p) { return (struct vec){_mm512_loadu_ps(p)}; }
static inline void vec_store(float *p, struct vec v) { _mm512_storeu_ps(p, v.a); }
/* The first n <= 16 elements; the others are zero, and not touched by the store. */
static inline struct vec vec_load_n(const float *p, int n) {
    return (struct vec){_mm512_maskz_loadu_ps(vec_mask(n), p)};
}
static inline void vec_store_n(float *p, struct vec v, int n) {
    _mm512_mask_storeu_ps(p, vec_mask(n), v.a);
}

static inline struct vec vec_load_f16(const uint16_t *p) {
    return (struct vec){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))};
}
static inline struct vec vec_load_int8(const int8_t *p) {
    return (struct vec){
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)))};
}
static inline struct vec vec_load_bf16(const uint16_t *p) {
    return (struct vec){_mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16))};
}
/* The first bf16 of each of 16 pairs (even k) and the second (odd k): a bf16 is the upper half of a
 * float. */
static inline struct vec vec_load_bf16_even(const uint16_t *p) {
    return (struct vec){_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
static inline struct vec vec_load_bf16_odd(const uint16_t *p) {
    return (struct vec){_mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000)))};
}

static inline struct vec vec_add(struct vec x, struct vec y) {
    return (struct vec){_mm512_add_ps(x.a, y.a)};
}
static inline struct vec vec_sub(struct vec x, struct vec y) {
    return (struct vec){_mm512_sub_ps(x.a, y.a)};
}
static inline struct vec vec_mul(struct vec x, struct vec y) {
    return (struct vec){_mm512_mul_ps(x.a, y.a)};
}
static inline struct vec vec_div(struct vec x, struct vec y) {
    return (struct vec){_mm512_div_ps(x.a, y.a)};
}
/* x y + z, rounded once */
static inline struct vec vec_fma(struct vec x, struct vec y, struct vec z) {
    return (struct vec){_mm512_fmadd_ps(x.a, y.a, z.a)};
}
/* Where y is NaN the result is y. */
static inline struct vec vec_max(struct vec x, struct vec y) {
    return (struct vec){_mm512_max_ps(x.a, y.a)};
}
static inline struct vec vec_min(struct vec x, struct vec y) {
    return (struct vec){_mm512_min_ps(x.a, y.a)};
}
static inline struct vec vec_round(struct vec x) {
    return (struct vec){_mm512_roundscale_ps(x.a, 0)};
}
/* x 2^n, n integer-valued, rounded once, also into subnormals, zero and infinity. */
static inline struct vec vec_scale(struct vec x, struct vec n) {
    return (struct vec){_mm512_scalef_ps(x.a, n.a)};
}
static inline struct vec vec_abs(struct vec x) { return (struct vec){_mm512_abs_ps(x.a)}; }
/* Where x < 0: yes, elsewhere (NaN too): no. */
static inline struct vec vec_if_negative(struct vec x, struct vec yes, struct vec no) {
    return (struct vec){_mm512_mask_blend_ps(
        _mm512_cmp_ps_mask(x.a, _mm512_setzero_ps(), _CMP_LT_OQ), no.a, yes.a)};
}
/* The first n elements of x, the others `fill`. */
static inline struct vec vec_first(struct vec x, int n, float fill) {
    return (struct vec){_mm512_mask_blend_ps(vec_mask(n), _mm512_set1_ps(fill), x.a)};
}
static inline float vec_largest(struct vec x) { return _mm512_reduce_max_ps(x.a); }
/* The sums of four vectors, bitwise the same whatever the others are: elements 8 apart first, then
 * 4, 2 and 1. */
static inline void vec_sum_four(float to[4], struct vec x, struct vec y, struct vec z,
                                struct vec w) {
    __m512 i =
        _mm512_add_ps(_mm512_shuffle_f32x4(x.a, y.a, 0x44), _mm512_shuffle_f32x4(x.a, y.a, 0xee));
    __m512 j =
        _mm512_add_ps(_mm512_shuffle_f32x4(z.a, w.a, 0x44), _mm512_shuffle_f32x4(z.a, w.a, 0xee));
    i = _mm512_add_ps(_mm512_shuffle_f32x4(i, j, 0x88),
                      _mm512_shuffle_f32x4(i, j, 0xdd)); /* one lane for each */
    i = _mm512_add_ps(i, _mm512_permute_ps(i, 0x4e));
    i = _mm512_add_ps(i, _mm512_permute_ps(i, 0xb1));
    _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, i)));
}
/* to [16][16] = the sixteen columns at `from` of sixteen rows that lie `apart` floats apart,
 * turned: column j becomes row j. Of fewer rows the last stands for those that are not there. */
static inline void vec_turn(float *to, const float *from, int64_t apart, int rows) {
    __m512 x[16], y[16];
    for (int i = 0; i < 16; i++) x[i] = _mm512_loadu_ps(from + (i < rows ? i : rows - 1) * apart);
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(y[i + j]), high = _mm512_castps_pd(y[i + j + 2]);
            x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    /* x[4 i + j] now holds columns j, j + 4, j + 8 and j + 12 of rows 4 i to 4 i + 3, a lane each.
     */
    for (int j = 0; j < 4; j++) {
        __m512 even = _mm512_shuffle_f32x4(x[j], x[4 + j], 0x88),
               odd = _mm512_shuffle_f32x4(x[j], x[4 + j], 0xdd);
        __m512 even_far = _mm512_shuffle_f32x4(x[8 + j], x[12 + j], 0x88);
        __m512 odd_far = _mm512_shuffle_f32x4(x[8 + j], x[12 + j], 0xdd);
        _mm512_storeu_ps(to + 16 * j, _mm512_shuffle_f32x4(even, even_far, 0x88));
        _mm512_storeu_ps(to + 16 * (j + 4), _mm512_shuffle_f32x4(odd, odd_far, 0x88));
        _mm512_storeu_ps(to + 16 * (j + 8), _mm512_shuffle_f32x4(even, even_far, 0xdd));
        _mm512_storeu_ps(to + 16 * (j + 12), _mm512_shuffle_f32x4(odd, odd_far, 0xdd));
    }
}
