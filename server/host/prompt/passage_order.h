/* server/host/prompt/passage_order.h: the order of passages in a prompt where relevance leaves a
 * choice. Prompts that begin alike share what was computed for their beginning, so among documents
 * that are about as relevant the next one is that with which a prompt has gone on before.
 *
 * The orders that were read are known as conversations are (conversations.h): a chain of hashes
 * from who asks and what stands before the passages, document by document. */
#pragma once

#include "retrieval/retriever.h"
#include "server/host/prompt/conversations.h"

struct passage_order {
    struct conversations *known; /* NULL: the order is that of relevance */
    struct turn_key before;      /* who asks, and what stands before the first passage */
    double distance;             /* of scores, up to which one document may go before another */
};

/* The figure that a hit is ranked by: a reranker's score, that of vectors and words together, or
 * the cosine. */
float hit_score(const struct hit *hit);
/* Puts the documents of list [n] in order: each time one that is at most `distance` worse than the
 * best of those left. Passages of a document stay together and in their order. */
void passage_order_choose(const struct passage_order *order, struct hit *list, int n);
/* A prompt with these passages is read. */
void passage_order_note(const struct passage_order *order, const struct hit *list, int n);
