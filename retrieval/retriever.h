/* retrieval/retriever.h: chunk text -> vector -> nearest chunks -> neighbour tokens. The retrieval loop's one step.
 * A retriever borrows the collection and the embedder; one caller at a time (the retrieval thread). */
#pragma once

#include <stdatomic.h>

#include "retrieval/embedder.h"
#include "retrieval/store/collection.h"

struct retriever;

struct retriever_query {
    struct text_span text;
    int k;
    float min_similarity;
    const atomic_bool *cancelled; /* true: nobody waits for it any more; NULL: somebody does */
};

/* What one query found, best first. */
struct retriever_result {
    int k;                /* found, 0 .. query k */
    struct chunk *chunks; /* [k] */
    float *similarities;  /* [k] cosine */
    int32_t *ids;         /* [k, r] neighbour tokens for the model */
};

/* r: retrieved length of the model. */
enum status retriever_open(struct retriever **out, const struct collection *c, const struct embedder *embedder, int r,
                           int max_k, struct error *e);
void retriever_close(struct retriever *t);
/* Embeds and searches all n queries in one batch. results [n] are filled in; free each with retriever_result_free. A
 * query that nobody waits for any more may find anything; STATUS_CANCELLED when these are all. */
enum status retriever_search(struct retriever *t, const struct retriever_query *queries, int n,
                             struct retriever_result *results, struct error *e);
void retriever_result_free(struct retriever_result *r);
