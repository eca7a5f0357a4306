/* kernels/cpu/arm/quantise_neon.c: rounding activations to int8 in NEON registers: bitwise what
 * quantise_generic does. */
#include <arm_neon.h>
#include <string.h>

#include "kernels/cpu/variants.h"

/* The largest of n, a multiple of 16; false where one is not finite. Bits of magnitudes order as
 * the magnitudes do, and infinities and NaN come last. */
static bool largest_find(float *largest, const float *from, int n) {
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
    uint32x4_t top = vdupq_n_u32(0);
    for (int i = 0; i < n; i += 4)
        top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(from + i)), magnitude));
    uint32_t bits = vmaxvq_u32(top);
    memcpy(largest, &bits, sizeof bits);
    return bits < INPUT_NOT_FINITE;
}

/* Sixteen numbers become bytes, rounded to nearest even. */
static int8x16_t sixteen_round(const float *from, float inverse) {
    int16x4_t q[4];
    if (inverse == 0) return vdupq_n_s8(0);
    for (int i = 0; i < 4; i++)
        q[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(from + 4 * i), inverse)));
    return vcombine_s8(vqmovn_s16(vcombine_s16(q[0], q[1])), vqmovn_s16(vcombine_s16(q[2], q[3])));
}

/* Thirty-two numbers; the sums of the first and of the last sixteen bytes. */
static void block_round(int8_t *to, const float *from, float inverse, int sums[2]) {
    for (int half = 0; half < 2; half++) {
        int8x16_t q = sixteen_round(from + 16 * half, inverse);
        vst1q_s8(to + 16 * half, q);
        sums[half] = vaddlvq_s8(q);
    }
}

void quantise_neon(struct input_block *to, int step, const float *from, int blocks,
                   enum dtype weights) {
    for (int b = 0; b < blocks; b++, to += step, from += QUANTISE_BLOCK) {
        float largest;
        bool finite = largest_find(&largest, from, QUANTISE_BLOCK);
        int sums[2];
        block_round(to->q, from, input_begin(to, largest, finite, weights), sums);
        input_finish(to, sums[0] + sums[1], weights);
    }
}

void quantise_supers_neon(struct super_input *to, int step, const float *from, int supers,
                          enum dtype weights) {
    for (int s = 0; s < supers; s++, to += step, from += SUPER_BLOCK) {
        float largest;
        bool finite = largest_find(&largest, from, SUPER_BLOCK);
        float inverse = input_inverse(largest, finite);
        for (int b = 0; b < SUPER_BLOCKS; b++) {
            int sums[2];
            block_round(to->q + b * QUANTISE_BLOCK, from + b * QUANTISE_BLOCK, inverse, sums);
            if (weights == DTYPE_Q6_K) {
                super_input_finish(to, 2 * b, sums[0], weights);
                super_input_finish(to, 2 * b + 1, sums[1], weights);
            } else {
                super_input_finish(to, b, sums[0] + sums[1], weights);
            }
        }
        to->scale = input_scale(largest, finite);
    }
}
