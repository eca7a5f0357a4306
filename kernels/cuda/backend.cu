/* kernels/cuda/backend.cu: the CUDA device: its table, memory, stream, and how host arrays reach it. See cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

bool cuda_ok(struct backend *b, cudaError_t code, const char *what) {
    if (code == cudaSuccess) return true;
    if (b->error.status == STATUS_OK)
        error_set(&b->error, code == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_DEVICE, "%s: %s: %s",
                  cuda_of(b)->description, what, cudaGetErrorString(code));
    return false;
}

/* Staging. */

static bool ring_open(struct backend *b) {
    struct ring *r = &cuda_of(b)->ring;
    size_t bytes = (size_t)RING_SEGMENTS * RING_SEGMENT_BYTES;
    bool ok = cuda_ok(b, cudaMallocHost((void **)&r->host, bytes), "pinned memory for arguments") &&
              cuda_ok(b, cudaMalloc((void **)&r->device, bytes), "memory for arguments");
    for (int i = 0; i < RING_SEGMENTS && ok; i++)
        ok = cuda_ok(b, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "an event");
    return ok;
}

static void ring_close(struct ring *r) {
    for (int i = 0; i < RING_SEGMENTS; i++)
        if (r->done[i]) cudaEventDestroy(r->done[i]);
    cudaFree(r->device);
    cudaFreeHost(r->host);
}

/* A copy of the same bytes that was made a moment ago. */
static const void *ring_find(const struct ring *r, const void *host, size_t bytes) {
    for (int i = 0; i < RING_REMEMBERED; i++)
        if (r->latest[i].bytes == bytes && memcmp(r->host + r->latest[i].at, host, bytes) == 0)
            return r->device + r->latest[i].at;
    return NULL;
}

/* Leaves the segment in which the next array has no room and waits until the device has read the one after it. */
static bool ring_advance(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    struct ring *r = &cuda->ring;
    size_t segment = r->at / RING_SEGMENT_BYTES, next = (segment + 1) % RING_SEGMENTS;
    if (!cuda_ok(b, cudaEventRecord(r->done[segment], cuda->stream), "an event")) return false;
    r->used[segment] = true;
    if (r->used[next] && !cuda_ok(b, cudaEventSynchronize(r->done[next]), "waiting for arguments")) return false;
    r->at = next * RING_SEGMENT_BYTES;
    /* Only copies of this segment serve again: an op that takes several arrays may go through the others. */
    memset(r->latest, 0, sizeof r->latest);
    return true;
}

const void *cuda_stage(struct backend *b, const void *host, size_t bytes) {
    struct cuda *cuda = cuda_of(b);
    struct ring *r = &cuda->ring;
    if (b->error.status || bytes == 0) return NULL;
    if (bytes > RING_SEGMENT_BYTES) {
        error_set(&b->error, STATUS_TOO_LARGE, "%s: an argument of %zu bytes, the limit is %d; use smaller steps",
                  cuda->description, bytes, RING_SEGMENT_BYTES);
        return NULL;
    }
    const void *found = ring_find(r, host, bytes);
    if (found) return found;
    size_t room = RING_SEGMENT_BYTES - r->at % RING_SEGMENT_BYTES;
    if (bytes > room && !ring_advance(b)) return NULL;
    char *from = r->host + r->at, *to = r->device + r->at;
    memcpy(from, host, bytes);
    if (!cuda_ok(b, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda->stream), "copying arguments"))
        return NULL;
    r->latest[r->next].at = r->at;
    r->latest[r->next].bytes = bytes;
    r->next = (r->next + 1) % RING_REMEMBERED;
    r->at += (bytes + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    /* A full segment is left at once: the end of the last one is not a place in the ring. */
    if (r->at % RING_SEGMENT_BYTES == 0) {
        r->at -= RING_ALIGNMENT;
        if (!ring_advance(b)) return NULL;
    }
    return to;
}

void *workspace_reserve(struct backend *b, struct workspace *w, size_t bytes) {
    if (b->error.status) return NULL;
    if (bytes <= w->bytes) return w->data;
    cuda_ok(b, cudaFree(w->data), "growing a workspace"); /* waits for the ops that use it */
    *w = {NULL, 0};
    if (!cuda_ok(b, cudaMalloc(&w->data, bytes), "growing a workspace")) return NULL;
    w->bytes = bytes;
    return w->data;
}

void *host_list_reserve(struct host_list *l, size_t bytes) {
    if (bytes > l->bytes) {
        l->data = xrealloc(l->data, bytes);
        l->bytes = bytes;
    }
    return l->data;
}

/* The table's memory and order. */

static const char *cuda_describe(const struct backend *b) { return cuda_of(b)->description; }

static void *cuda_alloc(struct backend *b, size_t bytes) {
    struct cuda *cuda = cuda_of(b);
    void *p = NULL;
    if (cudaSetDevice(cuda->ordinal) != cudaSuccess || cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) return NULL;
    if (cudaMemsetAsync(p, 0, bytes ? bytes : 1, cuda->stream) == cudaSuccess) return p;
    cudaFree(p);
    return NULL;
}

