/* retrieval/search/rerank.c: see rerank.h. */
#include "retrieval/search/rerank.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/search/query_vectors.h"

/* Only a text can be read beside a chunk. */
static bool query_is_reranked(const struct retriever_query *query, const struct embedder *reranker,
                              int max_k) {
    return reranker && query->choice.rerank > 0 && query->text.size > 0 &&
           query_capped(query, max_k) > 0;
}

int query_width(const struct retriever_query *query, const struct embedder *reranker, int max_k) {
    int k = query_capped(query, max_k);
    return query_is_reranked(query, reranker, max_k) ? max_int(k, query->choice.rerank) : k;
}

/* The more relevant first; equal ones stay in the order in which they were found. */
static int compare_relevance(const void *a, const void *b) {
    const struct hit *const *hit = a, *const *the_hit = b;
    if ((*hit)->relevance != (*the_hit)->relevance)
        return (*hit)->relevance > (*the_hit)->relevance ? -1 : 1;
    return (*hit > *the_hit) - (*hit < *the_hit);
}

/* Puts hits in the order of their relevance, and keeps the first k. */
static void reorder_hits(struct hits *hits, int k, size_t r) {
    int n = min_int(hits->n, k);
    const struct hit **order = xmalloc((size_t)hits->n * sizeof *order);
    struct hit *list = xmalloc((size_t)n * sizeof *list);
    int32_t *ids = hits->ids ? xmalloc((size_t)n * r * sizeof *ids) : NULL;
    for (int i = 0; i < hits->n; i++) order[i] = &hits->list[i];
    qsort(order, (size_t)hits->n, sizeof *order, compare_relevance);
    for (int i = 0; i < n; i++) {
        size_t from = (size_t)(order[i] - hits->list);
        list[i] = *order[i];
        if (ids) memcpy(ids + (size_t)i * r, hits->ids + from * r, r * sizeof *ids);
    }
    free(order);
    free(hits->list);
    free(hits->ids);
    hits->list = list;
    hits->ids = ids;
    hits->n = n;
}

enum status hits_rerank(struct hits *hits, const struct retriever_query *query,
                        const struct embedder *reranker, int max_k, struct error *e) {
    if (hits->n == 0 || !query_is_reranked(query, reranker, max_k) || query_is_abandoned(query))
        return STATUS_OK;
    struct text_span *texts = xmalloc((size_t)hits->n * sizeof *texts);
    float *relevances = xmalloc((size_t)hits->n * sizeof *relevances);
    for (int i = 0; i < hits->n; i++) texts[i] = hits->list[i].text;
    int *n_tokens = xcalloc((size_t)hits->n, sizeof *n_tokens);
    struct embed_request request = {.query = query->text,
                                    .texts = texts,
                                    .n = hits->n,
                                    .vectors = relevances,
                                    .n_tokens = n_tokens};
    enum status status = embedder_embed(reranker, &request, e);
    for (int i = 0; i < hits->n && query->n_embedded; i++) *query->n_embedded += n_tokens[i];
    if (status == STATUS_OK) {
        for (int i = 0; i < hits->n; i++) hits->list[i].relevance = relevances[i];
        reorder_hits(hits, query_capped(query, max_k), (size_t)max_int(0, query->r));
    }
    free(texts);
    free(n_tokens);
    free(relevances);
    return status;
}
