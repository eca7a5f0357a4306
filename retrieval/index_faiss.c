/* retrieval/index_faiss.c: the only file that includes FAISS (its C API). Inner product on unit vectors throughout, so
 * a similarity is a cosine. FAISS keeps the message of a failed call per thread until the next one: it is copied at
 * once. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/index.h"

void index_set_threads(int threads) { omp_set_num_threads(max_int(1, threads)); }

#if HAVE_FAISS

#include <faiss/c_api/AutoTune_c.h>
#include <faiss/c_api/Index_c.h>
#include <faiss/c_api/error_c.h>
#include <faiss/c_api/index_factory_c.h>
#include <faiss/c_api/index_io_c.h>

struct faiss_index {
    struct index base;
    FaissIndex *faiss;
};

enum { FLAT_LIMIT = 100000 };

/* An inverted file with 4 sqrt(N) lists, rounded to a power of two: 1024 lists at 100 000 vectors, 4096 at a million.
 */
void index_choose_factory(char *factory, size_t size, int64_t count) {
    if (count <= FLAT_LIMIT)
        snprintf(factory, size, "Flat");
    else
        snprintf(factory, size, "IVF%d,Flat", 1 << (int)lround(log2(4 * sqrt((double)count))));
}

static enum status faiss_failed(struct error *e, const char *what) {
    const char *text = faiss_get_last_error();
    return error_set(e, STATUS_INTERNAL, "FAISS: %s: %s", what, text ? text : "no message");
}

/* A search visits a sixteenth of the lists and at least 16: on the test's clustered vectors that finds more than 95 %
 * of the true ten nearest and reads about a tenth of the vectors. FAISS keeps the number in the file. */
static enum status set_probes(FaissIndex *index, const char *factory, struct error *e) {
    const char *ivf = strstr(factory, "IVF");
    int lists = ivf ? atoi(ivf + 3) : 0;
    if (lists <= 0) return STATUS_OK;
    FaissParameterSpace *space = NULL;
    if (faiss_ParameterSpace_new(&space)) return faiss_failed(e, "parameters");
    int probes = min_int(lists, max_int(16, lists / 16));
    enum status status = STATUS_OK;
    if (faiss_ParameterSpace_set_index_parameter(space, index, "nprobe", probes)) status = faiss_failed(e, "nprobe");
    faiss_ParameterSpace_free(space);
    return status;
}

static enum status fill(FaissIndex *index, const char *factory, const float *vectors, int64_t count, struct error *e) {
    if (!faiss_Index_is_trained(index) && faiss_Index_train(index, count, vectors))
        return faiss_failed(e, "training the index (does it have more lists or codes than there are vectors?)");
    if (faiss_Index_add(index, count, vectors)) return faiss_failed(e, "adding vectors");
    return set_probes(index, factory, e);
}

enum status index_build_faiss(const char *path, const char *factory, const float *vectors, int64_t count, int dim,
                              struct error *e) {
    char chosen[64];
    FaissIndex *index = NULL;
    if (factory == NULL) {
        index_choose_factory(chosen, sizeof chosen, count);
        factory = chosen;
    }
    if (faiss_index_factory(&index, dim, factory, METRIC_INNER_PRODUCT)) {
        faiss_failed(e, factory);
        if (e) e->status = STATUS_INVALID;
        return STATUS_INVALID;
    }
    enum status status = fill(index, factory, vectors, count, e);
    if (status == STATUS_OK && faiss_write_index_fname(index, path)) status = faiss_failed(e, path);
    faiss_Index_free(index);
    return status;
}

/* FAISS leaves equal similarities in any order: the lower id comes first, as in exact search. */
static void order_ties(int64_t *ids, float *similarities, int k) {
    for (int i = 1; i < k; i++)
        for (int j = i; j > 0 && similarities[j] == similarities[j - 1] && ids[j] >= 0 && ids[j] < ids[j - 1]; j--) {
            int64_t id = ids[j];
            ids[j] = ids[j - 1];
            ids[j - 1] = id;
        }
}

