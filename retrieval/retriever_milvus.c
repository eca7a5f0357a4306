/* retrieval/retriever_milvus.c: queries that can be asked together go to Milvus in one call. See retriever_milvus.h. */
#include "retrieval/retriever_milvus.h"

#include <stdlib.h>

#include "retrieval/query_vectors.h"
#include "retrieval/rerank.h"

struct retriever_milvus {
    struct retriever base;
    const struct embedder *embedder;
    int max_k;
    struct milvus_collection *documents;
};

static struct snapshot *hold_counts(struct retriever *base) {
    return milvus_hold(((struct retriever_milvus *)base)->documents);
}

static int milvus_width(const struct retriever_milvus *t, const struct retriever_query *query) {
    return query_width(query, t->base.reranker, t->max_k);
}

/* Whether both ask for the same but for vector, floor and tokens. */
static bool is_alike(const struct retriever_milvus *t, const struct retriever_query *a,
                     const struct retriever_query *b) {
    return milvus_width(t, a) == milvus_width(t, b) && a->choice.way == b->choice.way &&
           a->choice.per_document == b->choice.per_document && a->choice.distinct == b->choice.distinct &&
           a->excluded == b->excluded && a->n_excluded == b->n_excluded && filter_is_same(a->filter, b->filter);
}

static int count_alike(const struct retriever_milvus *t, const struct retriever_query *queries, int first, int n) {
    int end = first + 1;
    while (end < n && is_alike(t, &queries[first], &queries[end])) end++;
    return end - first;
}

static enum status milvus_search(struct retriever *base, const struct retriever_query *queries, int n,
                                 struct hits *hits, struct error *e) {
    struct retriever_milvus *t = (struct retriever_milvus *)base;
    size_t dim = (size_t)t->embedder->dim;
    float *vectors = xcalloc((size_t)n * dim, sizeof *vectors);
    enum status status = query_vectors(t->embedder, queries, n, t->max_k, vectors, e);
    for (int i = 0, alike; i < n && status == STATUS_OK; i += alike) {
        alike = count_alike(t, queries, i, n);
        struct milvus_search search = {
            .query = queries + i, .vectors = vectors + (size_t)i * dim, .n = alike, .k = milvus_width(t, &queries[i])};
        if (search.k > 0) status = milvus_find_nearest(t->documents, &search, hits + i, e);
        for (int j = i; j < i + alike && status == STATUS_OK; j++)
            status = hits_rerank(&hits[j], &queries[j], t->base.reranker, t->max_k, e);
    }
    free(vectors);
    return status;
}

static void milvus_release(struct retriever *base) { free(base); }

enum status retriever_milvus_open(struct retriever **out, struct milvus_collection *documents,
                                  const struct embedder *embedder, int max_k, struct error *e) {
    static const struct retriever_ops ops = {
        .name = "milvus", .hold = hold_counts, .search = milvus_search, .close = milvus_release};
    if (max_k < 1) return error_set(e, STATUS_INVALID, "retriever: at most %d hits of a query; 1 or more", max_k);
    if (collection_match_embedder(milvus_info(documents), embedder, e)) return e->status;
    struct retriever_milvus *t = xmalloc(sizeof *t);
    *t = (struct retriever_milvus){.base = {.ops = &ops}, .embedder = embedder, .max_k = max_k, .documents = documents};
    *out = &t->base;
    return STATUS_OK;
}
