/* retrieval/candidates.h: the hits of one query where they are more than the nearest chunks: ranked by vectors, words
 * and pictures together, without some documents, with few chunks of each document, without near-duplicates. */
#pragma once

#include "retrieval/retriever.h"
#include "retrieval/store/store.h"

/* Whether the query asks for any of that, but for pictures. */
static inline bool candidates_are_needed(const struct retriever_query *q) {
    return q->n_excluded > 0 || q->choice.way != RETRIEVE_NEAREST || q->choice.per_document > 0 ||
           q->choice.distinct > 0;
}

/* Whether the chunks are the same piece of two documents with one text: such a piece is shown once, of the document
 * that is ranked first. */
bool chunk_is_copy(const struct chunk *a, const struct chunk *b);

struct candidates {
    int64_t *ids; /* [n] chunks, best first */
    float *similarities;
    unsigned *by; /* as a hit's */
    int n;
};

/* A query's vectors: what it is sought by. */
struct candidate_vectors {
    const float *passages; /* [dim]; NULL: passages are not sought */
    const float *pictures; /* [pictures.dim]; NULL: pictures are not sought by vectors of their own */
};

/* The best k. Free *out, on failure too. */
enum status candidates_find(struct candidates *out, struct snapshot *snapshot, const struct retriever_query *query,
                            int k, struct candidate_vectors vectors, struct error *e);
void candidates_free(struct candidates *c);
