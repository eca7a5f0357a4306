/* kernels/cuda/backend.cu: the CUDA device: its table, memory and stream. See cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

enum { RUNNING_BYTES = 384 << 20 };

/* The runtime keeps the failure for whoever asks for the latest one in this thread: libraries do
 * after their own calls, and would take ours for theirs. */
bool cuda_ok(struct backend *backend, cudaError_t code, const char *what) {
    if (code == cudaSuccess) return true;
    (void)cudaGetLastError();
    if (backend->error.status == STATUS_OK)
        error_set(&backend->error,
                  code == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_DEVICE,
                  "%s: %s: %s", cuda_of(backend)->description, what, cudaGetErrorString(code));
    return false;
}

/* The table's memory and order. */

static const char *cuda_describe(const struct backend *backend) {
    return cuda_of(backend)->description;
}

void *cuda_alloc(struct backend *backend, size_t bytes) {
    struct cuda *cuda = cuda_of(backend);
    void *p = NULL;
    cudaError_t code = cudaSetDevice(cuda->ordinal);
    if (code == cudaSuccess) code = cudaMalloc(&p, bytes ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return NULL; /* which the caller reports */
    }
    if (cuda_ok(backend, code, "taking memory") &&
        cuda_ok(backend, cudaMemsetAsync(p, 0, bytes ? bytes : 1, cuda->stream), "zeroing memory"))
        return p;
    cudaFree(p);
    return NULL;
}

static void cuda_release(struct backend *backend, void *p) {
    if (p == NULL) return;
    work_flush(backend);
    cudaFree(p); /* waits for the device */
}

/* RUNNING_BYTES are left for what is taken while a model runs: workspaces, graphs, the code of
 * kernels when they are first launched, and what the driver rounds allocations up to. */
static size_t cuda_available(struct backend *backend) {
    size_t available, all;
    bool known = cudaSetDevice(cuda_of(backend)->ordinal) == cudaSuccess &&
                 cudaMemGetInfo(&available, &all) == cudaSuccess;
    if (!known) return SIZE_MAX;
    return available > RUNNING_BYTES ? available - RUNNING_BYTES : 0;
}

/* The host's array is its owner's again on return. CUDA promises that of no copy but a finished
 * one. */
static void cuda_upload(struct backend *backend, void *device, const void *host, size_t bytes) {
    if (backend->error.status || bytes == 0) return;
    work_flush(backend);
    cudaStream_t stream = cuda_of(backend)->stream;
    if (cuda_ok(backend, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream),
                "copying to it"))
        cuda_ok(backend, cudaStreamSynchronize(stream), "copying to it");
}

enum status cuda_sync(struct backend *backend, struct error *e) {
    work_sync(backend);
    enum status status = backend->error.status;
    if (status && e != NULL) *e = backend->error;
    backend->error.status = STATUS_OK;
    return status;
}

static void cuda_close(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    if (cuda == NULL) return;
    cudaSetDevice(cuda->ordinal); /* whatever thread closes it */
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    graphs_close(&cuda->graphs);
    struct workspace *all[] = {&cuda->inputs,  &cuda->tile,    &cuda->partials,
                               &cuda->results, &cuda->experts, &cuda->deltas};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) cudaFree(all[i]->data);
    work_close(cuda);
    loading_close(&cuda->loading);
    gemm_close(cuda->gemm);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda->pieces.data);
    free(cuda->combines.data);
    free(cuda->blocks.data);
    free(cuda->sorted.data);
    free(cuda->expert_weights.data);
    free(cuda->spans.data);
    free(cuda);
    backend->device = NULL;
}

/* In the order of struct backend_ops; every member's type differs from its neighbours', so a slip
 * does not compile. The two NULLs say that there is no packed layout that files may hold. */
#define CUDA_COLUMN(name) cuda_##name,
static const struct backend_ops cuda_ops = {"cuda",         cuda_describe,
                                            cuda_alloc,     cuda_release,
                                            cuda_available, cuda_upload,
                                            cuda_fetch,     cuda_sync,
                                            cuda_close,     cuda_pack,
                                            NULL,           NULL,
                                            NULL,           BACKEND_OPERATIONS(CUDA_COLUMN)};

void *cuda_stream(struct backend *backend) {
    if (backend->ops != &cuda_ops || cudaSetDevice(cuda_of(backend)->ordinal) != cudaSuccess)
        return NULL;
    work_flush(backend);
    return (void *)cuda_of(backend)->stream;
}

void cuda_watch_set(struct backend *backend, struct cuda_watch watch) {
    cuda_of(backend)->watch = watch;
    cuda_of(backend)->graphs.off = true;
}

static enum status cuda_open_parts(struct backend *backend, struct error *e) {
    struct cuda *cuda = cuda_of(backend);
    cudaDeviceProp the_cudaDeviceProp;
    if (!cuda_ok(backend, cudaSetDevice(cuda->ordinal), "choosing it") ||
        !cuda_ok(backend, cudaGetDeviceProperties(&the_cudaDeviceProp, cuda->ordinal),
                 "asking what it is"))
        return cuda_sync(backend, e);
    snprintf(cuda->description, sizeof cuda->description, "cuda:%d %.60s, %.1f GiB, sm_%d%d",
             cuda->ordinal, the_cudaDeviceProp.name,
             (double)the_cudaDeviceProp.totalGlobalMem / (1 << 30), the_cudaDeviceProp.major,
             the_cudaDeviceProp.minor);
    if (the_cudaDeviceProp.major < 8)
        return error_set(e, STATUS_UNSUPPORTED, "%s: compute capability 8.0 or later is needed",
                         cuda->description);
    if (!cuda_ok(backend, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                 "a stream") ||
        !work_open(backend)) {
        *e = backend->error;
        return e->status;
    }
    return gemm_open(&cuda->gemm, e);
}

bool cuda_present() {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n > 0;
    (void)cudaGetLastError();
    return false;
}

/* The runtime says of a machine without any driver what it says of an old one. */
static const char *why_none(cudaError_t code, char *text, size_t size) {
    int driver = 0, runtime = 0;
    (void)cudaGetLastError();
    if (code == cudaSuccess) return "the driver finds none";
    if (code != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver) != cudaSuccess ||
        cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        return cudaGetErrorString(code);
    if (driver == 0) return "there is no NVIDIA driver";
    snprintf(text, size, "the driver is for CUDA %d.%d, this build needs one for %d.%d",
             driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return text;
}

enum status cuda_open(struct backend *backend, const struct backend_options *options, int ordinal,
                      struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    char text[100];
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess || n == 0)
        return error_set(e, STATUS_UNSUPPORTED, "no CUDA device (%s); use \"cpu\"",
                         why_none(code, text, sizeof text));
    if (ordinal < 0 || ordinal >= n)
        return error_set(e, STATUS_UNSUPPORTED, "no CUDA device %d: there are %d, counted from 0",
                         ordinal, n);
    struct cuda *cuda = (struct cuda *)xcalloc(1, sizeof *cuda);
    cuda->ordinal = ordinal;
    cuda->graphs.off = options && options->eager;
    snprintf(cuda->description, sizeof cuda->description, "cuda:%d", ordinal);
    backend->ops = &cuda_ops;
    backend->device = cuda;
    enum status status = cuda_open_parts(backend, e);
    if (status) cuda_close(backend);
    return status;
}
