/* retrieval/index/faiss_api.h: FAISS' C API, opened when an index first needs it. A program that is
 * linked to FAISS loads OpenBLAS before main, whose initialiser asks for 128 MB of address space
 * per thread and repeats the question without end where a limit (ulimit -v) refuses. Opened late,
 * FAISS costs nothing where exact search is enough, and the room is checked first. */
#pragma once

#include <faiss/c_api/AutoTune_c.h>
#include <faiss/c_api/IndexFlat_c.h>
#include <faiss/c_api/IndexIVFFlat_c.h>
#include <faiss/c_api/IndexIVF_c.h>
#include <faiss/c_api/IndexPreTransform_c.h>
#include <faiss/c_api/Index_c.h>
#include <faiss/c_api/error_c.h>
#include <faiss/c_api/index_factory_c.h>
#include <faiss/c_api/index_io_c.h>
#if HAVE_FAISS_GPU
#include <faiss/c_api/gpu/GpuAutoTune_c.h>
#include <faiss/c_api/gpu/StandardGpuResources_c.h>
#include <faiss/c_api/gpu/architectures.h> /* written by tools/deps.sh */
#endif

#include "config/base/base.h"

/* The functions that are used, by their names without "faiss_". */
#define FAISS_FUNCTIONS(F) \
    F(IndexFlat_cast) \
    F(IndexIVFFlat_cast) \
    F(IndexIVFFlat_nlist) \
    F(IndexIVFFlat_quantizer) \
    F(IndexIVF_cast) \
    F(IndexIVF_make_direct_map) \
    F(IndexIVF_nprobe) \
    F(IndexIVF_quantizer) \
    F(IndexIVF_search_preassigned) \
    F(IndexPreTransform_cast) \
    F(IndexPreTransform_index) \
    F(Index_add) \
    F(Index_d) \
    F(Index_free) \
    F(Index_is_trained) \
    F(Index_metric_type) \
    F(Index_ntotal) \
    F(Index_reconstruct) \
    F(Index_reconstruct_n) \
    F(Index_search) \
    F(Index_train) \
    F(ParameterSpace_free) \
    F(ParameterSpace_new) \
    F(ParameterSpace_set_index_parameter) \
    F(get_last_error) \
    F(index_factory) \
    F(read_index) \
    F(write_index_fname)
#if HAVE_FAISS_GPU
#define FAISS_GPU_FUNCTIONS(F) \
    F(StandardGpuResources_free) \
    F(StandardGpuResources_new) \
    F(StandardGpuResources_setPinnedMemory) \
    F(StandardGpuResources_setTempMemory) \
    F(index_cpu_to_gpu)
#else
#define FAISS_GPU_FUNCTIONS(F)
#endif

struct faiss_api {
#define FAISS_MEMBER(name) __typeof__(faiss_##name) *name;
    FAISS_FUNCTIONS(FAISS_MEMBER)
    FAISS_GPU_FUNCTIONS(FAISS_MEMBER)
#undef FAISS_MEMBER
};

/* faiss.Index_search(...) is faiss_Index_search(...), once faiss_open has returned STATUS_OK in
 * this process. */
extern struct faiss_api faiss;

/* Any thread may call it, any number of times; the first success stays. Errors: STATUS_UNSUPPORTED
 * when the library is not there, STATUS_NO_MEMORY when a limit of the address space leaves too
 * little room. */
enum status faiss_open(struct error *e);

/* Before a call that multiplies matrices: whether OpenBLAS gets the buffer that it may ask for.
 * STATUS_NO_MEMORY. */
enum status faiss_check_room(struct error *e);
