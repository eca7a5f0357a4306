/* kernels/cpu/arm/dots_neon.h: what blocks_vector.h is written on, in NEON registers: four columns
 * of integers or floats. Processors with SDOT have few_rows.h and pairs.h instead, which use some
 * of these. */
#pragma once

#include <arm_neon.h>
#include <string.h>

#include "kernels/cpu/blocks.h"

enum {
    LANES = 4,
    DOT_SUMS = 12 /* (row, strip) pairs whose sums the 32 registers hold */
};

struct ints {
    int32x4_t v;
};
struct floats {
    float32x4_t v;
};

static inline struct floats floats_zero(void) { return (struct floats){vdupq_n_f32(0)}; }
static inline struct floats floats_load(const float *p) { return (struct floats){vld1q_f32(p)}; }
static inline struct floats floats_set1(float v) { return (struct floats){vdupq_n_f32(v)}; }
static inline struct floats floats_load_f16(const uint16_t *p) {
    return (struct floats){vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))};
}
static inline struct floats floats_mul(struct floats x, struct floats y) {
    return (struct floats){vmulq_f32(x.v, y.v)};
}
static inline struct floats floats_fma(struct floats x, struct floats y, struct floats z) {
    return (struct floats){vfmaq_f32(z.v, x.v, y.v)};
}
/* w times the block's scale, exact; there is no instruction that changes exponents. */
static inline struct floats floats_scaled(struct floats w, const struct input_block *block,
                                          const bool powers) {
    (void)powers;
    return (struct floats){vmulq_n_f32(w.v, block->scale)};
}
static inline struct floats floats_of(struct ints x) { return (struct floats){vcvtq_f32_s32(x.v)}; }
/* The first n <= LANES, zeros behind. */
static inline struct floats floats_load_n(const float *p, int n) {
    float padded[LANES] = {0};
    memcpy(padded, p, (size_t)n * sizeof *p);
    return floats_load(padded);
}
/* y[0, n) = x + bias, n <= LANES; bias may be NULL. */
static inline void floats_store(float *y, struct floats x, const float *bias, int n) {
    float padded[LANES];
    if (bias != NULL) x.v = vaddq_f32(x.v, floats_load_n(bias, n).v);
    if (n == LANES) {
        vst1q_f32(y, x.v);
        return;
    }
    vst1q_f32(padded, x.v);
    memcpy(y, padded, (size_t)n * sizeof *y);
}

static inline struct ints ints_zero(void) { return (struct ints){vdupq_n_s32(0)}; }
static inline struct ints ints_set1(int32_t v) { return (struct ints){vdupq_n_s32(v)}; }

/* A quad of x meets all columns. */
static inline int8x16_t set_quad(const int8_t *x) {
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}
static inline uint8x16_t load_quads(const uint8_t *p) { return vld1q_u8(p); }
/* Two vectors of int4 quads out of one. */
static inline uint8x16_t low_halves(uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); }
static inline uint8x16_t high_halves(uint8x16_t v) { return vshrq_n_u8(v, 4); }
/* Twice the number of each code of MXFP4, MXFP4_LARGEST added. */
static inline uint8x16_t codes_look_up(uint8x16_t codes) {
    static const uint8_t shifted[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return vqtbl1q_u8(vld1q_u8(shifted), codes);
}

/* Packed int8 weights have a sign (layout.h). */
struct quads {
    uint8x16_t v;
};
static inline struct quads quads_int8(const uint8_t *p) { return (struct quads){load_quads(p)}; }
static inline struct ints int8_start(const struct input_block *block) {
    (void)block;
    return ints_zero();
}
static inline struct ints int4_start(void) { return ints_zero(); }

/* sum + the four products of each column, bytes with a sign. Two of them are at most 2 * 128 * 127
 * = 32512: a pair fits 16 bits. */
static inline struct ints int4_add(struct ints sum, uint8x16_t w, const int8_t *x) {
    const int8x16_t bytes = vreinterpretq_s8_u8(w), values = set_quad(x);
    int16x8_t low = vmull_s8(vget_low_s8(bytes), vget_low_s8(values)),
              high = vmull_high_s8(bytes, values);
    return (struct ints){vpadalq_s16(sum.v, vpaddq_s16(low, high))};
}
static inline struct ints int8_add(struct ints sum, struct quads w, const int8_t *x) {
    return int4_add(sum, w.v, x);
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
static inline struct ints pairs_add(struct ints sum, int32x4_t w, const int16_t *x) {
    int16x8_t pairs = vreinterpretq_s16_s32(w),
              factors = vreinterpretq_s16_s8(set_quad((const int8_t *)x));
    int32x4_t low = vmull_s16(vget_low_s16(pairs), vget_low_s16(factors)),
              high = vmull_high_s16(pairs, factors);
    return (struct ints){vaddq_s32(sum.v, vpaddq_s32(low, high))};
}
