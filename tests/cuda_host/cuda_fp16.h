/* tests/cuda_host/cuda_fp16.h: half precision for kernels on the CPU: the conversions kernels/cuda
 * uses. */
#pragma once

#include "kernels/cuda/cuda.h"

struct __half {
    uint16_t bits;
};
inline __half __ushort_as_half(uint16_t v) { return {v}; }
inline uint16_t __half_as_ushort(__half v) { return v.bits; }
inline float __half2float(__half v) { return f16_to_f32(v.bits); }
inline __half __float2half_rn(float v) { return {f32_to_f16(v)}; }
