/* kernels/cpu/x86/dots_avx512.h: what blocks_vector.h is written on, in AVX-512 registers: sixteen
 * columns of integers or floats. With AVX-512 VNNI one instruction does what takes three or four
 * without. */
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/blocks.h"

enum {
    LANES = 16,
    DOT_SUMS = 12 /* (row, strip) pairs whose sums the 32 registers hold */
};

struct ints {
    __m512i v;
};
struct floats {
    __m512 v;
};

static inline struct floats floats_zero(void) { return (struct floats){_mm512_setzero_ps()}; }
static inline struct floats floats_load(const float *p) {
    return (struct floats){_mm512_loadu_ps(p)};
}
static inline struct floats floats_set1(float v) { return (struct floats){_mm512_set1_ps(v)}; }
static inline struct floats floats_load_f16(const uint16_t *p) {
    return (struct floats){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))};
}
static inline struct floats floats_mul(struct floats x, struct floats y) {
    return (struct floats){_mm512_mul_ps(x.v, y.v)};
}
static inline struct floats floats_fma(struct floats x, struct floats y, struct floats z) {
    return (struct floats){_mm512_fmadd_ps(x.v, y.v, z.v)};
}
/* w times the block's scale, exact either way. AMD's processors multiply with the units that add
 * products, and change exponents with those that add. */
static inline struct floats floats_scaled(struct floats w, const struct input_block *block,
                                          const bool powers) {
    if (powers) return (struct floats){_mm512_scalef_ps(w.v, _mm512_set1_ps(block->power))};
    return floats_mul(w, floats_set1(block->scale));
}
static inline struct floats floats_of(struct ints x) {
    return (struct floats){_mm512_cvtepi32_ps(x.v)};
}
/* The first n <= LANES, zeros behind. */
static inline struct floats floats_load_n(const float *p, int n) {
    return (struct floats){_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)};
}
/* y[0, n) = x + bias, n <= LANES; bias may be NULL. */
static inline void floats_store(float *y, struct floats x, const float *bias, int n) {
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    if (bias != NULL) x.v = _mm512_add_ps(x.v, _mm512_maskz_loadu_ps(mask, bias));
    _mm512_mask_storeu_ps(y, mask, x.v);
}

static inline struct ints ints_zero(void) { return (struct ints){_mm512_setzero_si512()}; }
static inline struct ints ints_set1(int32_t v) { return (struct ints){_mm512_set1_epi32(v)}; }

/* A quad of x meets all columns. */
static inline __m512i set_quad(const int8_t *x) {
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    return _mm512_set1_epi32(quad);
}
static inline __m512i load_quads(const uint8_t *p) { return _mm512_loadu_si512(p); }
/* Two vectors of int4 quads out of one. */
static inline __m512i low_halves(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
static inline __m512i high_halves(__m512i v) { return low_halves(_mm512_srli_epi16(v, 4)); }
/* Twice the number of each code of MXFP4, MXFP4_LARGEST added. */
static inline __m512i codes_look_up(__m512i codes) {
    const __m128i shifted =
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(shifted), codes);
}

#ifdef __AVX512VNNI__

/* vpdpbusd multiplies bytes without a sign by bytes with one and adds four products to a 32-bit
 * sum: exact. The packed int8 weights are 128 too large, which the sum starts with taken off. */
struct quads {
    __m512i v;
};
static inline struct quads quads_int8(const uint8_t *p) { return (struct quads){load_quads(p)}; }
static inline struct ints int8_start(const struct input_block *block) {
    return (struct ints){_mm512_set1_epi32(block->offset)};
}
static inline struct ints int8_add(struct ints sum, struct quads w, const int8_t *x) {
    return (struct ints){_mm512_dpbusd_epi32(sum.v, w.v, set_quad(x))};
}
static inline struct ints int4_add(struct ints sum, __m512i w, const int8_t *x) {
    return (struct ints){_mm512_dpbusd_epi32(sum.v, w, set_quad(x))};
}
static inline struct ints int4_finish(struct ints sum) { return sum; }

