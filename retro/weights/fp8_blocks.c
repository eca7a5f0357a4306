/* retro/weights/fp8_blocks.c: see fp8_blocks.h. */
#include "retro/weights/fp8_blocks.h"

#include <math.h>

float e4m3_to_f32(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float size = exponent == 0       ? ldexpf((float)mantissa, -9)
                 : bits % 128 == 127 ? NAN
                                     : ldexpf((float)(8 + mantissa), exponent - 10);
    return bits & 128 ? -size : size;
}

static float read_scale(const struct stored_tensor *scales, int64_t at) {
    float scale;
    enum dtype dtype = scales->dtype == STORED_F16    ? DTYPE_F16
                       : scales->dtype == STORED_BF16 ? DTYPE_BF16
                                                      : DTYPE_F32;
    const char *values = scales->data;
    dtype_convert(&scale, DTYPE_F32, values + (size_t)at * dtype_bytes(dtype), dtype, 1);
    return scale;
}

void fp8_row_widen(void *to, enum dtype dtype, const struct stored_tensor *stored,
                   const struct stored_tensor *scales, int64_t row, int n) {
    const uint8_t *codes = (const uint8_t *)stored->data + row * n;
    float all[256];
    for (int i = 0; i < 256; i++) all[i] = e4m3_to_f32((uint8_t)i);
    for (int block = 0; block < fp8_blocks(n); block++) {
        float piece[FP8_BLOCK], scale = read_scale(scales, row / FP8_BLOCK * fp8_blocks(n) + block);
        int first = block * FP8_BLOCK, count = min_int(FP8_BLOCK, n - first);
        for (int i = 0; i < count; i++) piece[i] = all[codes[first + i]] * scale;
        dtype_convert((char *)to + (size_t)first * dtype_bytes(dtype), dtype, piece, DTYPE_F32,
                      (size_t)count);
    }
}
