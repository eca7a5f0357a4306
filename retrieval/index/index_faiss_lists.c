/* retrieval/index/index_faiss_lists.c: an inverted file of FAISS whose lists stay in the file that
 * it was read from, mapped: where memory is short the system takes their pages back.
 *
 * FAISS' own search reads such lists ahead, in 32 threads that it begins for each call and that
 * cost more than a search. So the centres are searched first and the lists after them, each by a
 * call of its own, in the order of FAISS' own search. */
#if HAVE_FAISS

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/index/index_faiss.h"

/* FAISS 1.7.3's IO_FLAG_MMAP of C++; the constant of that name in its C header is another's. */
enum { MAP_LISTS = 8 | 0x646f0000 };
/* The lists of so many queries are known at a time. */
enum { PIECE = 4096 };

bool faiss_lists_are_in(const struct file_map *map) {
    return map->size >= 4 && memcmp(map->data, "Iw", 2) == 0;
}

enum status faiss_lists_open(FaissIndex **out, const char *path, struct error *e) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) return error_errno(e, "%s: read", path);
    enum status status = STATUS_OK;
    if (faiss.read_index(stream, MAP_LISTS, out)) status = faiss_failed(e, path);
    fclose(stream);
    return status;
}

/* At most PIECE queries. Each is searched by one thread, so its results depend on no other. */
static int search_piece(const struct faiss_index *faiss_index, struct index_query query,
                        int64_t *ids, float *similarities) {
    FaissIndexIVF *lists = faiss_index->mapped;
    size_t n = (size_t)query.n, dim = (size_t)faiss_index->base.dim, k = (size_t)query.k,
           probes = faiss.IndexIVF_nprobe(lists);
    int64_t *nearest = xmalloc(n * probes * sizeof *nearest);
    float *centres = xmalloc(n * probes * sizeof *centres);
    int failed = faiss.Index_search(faiss.IndexIVF_quantizer(lists), query.n, query.vectors,
                                    (idx_t)probes, centres, nearest);
    int n_parallel = failed ? 0 : query.n;
#pragma omp parallel for schedule(dynamic) reduction(| : failed) if (n_parallel > 1)
    for (int i = 0; i < n_parallel; i++) {
        size_t at = (size_t)i;
        failed |= faiss.IndexIVF_search_preassigned(lists, 1, query.vectors + at * dim, query.k,
                                                    nearest + at * probes, centres + at * probes,
                                                    similarities + at * k, ids + at * k, 0);
    }
    free(nearest);
    free(centres);
    return failed;
}

int faiss_lists_search(const struct faiss_index *faiss_index, struct index_query query,
                       int64_t *ids, float *similarities) {
    int failed = 0;
    for (int first = 0; first < query.n && !failed; first += PIECE) {
        struct index_query piece = query;
        size_t at = (size_t)first * (size_t)query.k;
        piece.n = min_int(PIECE, query.n - first);
        piece.vectors += (size_t)first * (size_t)faiss_index->base.dim;
        failed = search_piece(faiss_index, piece, ids + at, similarities + at);
    }
    return failed;
}

#else

/* A translation unit is not empty. */
typedef int faiss_lists_are_left_out;

#endif
