/* retro/weights/fp8_blocks.h: matrices of e4m3 numbers (a sign, 4 bits of exponent, 3 of mantissa,
 * no infinity) with a factor for each square of FP8_BLOCK x FP8_BLOCK, as DeepSeek-V3 publishes its
 * weights, one for each row, as compressed-tensors writes them, or one for the whole matrix, as
 * Ministral 3 has: the tensor NAME.weight, and its factors in NAME.weight_scale_inv or
 * NAME.weight_scale. */
#pragma once

#include "kernels/tensor.h"
#include "retro/weights/weights.h"

enum { FP8_BLOCK = 128 };
#define FP8_SCALES "_scale_inv"
#define FP8_OTHER_SCALES "_scale"

static inline int fp8_blocks(int n) { return (n + FP8_BLOCK - 1) / FP8_BLOCK; }
/* Whether the factors of a matrix are one a row: [rows, 1]. */
bool fp8_by_row(const struct stored_tensor *scales, int64_t rows);
/* Factor `at` of scales, which are f32, f16 or bf16. */
float fp8_scale(const struct stored_tensor *scales, int64_t at);
/* The n columns of a stored row as `dtype`, which is f32, f16 or bf16: the product is made in f32
 * and rounded once. */
void fp8_row_widen(void *to, enum dtype dtype, const struct stored_tensor *stored,
                   const struct stored_tensor *scales, int64_t row, int n);
