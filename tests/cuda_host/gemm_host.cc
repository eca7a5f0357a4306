/* tests/cuda_host/gemm_host.cc: kernels/cuda/gemm.h on the emulated device: plain loops in
 * cuBLASLt's place. The library itself is not tested here, only everything around it. */
#include "kernels/cuda/gemm.h"

#include <vector>

#include "tests/cuda_host/emulator.h"

struct gemm {};

enum status gemm_open(struct gemm **out, struct error *) {
    *out = new gemm;
    return STATUS_OK;
}

void gemm_close(struct gemm *g) { delete g; }

/* A row of x or w. */
static std::vector<float> row_widen(const void *data, enum dtype dtype, int64_t first, int n) {
    std::vector<float> row((size_t)n);
    dtype_convert(row.data(), DTYPE_F32, (const char *)data + (size_t)first * dtype_bytes(dtype),
                  dtype, row.size());
    return row;
}

/* Row by row in f32, in rising k. */
static void gemm_multiply(const gemm_args &a) {
    std::vector<std::vector<float>> x;
    for (int i = 0; i < a.rows; i++) x.push_back(row_widen(a.x, a.dtype, i * a.x_stride, a.n_in));
    for (int j = 0; j < a.n_out; j++) {
        std::vector<float> w = row_widen(a.w, a.dtype, (int64_t)j * a.n_in, a.n_in);
        for (int i = 0; i < a.rows; i++) {
            float sum = 0;
            for (size_t k = 0; k < w.size(); k++) sum += x[(size_t)i][k] * w[k];
            a.y[i * a.y_stride + j] = a.bias ? sum + a.bias[j] : sum;
        }
    }
}

/* As cuBLASLt, it takes the bias when there is no activation, and leaves the rest to the caller. */
bool gemm_finishes(struct backend *, const struct gemm_args *a) {
    return a->activation == ACTIVATION_NONE;
}

void gemm_run(struct backend *, const void *arguments) {
    gemm_args copy = *(const gemm_args *)arguments;
    if (!gemm_finishes(nullptr, &copy)) copy.bias = nullptr;
    cuda_host_enqueue([copy] { gemm_multiply(copy); });
}
