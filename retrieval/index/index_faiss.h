/* retrieval/index/index_faiss.h: an index of FAISS. Private to index_faiss.c,
 * index_faiss_lists.c, which searches mapped lists, and index_faiss_gpu.c, which moves it to a
 * GPU. */
#pragma once

#include <pthread.h>

#include "config/base/buffer.h"
#include "retrieval/index/faiss_api.h"
#include "retrieval/index/index.h"

struct faiss_index {
    struct index base;
    FaissIndex *faiss;
    FaissIndexIVF *mapped;    /* the same, where its lists are mapped; else NULL */
    void *gpu;                /* FaissStandardGpuResources, NULL on the CPU */
    bool lists_on_gpu;        /* from where FAISS reads no vectors back */
    bool has_map;             /* an inverted file that knows in which list each vector is */
    pthread_mutex_t gpu_lock; /* an index on a GPU works for one thread at a time */
};

/* STATUS_INTERNAL with the message of the call that failed last in this thread, which did `what`.
 */
enum status faiss_failed(struct error *e, const char *what);
/* Whether a mapped file is an inverted file, with nothing before or behind it. */
bool faiss_lists_are_in(const struct file_map *map);
/* Reads one; its lists stay in the file. */
enum status faiss_lists_open(FaissIndex **out, const char *path, struct error *e);
/* Searches faiss_index->mapped; not 0: FAISS failed. */
int faiss_lists_search(const struct faiss_index *faiss_index, struct index_query query,
                       int64_t *ids, float *similarities);
/* An index's move; STATUS_UNSUPPORTED where FAISS was built without GPUs. */
enum status faiss_index_move(struct index *base, int gpu, struct error *e);
void faiss_gpu_close(void *gpu); /* faiss_index->gpu, when the index is closed; NULL: nothing */
