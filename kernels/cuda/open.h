/* kernels/cuda/open.h: the CUDA backend's entry points for C: kernels/device/backend.c opens it,
 * retro-bench measures it. */
#pragma once

#include "kernels/backend.h"

/* Whether there is a device at all. */
bool cuda_present(void);
/* Opens device `ordinal` into *backend. STATUS_UNSUPPORTED when there is none such. */
enum status cuda_open(struct backend *backend, const struct backend_options *options, int ordinal,
                      struct error *e);

/* Products of up to so many rows take x in f32; with more they round x to the type of bf16 and f16
 * weights, and x and int8, int4 and fp8 weights to bf16. */
enum { CUDA_FEW_ROWS = 16 };

/* The ceilings of an open CUDA device. */
struct cuda_limits {
    double copy_gbps;   /* 1e9 bytes a second, read plus written, of a copy within its memory */
    double gemm_tflops; /* 1e12 operations a second of a bf16 product with f32 sums */
};

/* Copies `copy_bytes` and multiplies two matrices [n, n] some times, for about a second at 1 GiB
 * and n = 8192. */
enum status cuda_measure(struct backend *backend, size_t copy_bytes, int n, struct cuda_limits *out,
                         struct error *e);

/* The stream (a cudaStream_t) that this thread's device runs the ops of the backend on, for NCCL;
 * NULL when the backend is no GPU. The call launches all ops so far, so that the caller's own work
 * comes after them: ask each time. */
void *cuda_stream(struct backend *backend);

/* Asked now and then while the host waits for the device, which may itself wait for other ranks:
 * `waited` seconds so far. An error ends the wait once the device has stopped, which is for who
 * returns it to bring about, and is what sync then reports. Between the calls of a communicator a
 * step is some hundred short lists of work, more than are kept as graphs and hardly worth it: a
 * backend that was ever watched launches op by op. */
struct cuda_watch {
    enum status (*look)(void *context, double waited, struct error *e); /* NULL: nobody asks */
    void *context;
};
void cuda_watch_set(struct backend *backend, struct cuda_watch watch);

/* How many steps were made a graph, and how often a graph was launched. */
void cuda_graph_counts(const struct backend *backend, uint64_t *captured, uint64_t *launched);
