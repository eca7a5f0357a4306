/* retrieval/retriever_local.c: texts to vectors piece by piece, vectors to chunk ids in the index, ids to what the
 * collection shows of them. See retriever_local.h. */
#include "retrieval/retriever_local.h"

#include <stdlib.h>

#include "retrieval/candidates.h"
#include "retrieval/query_vectors.h"
#include "retrieval/rerank.h"

struct retriever_local {
    struct retriever base;
    const struct embedder *embedder;
    int max_k;
    struct living *documents;
};

static struct snapshot *local_hold(struct retriever *base) {
    return living_hold(((struct retriever_local *)base)->documents);
}

void hit_show(struct hit *hit, const struct snapshot *view, int64_t id, float similarity) {
    struct chunk chunk = view_chunk(view, id);
    *hit = (struct hit){.document = chunk.document_id,
                        .path = chunk.path,
                        .title = chunk.title,
                        .chunk = id,
                        .start = chunk.start,
                        .end = chunk.end,
                        .text = chunk.text,
                        .source = chunk.source,
                        .marks = chunk.marks,
                        .tokens = chunk.tokens,
                        .n_tokens = chunk.n_tokens,
                        .similarity = similarity,
                        .relevance = -1};
}

/* Hits above the floor. */
static void local_fill(struct snapshot *view, const struct retriever_query *query, int k, const int64_t *ids,
                       const float *similarities, struct hits *hits) {
    size_t r = (size_t)max_int(0, query->r);
    int most = 0;
    while (most < k && ids[most] >= 0) most++;
    if (most == 0) return;

    hits->list = xmalloc((size_t)most * sizeof *hits->list);
    if (r > 0) hits->ids = xmalloc((size_t)most * r * sizeof *hits->ids);
    for (int i = 0; i < most; i++) {
        if (similarities[i] < query->min_similarity) continue;
        hit_show(&hits->list[hits->n], view, ids[i], similarities[i]);
        if (r > 0) view_neighbor_tokens(view, ids[i], (int)r, hits->ids + (size_t)hits->n * r);
        hits->n++;
    }
    hits->pinned = snapshot_hold(view);
    if (hits->n == 0) hits_free(hits);
}

/* One query whose hits are chosen among more candidates. */
static enum status local_search_candidates(struct snapshot *view, const struct retriever_query *query,
                                           struct index_query one, struct hits *hits, struct error *e) {
    struct candidates found;
    enum status status = candidates_find(&found, view, query, one, e);
    if (status == STATUS_OK) local_fill(view, query, found.n, found.ids, found.similarities, hits);
    candidates_free(&found);
    return status;
}

/* Queries of one snapshot, one filter and one k: an index of some kinds finds other chunks for another k. */
static enum status local_search_alike(const struct retriever_local *t, struct snapshot *view,
                                      const struct retriever_query *queries, struct index_query query,
                                      struct hits *hits, struct error *e) {
    size_t k = (size_t)query.k, n = (size_t)query.n;
    int64_t *ids = xmalloc(n * k * sizeof *ids);
    float *similarities = xmalloc(n * k * sizeof *similarities);
    CHECK(view_info(view)->dim == t->embedder->dim);
    enum status status = view_search(view, queries->filter, query, ids, similarities, e);
    for (size_t i = 0; i < n && status == STATUS_OK; i++)
        local_fill(view, &queries[i], query.k, ids + i * k, similarities + i * k, &hits[i]);
    free(ids);
    free(similarities);
    return status;
}

/* Queries from `first` on that can be searched for together. */
static int local_alike(const struct retriever_local *t, const struct retriever_query *queries, int first, int n) {
    int end = first + 1;
    if (candidates_are_needed(&queries[first])) return 1;
    while (end < n && !candidates_are_needed(&queries[end]) && queries[end].snapshot == queries[first].snapshot &&
           queries[end].filter == queries[first].filter &&
           query_width(&queries[end], t->base.reranker, t->max_k) ==
               query_width(&queries[first], t->base.reranker, t->max_k))
        end++;
    return end - first;
}

static enum status local_search(struct retriever *base, const struct retriever_query *queries, int n, struct hits *hits,
                                struct error *e) {
    struct retriever_local *t = (struct retriever_local *)base;
    size_t dim = (size_t)t->embedder->dim;
    struct snapshot *newest = local_hold(base);
    float *vectors = xcalloc((size_t)n * dim, sizeof *vectors);
    enum status status = query_vectors(t->embedder, queries, n, t->max_k, vectors, e);
    for (int i = 0, alike; i < n && status == STATUS_OK; i += alike) {
        alike = local_alike(t, queries, i, n);
        struct index_query query = {.vectors = vectors + (size_t)i * dim,
                                    .n = alike,
                                    .k = query_width(&queries[i], t->base.reranker, t->max_k)};
        struct snapshot *snapshot = queries[i].snapshot ? queries[i].snapshot : newest;
        if (query.k > 0 && candidates_are_needed(&queries[i]) && snapshot->n_chunks > 0)
            status = local_search_candidates(snapshot, &queries[i], query, hits + i, e);
        else if (query.k > 0)
            status = local_search_alike(t, snapshot, queries + i, query, hits + i, e);
        for (int j = i; j < i + alike && status == STATUS_OK; j++)
            status = hits_rerank(&hits[j], &queries[j], t->base.reranker, t->max_k, e);
    }
    free(vectors);
    snapshot_release(newest);
    return status;
}

static void local_close(struct retriever *base) { free(base); }

enum status retriever_local_open(struct retriever **out, struct living *documents, const struct embedder *embedder,
                                 int max_k, struct error *e) {
    static const struct retriever_ops ops = {
        .name = "local", .hold = local_hold, .search = local_search, .close = local_close};
    if (max_k < 1) return error_set(e, STATUS_INVALID, "retriever: at most %d hits of a query; 1 or more", max_k);
    struct snapshot *view = living_hold(documents);
    enum status status = collection_match_embedder(view_info(view), embedder, e);
    snapshot_release(view);
    if (status) return status;
    struct retriever_local *t = xmalloc(sizeof *t);
    *t = (struct retriever_local){.base = {.ops = &ops}, .embedder = embedder, .max_k = max_k, .documents = documents};
    *out = &t->base;
    return STATUS_OK;
}
