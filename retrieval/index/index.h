/* retrieval/index/index.h: nearest vectors by inner product (cosine, as vectors have unit length).
 * FAISS is one implementation, on the CPU or on a GPU, exact search in plain C the other: the
 * reference, and the build without FAISS. An open index is immutable; searching is safe from
 * several threads. */
#pragma once

#include "config/base/base.h"

struct index;

struct index_query {
    const float *vectors; /* [n, dim] */
    int n, k;             /* k >= 1 */
    /* Many queries at once, as matrix products where FAISS has them: about twice as fast, but the
     * last bits of a similarity then depend on which queries are searched together. Otherwise, on
     * the CPU, they do not. */
    bool bulk;
};

struct index_ops {
    const char *name;
    /* ids, similarities [n, k], best first, equal ones in order of id; missing neighbours have id
     * -1 and similarity -2. Of FAISS: where more than INDEX_WIDEST vectors are exactly as similar
     * as the k-th, which of them are among the k is open. */
    enum status (*search)(const struct index *the_index, struct index_query query, int64_t *ids,
                          float *similarities, struct error *e);
    /* To GPU number `gpu`, see index_move. */
    enum status (*move)(struct index *the_index, int gpu, struct error *e);
    /* vectors [n, dim] of ids first .. first + n - 1, as the index keeps them: an index that
     * compresses gives back what it decodes. An inverted file on a GPU gives none:
     * STATUS_UNSUPPORTED. */
    enum status (*vectors)(const struct index *the_index, int64_t first, int n, float *vectors,
                           struct error *e);
    void (*close)(struct index *the_index);
};

struct index {
    const struct index_ops *ops;
    int dim;
    int64_t count;
};

enum { INDEX_WIDEST = 2048 }; /* results of one query that a GPU can give */

/* The ops of those names, once what is asked for is in range: STATUS_INVALID. */
enum status index_search(const struct index *the_index, struct index_query query, int64_t *ids,
                         float *similarities, struct error *e);
enum status index_vectors(const struct index *the_index, int64_t first, int n, float *vectors,
                          struct error *e);
/* Where later searches run: "cpu" (where an index is when it was opened) or "cuda:N"; "cuda" is
 * "cuda:0". Before the index is shared with other threads. Errors: STATUS_INVALID for any other
 * name, STATUS_UNSUPPORTED for a build without FAISS' GPU part and for an index that only the CPU
 * searches, STATUS_DEVICE without that GPU, STATUS_NO_MEMORY when it does not fit; the index stays
 * where it was. */
enum status index_move(struct index *the_index, const char *device, struct error *e);
static inline void index_close(struct index *the_index) {
    if (the_index) the_index->ops->close(the_index);
}

/* The factory name of exact search in plain C; everything else is FAISS'. */
#define INDEX_EXACT "Exact"

/* Exact search over vectors [count, dim], f32; the array is taken over and freed. */
enum status index_open_flat(struct index **out, float *vectors, int64_t count, int dim,
                            struct error *e);

/* Puts vectors [count, dim], whose ids begin with `first`, into the k nearest of a query that are
 * known so far: ids and similarities [k], best first, -1 and -2 where there are fewer. Ids come in
 * ascending order, over all scans. */
struct index_scan {
    const float *query, *vectors;
    int64_t count, first;
    int dim, k;
};
void index_scan(struct index_scan scan, int64_t *ids, float *similarities);

/* FAISS, which is opened with the first index that needs it; where it is missing these return
 * STATUS_UNSUPPORTED, where a limit of the address space leaves it too little room
 * STATUS_NO_MEMORY. build: trains and fills an index of what `asked` says (index_resolve) and
 * writes it to path. STATUS_UNSUPPORTED for a kind that open does not read (faiss_file.h). open:
 * the whole file is checked before FAISS sees it, which crashes on hostile ones: STATUS_CORRUPT. */
enum status index_build_faiss(const char *path, const char *asked, const float *vectors,
                              int64_t count, int dim, struct error *e);
enum status index_open_faiss(struct index **out, const char *path, int64_t count, int dim,
                             struct error *e);
/* Whether there is such an index for vectors of `dim` numbers, before any is there: STATUS_INVALID;
 * as index_open_faiss. */
enum status index_check_factory(const char *asked, int dim, struct error *e);
/* The same in memory. An inverted file is trained on its own vectors, or on `training` where that
 * is given: as many vectors as the file has lists become their centres as they are. */
struct index_source {
    const char *factory;   /* as index_resolve takes it */
    const float *vectors;  /* [count, dim] */
    const float *training; /* [n_training, dim] or NULL */
    int64_t count, n_training;
    int dim;
};
enum status index_make_faiss(struct index **out, const struct index_source *source,
                             struct error *e);
/* Threads FAISS uses for calls of the current thread; keeps its pool out of the engine's way. */
void index_set_threads(int threads);

/* The index that there is to be: "flat", "ivf", "ivfsq8" and "hnsw" are kinds, whose numbers follow
 * from the vectors; NULL is the kind that the number of vectors chooses; INDEX_EXACT and FAISS'
 * factory strings stand for themselves. */
enum { INDEX_FACTORY_SIZE = 256 };
/* The factory string, or INDEX_EXACT, of what is asked for. STATUS_INVALID where it is too long,
 * or has a 0 in it, by which FAISS ends. */
enum status index_resolve(char factory[INDEX_FACTORY_SIZE], const char *asked, int64_t count,
                          int dim, struct error *e);
/* The words that were asked for to get this factory string for so many vectors: asked again, it
 * fits another number of them. */
const char *index_asked(const char *factory, int64_t count, int dim);
/* Vectors that it needs at least to learn its lists and codes from, as far as the name tells. */
int64_t index_least_vectors(const char *asked);
/* Lists of an inverted file of so many vectors: 4 sqrt(count), rounded to a power of two, and no
 * more than there are vectors. */
int index_lists(int64_t count);
/* Whether an index of this kind gives its vectors back bit for bit. */
bool index_is_lossless(const char *factory);
/* Bytes that an open index of this kind, whose file has so many, keeps in memory. The lists of an
 * inverted file stay in the file, mapped; its centres, and a number a vector, do not. */
uint64_t index_resident(const char *factory, uint64_t file_bytes, int64_t count, int dim);

/* `inner`, of a factory string that compresses, with the vectors themselves [inner->count,
 * inner->dim], which are borrowed: a search compares the query with the vectors of more candidates
 * than are asked for, so similarities are exact and the order of what is found is that of exact
 * search. Takes `inner` over. */
struct index *index_refine(struct index *inner, const char *factory, const float *vectors);
