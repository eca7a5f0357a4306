/* retrieval/search/query_vectors.h: the vectors of queries, given or embedded: what retrievers of
 * all kinds begin with. */
#pragma once

#include "retrieval/embedder.h"
#include "retrieval/retriever.h"

/* k as a query may have it: 0 .. max_k. */
static inline int query_capped(const struct retriever_query *query, int max_k) {
    return max_int(0, min_int(query->k, max_k));
}
/* Whether nobody waits for it. */
static inline bool query_is_abandoned(const struct retriever_query *query) {
    return query->cancelled && atomic_load(query->cancelled);
}
/* Where they go. */
struct query_places {
    float *vectors;             /* [n, dim] zeros */
    struct sparse_rows *sparse; /* [n] of each text that is embedded a row; NULL: none are wanted */
};
/* Embedding takes by far the longest, so it goes in pieces, without the queries that nobody waits
 * for; STATUS_CANCELLED where these are all. */
enum status query_vectors(const struct embedder *embedder, const struct retriever_query *queries,
                          int n, int max_k, const struct query_places *out, struct error *e);
