/* kernels/cuda/cuda.h: private to the CUDA backend: its state, the list of work, staging of host
 * arrays, and the ops.
 *
 * The sources are C++ because nvcc is; the headers of the seams are C. One stream, everything in
 * order. Ops only write down what to do; the list runs when somebody waits, as one CUDA graph if
 * the same list came before: then its commands are equal to the byte, and only what the ring holds
 * differs. Nothing allocates in an op but what grows once to the largest step seen: device
 * workspace and the host's lists. */
#pragma once

#include <cuda_runtime.h>

/* C++ spells _Noreturn differently, and CUDA has a C function `norm` of its own: ours gets another
 * name in these sources, which never call it. */
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
    RING_ALIGNMENT = 64,
    INBOX_BYTES = 1 << 16, /* longer results are copied straight to where they belong */
    INBOX_ITEMS = 16,
    LOADING_ELEMENTS = 2 << 20, /* of a weight that are converted and copied at a time */
    GRAPHS = 64,                /* lists that are kept as graphs */
    GRAPHS_SEEN = 256,          /* lists of which it is remembered that they came once */
    LOOK_MS = 20                /* between two looks of who watches a wait */
};

/* Host arrays on their way to the device. Each is copied to pinned memory and has a place in device
 * memory at the same offset; what was added since goes over in one copy when the list of work is
 * launched. Both are rings of segments: a segment is written again only after the event at its end,
 * so a host that is far ahead waits here. A step hands the same arrays to every layer; the latest
 * are compared with what is asked for, and a copy that is there serves again. After a wait for the
 * device the ring starts over, so that equal steps find their arrays at equal places. */
struct ring {
    char *host, *device;
    cudaEvent_t done[RING_SEGMENTS]; /* recorded when the ring leaves a segment */
    bool used[RING_SEGMENTS];
    int segment;
    size_t filled, sent; /* bytes of the segment: written, and on the device */
    struct {
        const void *array;
        size_t at, bytes; /* bytes 0: nothing */
    } latest[RING_REMEMBERED];
    int next; /* of `latest` */
    const void
        *scattered; /* the copy of indices that was last looked through for one that occurs twice */
    bool repeats;   /* there was one */
};

/* Small results on their way to the host: through pinned memory, handed over by the next sync. */
struct inbox {
    char *host;
    struct {
        void *to;
        size_t at, bytes;
    } items[INBOX_ITEMS];
    int n;
    size_t used;
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

/* Work that ops have asked for and the device does not have yet: a row of commands, each with the
 * bytes that its function reads. */
struct work {
    struct host_list commands;
    size_t bytes, latest; /* latest: where the last command begins, if that is before `bytes` */
    int n;
};

/* Weights on their way to the device (pack.cu). */
struct weight_loading {
    char *host; /* pinned; NULL before the first weight */
    cudaEvent_t read[2];
};

/* One list of work as a graph. */
struct graph {
    char *commands;
    size_t bytes;
    uint64_t hash, last_used;
    cudaGraphExec_t exec;
};

struct graphs {
    struct graph kept[GRAPHS];
    int n;
    uint64_t seen[GRAPHS_SEEN]; /* hashes */
    uint64_t clock, captured, launched;
    bool off; /* every list is run by its commands */
};

/* The state behind backend->device. */
struct cuda {
    int ordinal;
    cudaStream_t stream;
    struct ring ring;
    struct inbox inbox;
    struct weight_loading loading;
    struct work work;
    struct graphs graphs;
    struct gemm *gemm;
    struct cuda_watch watch;
    struct workspace inputs, tile, partials, results, experts,
        deltas; /* linear: converted x, W; attention: parts of keys; sample: ids; experts
                   and delta: all */
    struct host_list pieces, combines, blocks, sorted, expert_weights,
        spans; /* attention; scatter_rows; experts; delta */
    char description[120];
};

static inline struct cuda *cuda_of(const struct backend *backend) {
    return (struct cuda *)backend->device;
}

/* False, with the failure kept in the backend, when `code` is one. */
bool cuda_ok(struct backend *backend, cudaError_t code, const char *what);

/* work.cu: ops add to the list of work; it is launched before anything that is not in it touches
 * the device. */
typedef void work_function(struct backend *b, const void *arguments);
/* Lists are compared as bytes, so `arguments` have no padding. */
void work_add(struct backend *backend, work_function *run, const void *arguments, size_t bytes);
/* Also makes the backend's device this thread's, with work or without: a thread begins with the
 * first GPU, and what it allocated there would be of no use to another. */
void work_flush(struct backend *backend);
/* The arguments of the command that was listed last, if `run` is its function; valid until the next
 * is added. */
const void *work_latest(struct backend *backend, work_function *run);
/* Takes it off the list. */
void work_take_back(struct backend *backend);
/* Calls every command's function in order. */
void work_run(struct backend *backend);
bool work_open(struct backend *backend);
void work_close(struct cuda *cuda);
/* Launches, waits for the device, hands over what came back. */
bool work_sync(struct backend *backend);
/* The device copy of a host array, valid for the ops enqueued until the ring comes round; NULL
 * after a failure. */
const void *cuda_stage(struct backend *backend, const void *host, size_t bytes);
/* `bytes` of device memory will be at `host` after the next sync. */
void cuda_fetch(struct backend *backend, void *host, const void *device, size_t bytes);
/* At least `bytes` of device memory; NULL after a failure. Growing waits for the device. */
void *workspace_reserve(struct backend *backend, struct workspace *workspace, size_t bytes);
void *host_list_reserve(struct host_list *list, size_t bytes);

/* Weights in the layout of blocks.cuh. */
static inline bool in_blocks(enum dtype dtype) {
    return dtype_quantised(dtype) || dtype == DTYPE_FP8;
}

/* backend.cu: members of the table that others use. */
void *cuda_alloc(struct backend *backend, size_t bytes);
enum status cuda_sync(struct backend *backend, struct error *e);
/* pack.cu */
void loading_close(struct weight_loading *loading);

/* graph.cu: runs the list as a graph where it came before, else by its commands. */
void graphs_run(struct backend *backend);
void graphs_close(struct graphs *graphs);

enum status cuda_pack(struct backend *backend, struct weight *weight,
                      const struct host_matrix *host, struct error *e);
#define CUDA_PROTOTYPE(name) void cuda_##name(struct backend *b, const struct name##_args *a);
BACKEND_OPERATIONS(CUDA_PROTOTYPE)
