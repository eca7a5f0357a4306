/* retrieval/index/index_flat.c: exact search in plain C: every query against every vector. It is
 * the reference that FAISS is tested against, and the index of a build without FAISS. Results are
 * deterministic: equal similarities are ordered by id, and the sum of a product has one fixed
 * order. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/index/index.h"

struct flat_index {
    struct index base;
    float *vectors; /* [count, dim] */
};

/* LANES partial sums let the compiler use vector registers without reordering sums behind our back.
 * A block of ROWS vectors stays in the cache while QUERIES queries pass over it. */
enum { LANES = 16, ROWS = 64, QUERIES = 8 };

static float dot(const float *restrict a, const float *restrict b, int dim) {
    float sums[LANES] = {0};
    int i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += a[i + j] * b[i + j];
    for (int j = 0; i + j < dim; j++) sums[j] += a[i + j] * b[i + j];
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int j = 0; j < step; j++) sums[j] += sums[j + step];
    return sums[0];
}

/* Puts a candidate into its place of the best k so far. Candidates come in ascending id, so an
 * equal one goes behind those already there. NaN compares false everywhere and is never a
 * neighbour. */
static void insert(int64_t *ids, float *similarities, int k, int64_t id, float similarity) {
    if (!(ids[k - 1] < 0 || similarity > similarities[k - 1]) || similarity != similarity) return;
    int at = k - 1;
    while (at > 0 && (ids[at - 1] < 0 || similarity > similarities[at - 1])) {
        ids[at] = ids[at - 1];
        similarities[at] = similarities[at - 1];
        at--;
    }
    ids[at] = id;
    similarities[at] = similarity;
}

void index_scan(struct index_scan scan, int64_t *ids, float *similarities) {
    for (int64_t i = 0; i < scan.count; i++)
        insert(ids, similarities, scan.k, scan.first + i,
               dot(scan.query, scan.vectors + (size_t)i * (size_t)scan.dim, scan.dim));
}

static void search_block(const struct flat_index *flat_index, const float *queries, int n, int k,
                         int64_t *ids, float *similarities) {
    int dim = flat_index->base.dim;
    for (int64_t first = 0; first < flat_index->base.count; first += ROWS) {
        int64_t end = first + ROWS < flat_index->base.count ? first + ROWS : flat_index->base.count;
        for (int q = 0; q < n; q++)
            for (int64_t id = first; id < end; id++)
                insert(ids + (size_t)q * (size_t)k, similarities + (size_t)q * (size_t)k, k, id,
                       dot(queries + (size_t)q * (size_t)dim,
                           flat_index->vectors + (size_t)id * (size_t)dim, dim));
    }
}

static enum status flat_search(const struct index *base, struct index_query query, int64_t *ids,
                               float *similarities, struct error *e) {
    int n = query.n, k = query.k;
    const struct flat_index *flat_index = (const struct flat_index *)base;
    (void)e;
    for (size_t i = 0; i < (size_t)n * (size_t)k; i++) {
        ids[i] = -1;
        similarities[i] = -2;
    }
#pragma omp parallel for schedule(dynamic) if (n > QUERIES)
    for (int q = 0; q < n; q += QUERIES)
        search_block(flat_index, query.vectors + (size_t)q * (size_t)base->dim,
                     min_int(QUERIES, n - q), k, ids + (size_t)q * (size_t)k,
                     similarities + (size_t)q * (size_t)k);
    return STATUS_OK;
}

static enum status flat_vectors(const struct index *base, int64_t first, int n, float *vectors,
                                struct error *e) {
    const struct flat_index *flat_index = (const struct flat_index *)base;
    (void)e;
    size_t dim = (size_t)base->dim;
    memcpy(vectors, flat_index->vectors + (size_t)first * dim, (size_t)n * dim * sizeof *vectors);
    return STATUS_OK;
}

static enum status flat_move(struct index *base, int gpu, struct error *e) {
    (void)base;
    return error_set(e, STATUS_UNSUPPORTED,
                     "cuda:%d: the index " INDEX_EXACT
                     " is searched by the CPU only; Flat and IVF<lists>,Flat can be on "
                     "a GPU: build the collection again with one of them, or use \"cpu\"",
                     gpu);
}

static void flat_close(struct index *base) {
    struct flat_index *flat_index = (struct flat_index *)base;
    free(flat_index->vectors);
    free(flat_index);
}

static const struct index_ops flat_ops = {.name = "exact",
                                          .search = flat_search,
                                          .move = flat_move,
                                          .vectors = flat_vectors,
                                          .close = flat_close};

enum status index_open_flat(struct index **out, float *vectors, int64_t count, int dim,
                            struct error *e) {
    if (count < 0 || dim < 1) {
        free(vectors);
        return error_set(e, STATUS_INVALID, "index: %lld vectors of %d numbers", (long long)count,
                         dim);
    }
    struct flat_index *flat_index = xmalloc(sizeof *flat_index);
    *flat_index = (struct flat_index){.base = {.ops = &flat_ops, .dim = dim, .count = count},
                                      .vectors = vectors};
    *out = &flat_index->base;
    return STATUS_OK;
}
