/* retrieval/search/rerank.h: hits in the order of a reranker, which reads query and chunk together:
 * what retrievers of all kinds end with. */
#pragma once

#include "retrieval/retriever.h"

/* How many hits are sought: those that the reranker (NULL: there is none) reads, else those that
 * are wanted. */
int query_width(const struct retriever_query *query, const struct embedder *reranker, int max_k);
/* Puts the hits of a query that is to be reranked in the order of their relevance, and keeps as
 * many as are wanted; others stay, and so do those that nobody waits for. */
enum status hits_rerank(struct hits *hits, const struct retriever_query *query,
                        const struct embedder *reranker, int max_k, struct error *e);
