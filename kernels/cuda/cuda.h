/* kernels/cuda/cuda.h: private to the CUDA backend: its state, staging of host arrays, and the ops.
 *
 * The sources are C++ because nvcc is; the headers of the seams are C. One stream, everything in order. Nothing
 * allocates in an op but what grows once to the largest step seen: device workspace and the host's lists of work. */
#pragma once

#include <cuda_runtime.h>

/* C++ spells _Noreturn differently, and CUDA has a C function `norm` of its own: ours gets another name in these
 * sources, which never call it. */
#define _Noreturn [[noreturn]]
#define norm norm_op
extern "C" {
#include "kernels/cuda/open.h"
}
#undef norm
#undef _Noreturn

enum {
    RING_SEGMENTS = 4,
    RING_SEGMENT_BYTES = 4 << 20, /* also the largest array an op can take */
    RING_REMEMBERED = 32,         /* arrays that are looked up again before they are copied again */
    RING_ALIGNMENT = 64
};

/* Host arrays on their way to the device. Each is copied to pinned memory, where the GPU fetches it in its own time,
 * and gets a place in device memory of the same size. Both are rings of segments: a segment is written again only after
 * the event at its end, so a host that is far ahead waits here. A step hands the same arrays to every layer; the latest
 * are compared with what is asked for, and a copy that is still there serves again. */
struct ring {
    char *host, *device;
    cudaEvent_t done[RING_SEGMENTS]; /* recorded when the ring leaves a segment */
    bool used[RING_SEGMENTS];
    size_t at; /* next free byte of the ring */
    struct {
        size_t at, bytes; /* bytes 0: nothing */
    } latest[RING_REMEMBERED];
    int next; /* of `latest` */
};

/* Device memory that grows to the largest request. */
struct workspace {
    void *data;
    size_t bytes;
};

/* Host memory likewise: lists of work made for one launch. */
struct host_list {
    void *data;
    size_t bytes;
};

/* The state behind backend->device. */
struct cuda {
    int ordinal;
    cudaStream_t stream;
    struct ring ring;
    struct gemm *gemm;
    struct workspace inputs, partials, results; /* linear: converted x; attention: parts of keys; sample: ids */
    struct host_list pieces, combines;          /* attention */
    char description[120];
};

static inline struct cuda *cuda_of(const struct backend *b) { return (struct cuda *)b->device; }

/* False, with the failure kept in the backend, when `code` is one. */
bool cuda_ok(struct backend *b, cudaError_t code, const char *what);
/* The device copy of a host array, valid for the ops enqueued until the ring comes round; NULL after a failure. */
const void *cuda_stage(struct backend *b, const void *host, size_t bytes);
/* At least `bytes` of device memory; NULL after a failure. Growing waits for the device. */
void *workspace_reserve(struct backend *b, struct workspace *w, size_t bytes);
void *host_list_reserve(struct host_list *l, size_t bytes);

enum status cuda_pack(struct backend *b, struct weight *w, const struct host_matrix *host, struct error *e);
void cuda_linear(struct backend *b, const struct linear_args *a);
void cuda_attention(struct backend *b, const struct attention_args *a);
void cuda_norm(struct backend *b, const struct norm_args *a);
void cuda_add(struct backend *b, const struct add_args *a);
void cuda_glu(struct backend *b, const struct glu_args *a);
void cuda_embed(struct backend *b, const struct embed_args *a);
void cuda_rope(struct backend *b, const struct rope_args *a);
void cuda_gather_rows(struct backend *b, const struct gather_rows_args *a);
void cuda_scatter_rows(struct backend *b, const struct scatter_rows_args *a);
void cuda_mean_rows(struct backend *b, const struct mean_rows_args *a);
void cuda_sample(struct backend *b, const struct sample_args *a);
