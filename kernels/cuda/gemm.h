/* kernels/cuda/gemm.h: the one product the backend needs from a library: Y = X W^T, optionally +
 * bias, activated.
 *
 * gemm_cublas.cu does it with cuBLASLt; the emulated device has plain loops
 * (tests/cuda_host/gemm_host.cc). */
#pragma once

#include "kernels/cuda/cuda.h"

/* Device memory, all row-major: x [rows, n_in] with row stride x_stride and w [n_out, n_in] are of
 * `dtype`, y [rows, n_out] with row stride y_stride is f32, bias f32 [n_out] or NULL. Sums are f32;
 * f32 inputs are not rounded to TF32.
 */
struct gemm_args {
    const void *x, *w;
    float *y;
    const float *bias;
    int64_t x_stride, y_stride;
    int rows, n_out, n_in;
    enum dtype dtype;
    enum activation activation;
    int unused = 0; /* lists of work are compared as bytes */
};

/* cuBLASLt's handle, its workspace and what it chose for each shape. */
struct gemm;

enum status gemm_open(struct gemm **out, struct error *e);
void gemm_close(struct gemm *gemm);
/* Whether the product has bias and activation in it; if not, y holds the product alone and the
 * caller adds them. The answer is the same each time. */
bool gemm_finishes(struct backend *backend, const struct gemm_args *args);
/* Runs a struct gemm_args on the backend's stream: a work_function. A failure sticks in the
 * backend. */
void gemm_run(struct backend *backend, const void *arguments);
