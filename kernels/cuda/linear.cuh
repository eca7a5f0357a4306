/* kernels/cuda/linear.cuh: what products with float and with quantised weights share. */
#pragma once

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

/* x, rounded to `dtype`, without gaps between rows; valid until the next product. */
view linear_input(struct backend *backend, const struct tensor &x, enum dtype dtype);
/* The library's product with whatever bias and activation it leaves to us. */
void linear_product(struct backend *backend, const struct gemm_args *args);
/* blocks.cu: linear with int8, int4 and fp8 weights, and of 1 .. CUDA_FEW_ROWS rows with f16 and
 * bf16 weights whose rows are whole quads. */
void linear_blocks(struct backend *backend, const struct linear_args *args);
