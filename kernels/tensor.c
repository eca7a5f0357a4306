/* kernels/tensor.c: names of element types and conversions between them. See tensor.h. */
#include "kernels/tensor.h"

#include <string.h>
#include <strings.h>

#include "kernels/half.h"

const char *dtype_name(enum dtype dtype) {
    static const char *const names[] = {
        [DTYPE_F32] = "f32",   [DTYPE_F16] = "f16",    [DTYPE_BF16] = "bf16", [DTYPE_INT8] = "int8",
        [DTYPE_INT4] = "int4", [DTYPE_FP8] = "fp8",    [DTYPE_Q4_K] = "q4_k", [DTYPE_Q5_K] = "q5_k",
        [DTYPE_Q6_K] = "q6_k", [DTYPE_MXFP4] = "mxfp4"};
    return names[dtype];
}

bool dtype_parse(enum dtype *out, const char *name) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } known[] = {
        {"f32", DTYPE_F32},     {"float32", DTYPE_F32}, {"f16", DTYPE_F16},
        {"float16", DTYPE_F16}, {"bf16", DTYPE_BF16},   {"bfloat16", DTYPE_BF16},
        {"int8", DTYPE_INT8},   {"int4", DTYPE_INT4},
    };
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (strcasecmp(known[i].name, name) != 0) continue;
        *out = known[i].dtype;
        return true;
    }
    return false;
}

float f16_to_f32(uint16_t v) { return widen_half(v); }
uint16_t f32_to_f16(float v) { return narrow_half(v); }

static float load_element(const void *p, enum dtype dtype, size_t i) {
    switch (dtype) {
        case DTYPE_F32: return ((const float *)p)[i];
        case DTYPE_F16: return f16_to_f32(((const uint16_t *)p)[i]);
        case DTYPE_BF16: return bf16_to_f32(((const uint16_t *)p)[i]);
        default: break; /* refused by dtype_convert */
    }
    return 0;
}

static void store_element(void *p, enum dtype dtype, size_t i, float v) {
    switch (dtype) {
        case DTYPE_F32: ((float *)p)[i] = v; break;
        case DTYPE_F16: ((uint16_t *)p)[i] = f32_to_f16(v); break;
        case DTYPE_BF16: ((uint16_t *)p)[i] = f32_to_bf16(v); break;
        default: break; /* refused by dtype_convert */
    }
}

/* A key/value cache does this all the time. */
static void narrow_bf16(uint16_t *to, const float *from, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = f32_to_bf16(from[i]);
}

static void narrow_f16(uint16_t *to, const float *from, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = narrow_half(from[i]);
}

static void widen_f16(float *to, const uint16_t *from, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = widen_half(from[i]);
}

static void widen_bf16(float *to, const uint16_t *from, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = bf16_to_f32(from[i]);
}

void dtype_convert(void *to, enum dtype to_dtype, const void *from, enum dtype from_dtype,
                   size_t n) {
    if (to_dtype == from_dtype) {
        if (n) memcpy(to, from, n * dtype_bytes(to_dtype));
        return;
    }
    CHECK(!dtype_quantised(to_dtype) && !dtype_quantised(from_dtype));
    if (to_dtype == DTYPE_F16 && from_dtype == DTYPE_F32) {
        narrow_f16(to, from, n);
        return;
    }
    if (to_dtype == DTYPE_F32 && from_dtype == DTYPE_F16) {
        widen_f16(to, from, n);
        return;
    }
    if (to_dtype == DTYPE_BF16 && from_dtype == DTYPE_F32) {
        narrow_bf16(to, from, n);
        return;
    }
    if (to_dtype == DTYPE_F32 && from_dtype == DTYPE_BF16) {
        widen_bf16(to, from, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        store_element(to, to_dtype, i, load_element(from, from_dtype, i));
}
