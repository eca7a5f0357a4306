/* kernels/cpu/arm/sums_neon.h: sums of products of integers, and the floats that they become; the
 * bytes that sums are cut in to be factors themselves. */
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/compiler.h"

/* Sums begin with the bits of 1.5 * 2^23: as a float that is that number plus the sum, while the
 * sum is below 2^22, and taking it off is exact. SCVTF would take the time of two to four
 * additions. */
enum { SUM_BEGINS = 0x4b400000 };
#define SUM_BEGINS_AS_FLOAT 0x1.8p23f

ALWAYS_INLINE float32x4_t products_end(int32x4_t sums) {
    return vsubq_f32(vreinterpretq_f32_s32(sums), vdupq_n_f32(SUM_BEGINS_AS_FLOAT));
}

/* A sum of a part's q, of up to 14 bits, is 2^SUM_BITS times a byte and another byte. */
enum { SUM_BITS = 7 };