static void cuda_release(struct backend *, void *p) { cudaFree(p); }

static void cuda_upload(struct backend *b, void *device, const void *host, size_t bytes) {
    if (b->error.status || bytes == 0) return;
    cuda_ok(b, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_of(b)->stream), "copying to it");
}

static void cuda_download(struct backend *b, void *host, const void *device, size_t bytes) {
    if (b->error.status || bytes == 0) return;
    cuda_ok(b, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_of(b)->stream), "copying from it");
}

static enum status cuda_sync(struct backend *b, struct error *e) {
    cuda_ok(b, cudaStreamSynchronize(cuda_of(b)->stream), "running the step");
    enum status s = b->error.status;
    if (s && e != NULL) *e = b->error;
    b->error.status = STATUS_OK;
    return s;
}

static void cuda_close(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    if (cuda == NULL) return;
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    struct workspace *all[] = {&cuda->inputs, &cuda->partials, &cuda->results};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) cudaFree(all[i]->data);
    ring_close(&cuda->ring);
    gemm_close(cuda->gemm);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda->pieces.data);
    free(cuda->combines.data);
    free(cuda);
    b->device = NULL;
}

/* Rows go to the device as the host has them, [n_out, n_in]; only the dtype is converted. */
enum status cuda_pack(struct backend *b, struct weight *w, const struct host_matrix *host, struct error *e) {
    if (dtype_quantised(w->dtype))
        return error_set(e, STATUS_UNSUPPORTED, "%s: %s weights run on the CPU only; convert the model to bf16",
                         cuda_of(b)->description, dtype_name(w->dtype));
    size_t n = (size_t)w->n_out * (size_t)w->n_in, bytes = n * dtype_bytes(w->dtype);
    w->data = cuda_alloc(b, bytes);
    void *converted = w->dtype == host->dtype ? NULL : malloc(bytes);
    if (w->data == NULL || (converted == NULL && w->dtype != host->dtype)) {
        cudaFree(w->data);
        w->data = NULL;
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for a [%d, %d] %s weight; use a smaller model or dtype",
                         cuda_of(b)->description, w->n_out, w->n_in, dtype_name(w->dtype));
    }
    if (converted) dtype_convert(converted, w->dtype, host->values, host->dtype, n);
    cuda_upload(b, w->data, converted ? converted : host->values, bytes);
    enum status s = cuda_sync(b, e);
    free(converted);
    return s;
}

/* In the order of struct backend_ops; every member's type differs from its neighbours', so a slip does not compile. The
 * two NULLs say that there is no packed layout that files may hold. */
static const struct backend_ops cuda_ops = {
    "cuda",           cuda_describe,     cuda_alloc,     cuda_release, cuda_upload, cuda_download,
    cuda_sync,        cuda_close,        cuda_pack,      NULL,         NULL,        cuda_linear,
    cuda_attention,   cuda_norm,         cuda_add,       cuda_glu,     cuda_embed,  cuda_rope,
    cuda_gather_rows, cuda_scatter_rows, cuda_mean_rows, cuda_sample,
};

void *cuda_stream(const struct backend *b) {
    if (b->ops != &cuda_ops || cudaSetDevice(cuda_of(b)->ordinal) != cudaSuccess) return NULL;
    return (void *)cuda_of(b)->stream;
}

static enum status open_parts(struct backend *b, struct error *e) {
    struct cuda *cuda = cuda_of(b);
    cudaDeviceProp p;
    if (!cuda_ok(b, cudaSetDevice(cuda->ordinal), "choosing it") ||
        !cuda_ok(b, cudaGetDeviceProperties(&p, cuda->ordinal), "asking what it is"))
        return cuda_sync(b, e);
    snprintf(cuda->description, sizeof cuda->description, "cuda:%d %.60s, %.1f GiB, sm_%d%d", cuda->ordinal, p.name,
             (double)p.totalGlobalMem / (1 << 30), p.major, p.minor);
    if (p.major < 8)
        return error_set(e, STATUS_UNSUPPORTED, "%s: compute capability 8.0 or later is needed", cuda->description);
    if (!cuda_ok(b, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "a stream") || !ring_open(b)) {
        *e = b->error;
        return e->status;
    }
    return gemm_open(&cuda->gemm, e);
}

enum status cuda_open(struct backend *b, const struct backend_options *, int ordinal, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess || n == 0)
        return error_set(e, STATUS_UNSUPPORTED, "no CUDA device (%s); use \"cpu\"",
                         code == cudaSuccess ? "the driver finds none" : cudaGetErrorString(code));
    if (ordinal < 0 || ordinal >= n)
        return error_set(e, STATUS_UNSUPPORTED, "no CUDA device %d: there are %d, counted from 0", ordinal, n);
    struct cuda *cuda = (struct cuda *)xcalloc(1, sizeof *cuda);
    cuda->ordinal = ordinal;
    snprintf(cuda->description, sizeof cuda->description, "cuda:%d", ordinal);
    b->ops = &cuda_ops;
    b->device = cuda;
    enum status s = open_parts(b, e);
    if (s) cuda_close(b);
    return s;
}
