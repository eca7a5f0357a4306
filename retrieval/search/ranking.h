/* retrieval/search/ranking.h: vectors and words of queries to hits: lists of candidates that a
 * collection gives become one ranking, without copies, excluded documents, too many chunks of one
 * document and near-duplicates. The same for all kinds of collections. */
#pragma once

#include "retrieval/retriever.h"

/* A query on its way to hits. */
struct ranked_query {
    const struct retriever_query *query; /* its snapshot is there */
    const float *passages;               /* [dim] its vector; NULL: passages are not sought */
    const float
        *pictures; /* [pictures.dim]; NULL: pictures are not sought by vectors of their own */
    const struct sparse_rows *sparse; /* its one row; NULL: it is not sought by sparse weights */
    int k;                            /* hits that are wanted; 0: none */
    struct hits *hits;                /* zeroed; filled in */
};
/* Whether a document, by its path or its stored id, is one of those to leave out, which are said by
 * path or by the id that their owner or anyone knows. */
bool names_are_excluded(const struct text_span *excluded, int n, const char *path, const char *id);
/* Each gets its best k hits, which do not depend on the other queries. On failure some may have
 * hits. */
enum status ranking_find(struct collection *collection, const struct ranked_query *queries, int n,
                         struct error *e);
