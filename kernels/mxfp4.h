/* kernels/mxfp4.h: weights in four bits as the Open Compute Project's microscaling formats have
 * them (MX specification 1.0, 5.3): blocks of QUANTISE_BLOCK along a row, each number e2m1 (a sign,
 * two bits of exponent, one of mantissa), and for each block one byte, which stands for 2^(byte -
 * 127). 255 is NaN, and 6 times 2^126 is no f32: files with bytes above 252 are refused.
 *
 * e2m1 has 0, 0.5, 1, 1.5, 2, 3, 4 and 6: twice that is a small integer, and products take it so.
 * A weight is exact in bf16 and in f32, but for blocks of byte 0, which count as zeros: off by at
 * most 6 * 2^-127. */
#pragma once

#include "kernels/tensor.h"

enum { MXFP4_LARGEST = 12 /* of a doubled number */, MXFP4_MOST = 252 /* of an exponent */ };

/* Twice the number of a code 0 .. 15. */
static inline int mxfp4_doubled(int code) {
    static const int8_t doubled[8] = {0, 1, 2, 3, 4, 6, 8, MXFP4_LARGEST};
    return code < 8 ? doubled[code] : -doubled[code - 8];
}

/* 2^(byte - 127) as f32, 0 for 0. */
static inline float mxfp4_scale(uint8_t byte) {
    union {
        uint32_t u;
        float f;
    } scale = {.u = (uint32_t)byte << 23};
    return scale.f;
}

/* n columns, whole blocks: `codes` two a byte, the even column in the low half, as host_matrix has
 * them. */
void mxfp4_widen(float *to, const uint8_t *codes, const uint8_t *exponents, int n);
