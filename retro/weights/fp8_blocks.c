/* retro/weights/fp8_blocks.c: see fp8_blocks.h. */
#include "retro/weights/fp8_blocks.h"

#include <string.h>

/* The bits of the number 2^-120 times as large: the biases of the exponents are 7 and 127. */
static float e4m3_to_f32(uint8_t bits) {
    uint32_t size = (uint32_t)(bits & 127) << 20, sign = (uint32_t)(bits & 128) << 24;
    float number;
    memcpy(&number, &size, sizeof number);
    number *= 0x1p120f;
    memcpy(&size, &number, sizeof size);
    size = (bits & 127) == 127 ? 0x7fc00000u : size;
    size |= sign;
    memcpy(&number, &size, sizeof number);
    return number;
}

bool fp8_by_row(const struct stored_tensor *scales, int64_t rows) {
    return rows > 1 && scales->shape[0] == rows && scales->elements == (size_t)rows;
}

float fp8_scale(const struct stored_tensor *scales, int64_t at) {
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
    bool whole = scales->elements == 1,
         by_row = fp8_by_row(scales, (int64_t)(stored->elements / (size_t)n));
    for (int block = 0; block < fp8_blocks(n); block++) {
        int64_t square = row / FP8_BLOCK * fp8_blocks(n) + block;
        float piece[FP8_BLOCK], scale = fp8_scale(scales, whole ? 0 : by_row ? row : square);
        int first = block * FP8_BLOCK, count = min_int(FP8_BLOCK, n - first);
        for (int i = 0; i < count; i++) piece[i] = e4m3_to_f32(codes[first + i]) * scale;
        dtype_convert((char *)to + (size_t)first * dtype_bytes(dtype), dtype, piece, DTYPE_F32,
                      (size_t)count);
    }
}
