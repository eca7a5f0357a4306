/* kernels/cuda/measure.cu: the ceilings of a device, which its kernels are measured against: bytes
 * copied and bf16 products a second. Both are what the library or the driver reaches, not a data
 * sheet. */
#include <stdlib.h>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

enum { ROUNDS = 5, COPIES = 20, PRODUCTS = 10, FILL_THREADS = 256 };

struct fill_kernel_args {
    uint16_t *to;
    int64_t n;
};

/* grid pieces of 256, block 256. bf16 numbers of both signs, 2^-3 to 2 in size: a product of zeros
 * draws less power and runs faster than one of real data. */
__global__ void measure_fill_kernel(struct fill_kernel_args args) {
    int64_t i = (int64_t)blockIdx.x * FILL_THREADS + threadIdx.x;
    if (i >= args.n) return;
    uint32_t x = (uint32_t)i * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    x ^= x >> 13;
    args.to[i] = (uint16_t)((x & 0x81ffu) | 0x3e00u);
}

struct device_measure {
    struct backend *backend;
    char *from, *to;
    size_t copy_bytes;
    int n; /* rows and columns of the matrices */
};

static void measure_copy(struct device_measure *measure) {
    work_flush(measure->backend);
    cuda_ok(measure->backend,
            cudaMemcpyAsync(measure->to, measure->from, measure->copy_bytes,
                            cudaMemcpyDeviceToDevice, cuda_of(measure->backend)->stream),
            "copying");
}

static void measure_multiply(struct device_measure *measure) {
    size_t matrix = (size_t)measure->n * (size_t)measure->n;
    struct gemm_args args = {};
    args.x = measure->from;
    args.w = measure->from + 2 * matrix;
    args.y = (float *)measure->to;
    args.x_stride = args.y_stride = measure->n;
    args.rows = args.n_out = args.n_in = measure->n;
    args.dtype = DTYPE_BF16;
    work_add(measure->backend, gemm_run, &args, sizeof args);
}

static int compare_doubles(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Seconds of one call: the median over rounds of `times` calls, after one that warms up. */
static double measure_seconds(struct device_measure *device_measure,
                              void (*call)(struct device_measure *device_measure), int times,
                              struct error *e) {
    double seconds[ROUNDS] = {};
    for (int round = -1; round < ROUNDS; round++) {
        double start = time_now();
        for (int i = 0; i < (round < 0 ? 1 : times); i++) call(device_measure);
        if (backend_sync(device_measure->backend, e)) return 0;
        if (round >= 0) seconds[round] = (time_now() - start) / times;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, compare_doubles);
    return seconds[ROUNDS / 2];
}

enum status cuda_measure(struct backend *backend, size_t copy_bytes, int n, struct cuda_limits *out,
                         struct error *e) {
    size_t product_bytes = (size_t)n * (size_t)n * sizeof(float);
    struct device_measure measure = {};
    void *memory;
    measure.backend = backend;
    measure.copy_bytes = copy_bytes;
    measure.n = n;
    size_t half = copy_bytes > product_bytes ? copy_bytes : product_bytes;
    if (backend_alloc(backend, &memory, 2 * half, "measuring", e)) return e->status;
    measure.from = (char *)memory;
    measure.to = measure.from + half;
    struct fill_kernel_args args = {(uint16_t *)memory, (int64_t)(half / sizeof(uint16_t))};
    kernel_launch(backend, measure_fill_kernel, dim3(blocks_for(args.n, FILL_THREADS)),
                  FILL_THREADS, 0, args);
    double copy = measure_seconds(&measure, measure_copy, COPIES, e);
    double multiply = copy > 0 ? measure_seconds(&measure, measure_multiply, PRODUCTS, e) : 0;
    backend_release(backend, memory);
    if (multiply <= 0) return e->status;
    out->copy_gbps = 2e-9 * (double)copy_bytes / copy;
    out->gemm_tflops = 2e-12 * (double)n * n * n / multiply;
    return STATUS_OK;
}
