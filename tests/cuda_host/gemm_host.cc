/* tests/cuda_host/gemm_host.cc: kernels/cuda/gemm.h on the emulated device: plain loops in cuBLASLt's place. What the
 * library does on a GPU is not tested here, only everything around it. */
#include "kernels/cuda/gemm.h"

#include <vector>

#include "tests/cuda_host/emulator.h"

struct gemm {};

enum status gemm_open(struct gemm **out, struct error *) {
    *out = new gemm;
    return STATUS_OK;
}

void gemm_close(struct gemm *g) { delete g; }

static float element(const void *data, enum dtype dtype, size_t i) {
    float v;
    dtype_convert(&v, DTYPE_F32, (const char *)data + i * dtype_bytes(dtype), dtype, 1);
    return v;
}

/* Row by row in f32, in rising k. */
static void multiply(const gemm_args &a) {
    std::vector<float> w((size_t)a.n_in);
    for (int j = 0; j < a.n_out; j++) {
        dtype_convert(w.data(), DTYPE_F32, (const char *)a.w + (size_t)j * w.size() * dtype_bytes(a.dtype), a.dtype,
                      w.size());
        for (int i = 0; i < a.rows; i++) {
            float sum = 0;
            for (int k = 0; k < a.n_in; k++) sum += element(a.x, a.dtype, (size_t)(i * a.x_stride + k)) * w[(size_t)k];
            a.y[i * a.y_stride + j] = a.bias ? sum + a.bias[j] : sum;
        }
    }
}

/* As cuBLASLt, it takes the bias when there is no activation, and leaves the rest to the caller. */
bool gemm_finishes(const struct gemm_args *a) { return a->activation == ACTIVATION_NONE; }

void gemm_run(struct backend *, const void *arguments) {
    gemm_args copy = *(const gemm_args *)arguments;
    if (!gemm_finishes(&copy)) copy.bias = nullptr;
    cuda_host_enqueue([copy] { multiply(copy); });
}
