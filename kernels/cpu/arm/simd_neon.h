/* kernels/cpu/arm/simd_neon.h: `struct vec`, sixteen floats, in four NEON registers. The kernels in
 * *_vector.h are written on these few functions once and compiled for each instruction set. */
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/compiler.h"

struct vec {
    float32x4_t r[4];
};

/* How many of these a kernel keeps as running sums, of 32 registers: two chains of half as many, or
 * one chain alone. */
enum { VEC_SUMS = 6, CHAINS_ALONE = 1 };

#define VEC_EACH(expression) \
    struct vec to; \
    UNROLLED for (int i = 0; i < 4; i++) to.r[i] = (expression); \
    return to

static inline struct vec vec_set1(float v) { VEC_EACH(vdupq_n_f32(v)); }
static inline struct vec vec_zero(void) { return vec_set1(0); }
static inline struct vec vec_load(const float *p) { VEC_EACH(vld1q_f32(p + 4 * i)); }
static inline void vec_store(float *p, struct vec v) {
    UNROLLED
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, v.r[i]);
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
    VEC_EACH(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
static inline struct vec vec_load_int8(const int8_t *p) {
    const int8x16_t v = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_s8(vget_high_s8(v));
    return (struct vec){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                         vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                         vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                         vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
static inline struct vec vec_load_bf16(const uint16_t *p) {
    VEC_EACH(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
/* The first bf16 of each of 16 pairs (even k) and the second (odd k): a bf16 is the upper half of a
 * float. */
static inline struct vec vec_load_bf16_even(const uint16_t *p) {
    VEC_EACH(vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)), 16)));
}
static inline struct vec vec_load_bf16_odd(const uint16_t *p) {
    const uint32x4_t upper = vdupq_n_u32(0xffff0000);
    VEC_EACH(vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)), upper)));
}

static inline struct vec vec_add(struct vec x, struct vec y) {
    VEC_EACH(vaddq_f32(x.r[i], y.r[i]));
}
static inline struct vec vec_sub(struct vec x, struct vec y) {
    VEC_EACH(vsubq_f32(x.r[i], y.r[i]));
}
static inline struct vec vec_mul(struct vec x, struct vec y) {
    VEC_EACH(vmulq_f32(x.r[i], y.r[i]));
}
static inline struct vec vec_div(struct vec x, struct vec y) {
    VEC_EACH(vdivq_f32(x.r[i], y.r[i]));
}
/* x y + z, rounded once */
static inline struct vec vec_fma(struct vec x, struct vec y, struct vec z) {
    VEC_EACH(vfmaq_f32(z.r[i], x.r[i], y.r[i]));
}
/* Where y is NaN the result is y. */
static inline struct vec vec_max(struct vec x, struct vec y) {
    VEC_EACH(vmaxq_f32(x.r[i], y.r[i]));
}
static inline struct vec vec_min(struct vec x, struct vec y) {
    VEC_EACH(vminq_f32(x.r[i], y.r[i]));
}
static inline struct vec vec_round(struct vec x) { VEC_EACH(vrndnq_f32(x.r[i])); }
/* x 2^n in two exact steps, n integer-valued, |n| < 250: rounded once, also into subnormals, zero
 * and infinity. */
static inline float32x4_t scale_four(float32x4_t x, float32x4_t n) {
    const int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1),
                    bias = vdupq_n_s32(127);
    const int32x4_t rest = vsubq_s32(whole, half);
    x = vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}
static inline struct vec vec_scale(struct vec x, struct vec n) {
    VEC_EACH(scale_four(x.r[i], n.r[i]));
}
static inline struct vec vec_abs(struct vec x) { VEC_EACH(vabsq_f32(x.r[i])); }
/* Where x < 0: yes, elsewhere (NaN too): no. */
static inline struct vec vec_if_negative(struct vec x, struct vec yes, struct vec no) {
    VEC_EACH(vbslq_f32(vcltzq_f32(x.r[i]), yes.r[i], no.r[i]));
}
/* The first n elements of x, the others `fill`. */
static inline struct vec vec_first(struct vec x, int n, float fill) {
    static const int32_t places[4] = {0, 1, 2, 3};
    const int32x4_t place = vld1q_s32(places);
    const float32x4_t other = vdupq_n_f32(fill);
    VEC_EACH(vbslq_f32(vcltq_s32(place, vdupq_n_s32(n - 4 * i)), x.r[i], other));
}
static inline float vec_largest(struct vec x) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.r[0], x.r[1]), vmaxq_f32(x.r[2], x.r[3])));
}
/* Elements 8 apart first, then 4. */
static inline float32x4_t fold_sixteen(struct vec x) {
    return vaddq_f32(vaddq_f32(x.r[0], x.r[2]), vaddq_f32(x.r[1], x.r[3]));
}
/* Elements 2 apart of both: x 0 + 2, x 1 + 3, y 0 + 2, y 1 + 3. */
static inline float32x4_t fold_fours(float32x4_t x, float32x4_t y) {
    return vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(y)),
                     vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
}
/* The sums of four vectors, bitwise the same whatever the others are: elements 8 apart first, then
 * 4, 2 and 1. */
static inline void vec_sum_four(float to[4], struct vec x, struct vec y, struct vec z,
                                struct vec w) {
    float32x4_t first = fold_fours(fold_sixteen(x), fold_sixteen(y)),
                last = fold_fours(fold_sixteen(z), fold_sixteen(w));
    vst1q_f32(to, vpaddq_f32(first, last));
}
/* to [16][16] = the sixteen columns at `from` of sixteen rows that lie `apart` floats apart,
 * turned: column j becomes row j. Of fewer rows the last stands for those that are not there. */
static inline void vec_turn(float *to, const float *from, int64_t apart, int rows) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[16 * j + i] = from[(i < rows ? i : rows - 1) * apart + j];
}