static enum status faiss_index_search(const struct index *base, struct index_query query, int64_t *ids,
                                      float *similarities, struct error *e) {
    int n = query.n, k = query.k;
    const struct faiss_index *x = (const struct faiss_index *)base;
    if (n < 0 || k < 1) return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours", n, k);
    /* FAISS returns without writing anything when the index is empty. */
    for (size_t i = 0; i < (size_t)n * (size_t)k; i++) ids[i] = -1;
    if (n > 0 && faiss_Index_search(x->faiss, n, query.vectors, k, similarities, ids)) return faiss_failed(e, "search");
    for (int q = 0; q < n; q++) {
        int64_t *row = ids + (size_t)q * (size_t)k;
        float *row_similarities = similarities + (size_t)q * (size_t)k;
        for (int i = 0; i < k; i++) {
            if (row[i] >= base->count)
                return error_set(e, STATUS_CORRUPT, "index: neighbour %lld of %lld vectors; build the collection again",
                                 (long long)row[i], (long long)base->count);
            if (row[i] < 0) {
                row[i] = -1;
                row_similarities[i] = -2;
            }
        }
        order_ties(row, row_similarities, k);
    }
    return STATUS_OK;
}

static enum status faiss_index_vectors(const struct index *base, int64_t first, int n, float *vectors,
                                       struct error *e) {
    const struct faiss_index *x = (const struct faiss_index *)base;
    if (first < 0 || n < 0 || first > base->count - n)
        return error_set(e, STATUS_INVALID, "vectors %lld .. %lld of %lld", (long long)first, (long long)first + n,
                         (long long)base->count);
    if (n > 0 && faiss_Index_reconstruct_n(x->faiss, first, n, vectors)) return faiss_failed(e, "reading vectors");
    return STATUS_OK;
}

static void faiss_index_close(struct index *base) {
    struct faiss_index *x = (struct faiss_index *)base;
    faiss_Index_free(x->faiss);
    free(x);
}

static const struct index_ops faiss_ops = {
    .name = "faiss", .search = faiss_index_search, .vectors = faiss_index_vectors, .close = faiss_index_close};

enum status index_open_faiss(struct index **out, const char *path, int64_t count, int dim, struct error *e) {
    FaissIndex *index = NULL;
    if (faiss_read_index_fname(path, 0, &index)) return faiss_failed(e, path);
    if (faiss_Index_d(index) != dim || faiss_Index_ntotal(index) != count || !faiss_Index_is_trained(index) ||
        faiss_Index_metric_type(index) != METRIC_INNER_PRODUCT) {
        error_set(e, STATUS_CORRUPT, "%s: %lld vectors of %d numbers, metric %d; expected %lld of %d, inner product",
                  path, (long long)faiss_Index_ntotal(index), faiss_Index_d(index), (int)faiss_Index_metric_type(index),
                  (long long)count, dim);
        faiss_Index_free(index);
        return STATUS_CORRUPT;
    }
    struct faiss_index *x = xmalloc(sizeof *x);
    *x = (struct faiss_index){.base = {.ops = &faiss_ops, .dim = dim, .count = count}, .faiss = index};
    *out = &x->base;
    return STATUS_OK;
}

#else

void index_choose_factory(char *factory, size_t size, int64_t count) {
    (void)count;
    snprintf(factory, size, "%s", INDEX_EXACT);
}

enum status index_build_faiss(const char *path, const char *factory, const float *vectors, int64_t count, int dim,
                              struct error *e) {
    (void)vectors, (void)count, (void)dim;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: index %s needs FAISS, which this build lacks; run make deps and build "
                     "again, or use --index " INDEX_EXACT,
                     path, factory ? factory : "by size");
}

enum status index_open_faiss(struct index **out, const char *path, int64_t count, int dim, struct error *e) {
    (void)out, (void)count, (void)dim;
    return error_set(e, STATUS_UNSUPPORTED, "%s: needs FAISS, which this build lacks; run make deps and build again",
                     path);
}

#endif
