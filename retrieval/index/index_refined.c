/* retrieval/index/index_refined.c: an index that compresses, made exact at its end: it names
 * candidates, and the vectors themselves decide which of these are nearest. The vectors stay in
 * their file; a search reads those of its candidates, so the codes alone are in memory for sure. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "retrieval/index/index.h"

struct refined_index {
    struct index base;
    struct index *inner;
    const float *vectors; /* [count, dim], borrowed */
    int factor;
};

/* Candidates of a search for k: `factor` times as many, at least LEAST, and no more than MOST
 * beyond k. */
enum { LEAST = 64, MOST = 1024 };

/* Of a million vectors in codes of a byte a number, 40 candidates hold the ten nearest and 120 the
 * hundred nearest wherever a visited list does (docs/results/indexes.md). Codes of fewer bits need
 * more. */
static int choose_factor(const char *factory) {
    enum { FACTOR_BYTES = 2, FACTOR_LESS = 8 };
    bool bytes = strstr(factory, "SQ8") || strstr(factory, "SQfp16");
    return bytes ? FACTOR_BYTES : FACTOR_LESS;
}

static int refined_width(const struct refined_index *refined_index, int k) {
    int64_t width = (int64_t)k * refined_index->factor;
    if (width < LEAST) width = LEAST;
    if (width > (int64_t)k + MOST) width = (int64_t)k + MOST;
    if (width > refined_index->base.count) width = refined_index->base.count;
    return (int)(width > k ? width : k);
}

static int compare_ids(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Where the vectors' pages are on the disk, they are all asked for before the first is waited for.
 */
static void refined_fetch(const struct refined_index *refined_index, const int64_t *ids, int n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t row = (size_t)refined_index->base.dim * sizeof(float);
    for (int i = 0; i < n; i++) {
        uintptr_t at = (uintptr_t)(refined_index->vectors +
                                   (size_t)ids[i] * (size_t)refined_index->base.dim),
                  start = at - at % page;
        (void)madvise((void *)start, at + row - start,
                      MADV_WILLNEED); /* advice: a refusal costs time alone */
    }
}

/* The nearest [k] of a query, best first. */
struct refined_nearest {
    int64_t *ids;
    float *similarities;
    int k;
};

/* ids [n] become ascending; the best k of them are the nearest. */
static void refined_choose(const struct refined_index *refined_index, const float *query,
                           int64_t *ids, int n, struct refined_nearest nearest) {
    for (int i = 0; i < nearest.k; i++) {
        nearest.ids[i] = -1;
        nearest.similarities[i] = -2;
    }
    qsort(ids, (size_t)n, sizeof *ids, compare_ids);
    refined_fetch(refined_index, ids, n);
    for (int i = 0; i < n; i++) {
        struct index_scan scan = {
            .query = query,
            .vectors = refined_index->vectors + (size_t)ids[i] * (size_t)refined_index->base.dim,
            .count = 1,
            .first = ids[i],
            .dim = refined_index->base.dim,
            .k = nearest.k};
        index_scan(scan, nearest.ids, nearest.similarities);
    }
}

static enum status refined_search(const struct index *base, struct index_query query, int64_t *ids,
                                  float *similarities, struct error *e) {
    const struct refined_index *refined_index = (const struct refined_index *)base;
    size_t k = (size_t)query.k, width = (size_t)refined_width(refined_index, query.k),
           n = (size_t)query.n;
    int64_t *candidates = xmalloc((n * width + 1) * sizeof *candidates);
    float *rough = xmalloc((n * width + 1) * sizeof *rough);
    struct index_query wide = query;
    wide.k = (int)width;
    enum status status = index_search(refined_index->inner, wide, candidates, rough, e);
    for (size_t q = 0; q < n && status == STATUS_OK; q++) {
        int64_t *row = candidates + q * width;
        int found = 0;
        while (found < (int)width && row[found] >= 0) found++;
        refined_choose(refined_index, query.vectors + q * (size_t)base->dim, row, found,
                       (struct refined_nearest){ids + q * k, similarities + q * k, query.k});
    }
    free(candidates);
    free(rough);
    return status;
}

static enum status refined_vectors(const struct index *base, int64_t first, int n, float *vectors,
                                   struct error *e) {
    const struct refined_index *refined_index = (const struct refined_index *)base;
    size_t dim = (size_t)base->dim;
    (void)e;
    memcpy(vectors, refined_index->vectors + (size_t)first * dim,
           (size_t)n * dim * sizeof *vectors);
    return STATUS_OK;
}

static enum status refined_move(struct index *base, int gpu, struct error *e) {
    struct index *inner = ((struct refined_index *)base)->inner;
    return inner->ops->move(inner, gpu, e);
}

static void refined_close(struct index *base) {
    index_close(((struct refined_index *)base)->inner);
    free(base);
}

struct index *index_refine(struct index *inner, const char *factory, const float *vectors) {
    static const struct index_ops ops = {.name = "refined",
                                         .search = refined_search,
                                         .move = refined_move,
                                         .vectors = refined_vectors,
                                         .close = refined_close};
    struct refined_index *refined_index = xmalloc(sizeof *refined_index);
    *refined_index =
        (struct refined_index){.base = {.ops = &ops, .dim = inner->dim, .count = inner->count},
                               .inner = inner,

                               .vectors = vectors,
                               .factor = choose_factor(factory)};
    return &refined_index->base;
}
