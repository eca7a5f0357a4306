/* kernels/half.h: half precision in arithmetic that compilers turn into vectors of any instruction
 * set; every file that includes it gets the same bits,
 * apart from the payload of a NaN on arm64. */
#pragma once

#include <stdint.h>

union float_bits {
    float f;
    uint32_t u;
    int32_t i;
};

/* Half precision by way of float arithmetic: the scale factors move subnormals into the normal
 * range and back. No branches, so that loops over them become vectors; magnitudes are compared as
 * signed integers, as SSE2 does. */
static inline float widen_half(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000) << 16, rest = (uint32_t)(v & 0x7fff) << 13;
    union float_bits finite = {.u = rest}, bits;
    finite.f *= 0x1p112f;
    bits.u = sign | ((int32_t)rest >= 0x0f800000 ? rest | 0x7f800000
                                                 : finite.u); /* from there infinity and NaN */
    return bits.f;
}

static inline uint16_t narrow_half(float v) {
#ifdef __aarch64__ /* one instruction in every processor */
    union {
        __fp16 f;
        uint16_t u;
    } half = {.f = (__fp16)v};
    return half.u;
#else
    union float_bits bits = {.f = v};
    int32_t rest = bits.i & 0x7fffffff;
    union float_bits small = {.i = rest};
    small.f += 0.5f; /* subnormal or zero: the addition rounds */
    int32_t half = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
    half = rest < 0x38800000 ? small.i - 0x3f000000 : half;
    half = rest >= 0x477ff000 ? 0x7c00 : half; /* rounds to infinity */
    half = rest > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)((bits.u >> 16 & 0x8000) | (uint32_t)half);
#endif
}
