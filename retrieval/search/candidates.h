/* retrieval/search/candidates.h: chunks that may become hits, as a collection finds them: by
 * vectors, by words, by pictures, or in the order of several such lists. */
#pragma once

#include "retrieval/search/ranking.h"

struct candidate {
    int64_t id;
    float similarity;
    float words;  /* of a list by words: the share of the query's words that it has */
    float sparse; /* the score by sparse weights, where lists are joined that such a one is among */
    unsigned by;  /* as a hit's */
    struct hit_worth worth;
};
/* Ranks of each list that are looked at when several are joined, at least. */
enum { FUSED_RANKS = 100 };

/* Chunks that one query has found, best first. */
struct candidates {
    struct candidate *list; /* [n] */
    int n;
    bool more;                 /* a wider search may find more */
    struct snapshot *snapshot; /* held: what has the chunks */
};
void candidates_free(struct candidates *all, int n); /* [n], and what each holds */

/* Queries that ask for the same lists, of the same documents. */
struct ranked_batch {
    struct collection *collection;
    const struct ranked_query *const *queries; /* [n] */
    int n, width;
};
/* The lists that a query is sought in, as bits of enum hit_list. */
unsigned candidates_lists(const struct ranked_query *query);
/* `width` candidates of each query of the batch, where there are so many; out [n] is zeroed. On
 * failure too it is to be freed. */
enum status candidates_find(const struct ranked_batch *batch, struct candidates *out,
                            struct error *e);
/* The inner product of two vectors of dim numbers: of unit vectors the cosine. */
float vectors_multiply(const float *left, const float *right, int dim);
