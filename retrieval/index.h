/* retrieval/index.h: nearest vectors by inner product (cosine, as vectors have unit length). FAISS is one
 * implementation, exact search in plain C the other: the reference, and the build without FAISS. An open index is
 * immutable; searching is safe from several threads. */
#pragma once

#include "config/base.h"

struct index;

struct index_query {
    const float *vectors; /* [n, dim] */
    int n, k;             /* k >= 1 */
};

struct index_ops {
    const char *name;
    /* ids, similarities [n, k], best first; missing neighbours have id -1 and similarity -2. */
    enum status (*search)(const struct index *x, struct index_query q, int64_t *ids, float *similarities,
                          struct error *e);
    /* vectors [n, dim] of ids first .. first + n - 1, as the index keeps them: an index that compresses gives back what
     * it decodes. */
    enum status (*vectors)(const struct index *x, int64_t first, int n, float *vectors, struct error *e);
    void (*close)(struct index *x);
};

struct index {
    const struct index_ops *ops;
    int dim;
    int64_t count;
};

static inline enum status index_search(const struct index *x, struct index_query q, int64_t *ids, float *similarities,
                                       struct error *e) {
    return x->ops->search(x, q, ids, similarities, e);
}
static inline enum status index_vectors(const struct index *x, int64_t first, int n, float *vectors, struct error *e) {
    return x->ops->vectors(x, first, n, vectors, e);
}
static inline void index_close(struct index *x) {
    if (x) x->ops->close(x);
}

/* The factory name of exact search in plain C; everything else is FAISS'. */
#define INDEX_EXACT "Exact"

/* Exact search over vectors [count, dim], f32; the array is taken over and freed. */
enum status index_open_flat(struct index **out, float *vectors, int64_t count, int dim, struct error *e);

/* FAISS (index_faiss.c is the only file that includes it; without it these return STATUS_UNSUPPORTED).
 * build: trains and fills an index of type `factory` and writes it to path; factory NULL picks by count: "Flat" up to
 * 100 000 vectors, "IVF<lists>,Flat" above. open: path must have been verified against its checksum, FAISS crashes on
 * hostile files; dim, count and metric are checked afterwards. */
enum status index_build_faiss(const char *path, const char *factory, const float *vectors, int64_t count, int dim,
                              struct error *e);
enum status index_open_faiss(struct index **out, const char *path, int64_t count, int dim, struct error *e);
/* Threads FAISS uses for calls of the current thread; keeps its pool out of the engine's way. */
void index_set_threads(int threads);
/* The factory string for a collection of this size: what index_build_faiss picks, INDEX_EXACT without FAISS. */
void index_choose_factory(char *factory, size_t size, int64_t count);
