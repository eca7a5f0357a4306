/* retrieval/index/index_faiss_gpu.c: an index of FAISS on a GPU. It is loaded by the CPU and may
 * then move. FAISS ends the process when CUDA fails at the wrong place, so whatever can be known
 * before (is there a GPU, does the index fit, is it of a kind that can move) is asked first. */
#if HAVE_FAISS

#include <stdlib.h>
#include <string.h>

#include "retrieval/index/index_faiss.h"

#if HAVE_FAISS_GPU

/* FAISS keeps TEMPORARY for a search's intermediate results, which hold some hundred queries at
 * once, and allocates what a larger search needs beyond it. ROOM is for cuBLAS and for what else
 * allocates beside us. */
#define GPU_TEMPORARY ((size_t)256 << 20)
#define GPU_ROOM ((size_t)256 << 20)

/* Exact search, and inverted files of whole vectors around exact centres: what FAISS searches on a
 * GPU with the CPU's results. *lists is 0 for the first. */
static bool can_move(FaissIndex *index, size_t *lists) {
    FaissIndexIVFFlat *ivf = faiss.IndexIVFFlat_cast(index);
    *lists = ivf ? faiss.IndexIVFFlat_nlist(ivf) : 0;
    return ivf ? faiss.IndexFlat_cast(faiss.IndexIVFFlat_quantizer(ivf)) != NULL
               : faiss.IndexFlat_cast(index) != NULL;
}

struct gpu_facts {
    size_t available, total; /* bytes */
    int major, minor;        /* compute capability */
};

/* The calling thread goes on with the device that it had. */
static cudaError_t ask_gpu(int gpu, struct gpu_facts *facts) {
    int before = 0;
    cudaError_t failed = cudaGetDevice(&before);
    if (failed == cudaSuccess) failed = cudaSetDevice(gpu);
    if (failed == cudaSuccess) failed = cudaMemGetInfo(&facts->available, &facts->total);
    if (failed == cudaSuccess)
        failed = cudaDeviceGetAttribute(&facts->major, cudaDevAttrComputeCapabilityMajor, gpu);
    if (failed == cudaSuccess)
        failed = cudaDeviceGetAttribute(&facts->minor, cudaDevAttrComputeCapabilityMinor, gpu);
    cudaSetDevice(before);
    (void)cudaGetLastError(); /* FAISS would take it for a failure of its own */
    return failed;
}

/* FAISS_GPU_ARCHITECTURES is "80;90" or the like: code for these and their minor successors, with
 * PTX for all later ones where no "-real" follows. */
static bool built_for(int capability) {
    for (const char *p = FAISS_GPU_ARCHITECTURES; p; p = strchr(p, ';')) {
        char *end;
        int first = (int)strtol(p + (*p == ';'), &end, 10);
        bool later = strncmp(end, "-real", 5) != 0 || capability / 10 == first / 10;
        if (capability >= first && later) return true;
        p = end;
    }
    return false;
}

/* Lists are kept in groups of 32 vectors. */
static enum status check_gpu(const struct faiss_index *x, int gpu, size_t lists, struct error *e) {
    int n = 0;
    struct gpu_facts facts;
    size_t rows = (size_t)x->base.count + 33 * lists;
    size_t needed =
        rows * ((size_t)x->base.dim * sizeof(float) + sizeof(int64_t)) + GPU_TEMPORARY + GPU_ROOM;
    cudaError_t failed = cudaGetDeviceCount(&n);
    if (failed || gpu >= n)
        return error_set(e, STATUS_DEVICE, "cuda:%d: no such CUDA device (%s); use \"cpu\"", gpu,
                         failed   ? cudaGetErrorString(failed)
                         : n == 1 ? "there is one: cuda:0"
                                  : "there are fewer");
    failed = ask_gpu(gpu, &facts);
    if (failed) return error_set(e, STATUS_DEVICE, "cuda:%d: %s", gpu, cudaGetErrorString(failed));
    if (!built_for(10 * facts.major + facts.minor))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "cuda:%d: compute capability %d.%d, this build's FAISS is for " FAISS_GPU_ARCHITECTURES
            ": make deps CUDA=1 FAISS_GPUS=%d%d && make",
            gpu, facts.major, facts.minor, facts.major, facts.minor);
    if (needed > facts.available)
        return error_set(e, STATUS_NO_MEMORY,
                         "cuda:%d: the index needs %zu MiB, %zu of %zu are free; use \"cpu\"", gpu,
                         needed >> 20, facts.available >> 20, facts.total >> 20);
    return STATUS_OK;
}

void faiss_gpu_close(void *gpu) { faiss.StandardGpuResources_free(gpu); }

enum status faiss_index_move(struct index *base, int gpu, struct error *e) {
    struct faiss_index *x = (struct faiss_index *)base;
    size_t lists;
    if (x->gpu) return error_set(e, STATUS_INVALID, "cuda:%d: the index is on a GPU already", gpu);
    if (!can_move(x->faiss, &lists))
        return error_set(e, STATUS_UNSUPPORTED,
                         "cuda:%d: an index of this kind is searched by the CPU only; Flat and "
                         "IVF<lists>,Flat can be "
                         "on a GPU: build the collection again with one of them, or use \"cpu\"",
                         gpu);
    if (check_gpu(x, gpu, lists, e)) return e->status;
    FaissStandardGpuResources *resources;
    FaissGpuIndex *moved;
    if (faiss.StandardGpuResources_new(&resources)) return faiss_failed(e, "GPU");
    /* Pinned memory serves queries of hundreds of MiB. */
    if (faiss.StandardGpuResources_setTempMemory(resources, GPU_TEMPORARY) ||
        faiss.StandardGpuResources_setPinnedMemory(resources, 0) ||
        faiss.index_cpu_to_gpu(resources, gpu, x->faiss, &moved)) {
        faiss_failed(e, "moving the index to the GPU");
        faiss.StandardGpuResources_free(resources);
        return STATUS_INTERNAL;
    }
    faiss.Index_free(x->faiss);
    x->faiss = moved;
    x->mapped = NULL;
    x->lists_on_gpu = lists > 0;
    x->has_map = false;
    x->gpu = resources;
    return STATUS_OK;
}

#else

void faiss_gpu_close(void *gpu) { CHECK(gpu == NULL); }

enum status faiss_index_move(struct index *base, int gpu, struct error *e) {
    (void)base;
    return error_set(e, STATUS_UNSUPPORTED,
                     "cuda:%d: this build's FAISS has no GPU support: make deps CUDA=1 && make",
                     gpu);
}

#endif

#endif
