/* tests/cuda_host/cuda_bf16.h: bfloat16 for kernels on the CPU: the conversions kernels/cuda uses.
 */
#pragma once

#include "kernels/cuda/cuda.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {f32_to_bf16(v)}; }