/* Quads of super-blocks are summed in 32 bits. */
static inline int bytes_together(enum dtype dtype) {
    (void)dtype;
    return BLOCK_QUADS;
}
static inline struct ints bytes_begin(struct ints sum) { return sum; }
static inline struct ints bytes_end(struct ints sum, struct ints near) {
    (void)sum;
    return near;
}
/* sum + w[0] x[0] + w[1] x[1], pairs of 16 bits with a sign. */
static inline struct ints pairs_add(struct ints sum, __m512i w, const int16_t *x) {
    return (struct ints){_mm512_dpwssd_epi32(sum.v, w, set_quad((const int8_t *)x))};
}

#else

/* GCC may add integers in any order, and would rather keep all pairs of a block in memory than add
 * each as it comes; so every sum is made one that it has to have: 30 to 50 percent faster. */
static inline struct ints ints_of(__m512i sum) {
    __asm__("" : "+v"(sum));
    return (struct ints){sum};
}

/* vpmaddubsw adds two products of a byte without a sign and one with it in 16 bits, with
 * saturation, which must not happen. int8: |w| * (x with the sign of w) is w * x, and 2 * 128 * 127
 * = 32512 is below 2^15: exact for every q_w of a byte and every q_x in [-127, 127]. Pairs are then
 * added in 32 bits. */
struct quads {
    __m512i magnitude;
    __mmask64 negative;
};
static inline __m512i signed_as(__m512i x, __mmask64 negative) {
    return _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
}
static inline struct quads quads_int8(const uint8_t *p) {
    __m512i v = _mm512_xor_si512(load_quads(p), _mm512_set1_epi8((char)INT8_OFFSET));
    return (struct quads){_mm512_abs_epi8(v), _mm512_movepi8_mask(v)};
}
static inline struct ints int8_start(const struct input_block *x) {
    (void)x;
    return (struct ints){_mm512_setzero_si512()};
}
static inline struct ints int8_add(struct ints sum, struct quads w, const int8_t *x) {
    __m512i pairs = _mm512_maddubs_epi16(w.magnitude, signed_as(set_quad(x), w.negative));
    return ints_of(_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))));
}
/* int4: the eight quads of a block bring at most 8 * 2 * 15 * 127 = 30480 to a 16-bit sum, so a
 * block is summed in 16 bits. */
static inline struct ints int4_add(struct ints sum, __m512i w, const int8_t *x) {
    return ints_of(_mm512_add_epi16(sum.v, _mm512_maddubs_epi16(w, set_quad(x))));
}
static inline struct ints int4_finish(struct ints sum) {
    return (struct ints){_mm512_madd_epi16(sum.v, _mm512_set1_epi16(1))};
}

/* Quads of super-blocks that are summed in 16 bits, of at most 15, 31 or 63 times 127: 8 * 2 * 15 *
 * 127 = 30480, 4 * 2 * 31 * 127 = 31496, 2 * 2 * 63 * 127 = 32004. */
static inline int bytes_together(enum dtype t) {
    return t == DTYPE_Q4_K ? 8 : t == DTYPE_Q5_K ? 4 : 2;
}
static inline struct ints bytes_begin(struct ints sum) {
    (void)sum;
    return ints_zero();
}
static inline struct ints bytes_end(struct ints sum, struct ints near) {
    return ints_of(_mm512_add_epi32(sum.v, int4_finish(near).v));
}
/* sum + w[0] x[0] + w[1] x[1], pairs of 16 bits with a sign. */
static inline struct ints pairs_add(struct ints sum, __m512i w, const int16_t *x) {
    return (struct ints){
        _mm512_add_epi32(sum.v, _mm512_madd_epi16(w, set_quad((const int8_t *)x)))};
}

#endif

static inline struct ints int4_start(void) { return (struct ints){_mm512_setzero_si512()}; }
