/* retrieval/index/index_recall.h: how much of what exact search finds an index finds, and how long
 * it takes. */
#pragma once

#include <stdatomic.h>

#include "retrieval/index/index.h"

struct recall_sample {
    const float *queries; /* [n, dim] */
    /* [n] the vectors of the index that the queries are, which then are no neighbours of
     * themselves; NULL: queries are of their own. */
    const int64_t *own;
    int n, k;
    const atomic_bool *cancelled; /* true ends it with STATUS_CANCELLED; NULL: nothing does */
};

struct recall_figures {
    double recall;       /* of the k nearest by exact search, the share that is found */
    double recall_first; /* of the nearest ones alone */
    double median, p99;  /* milliseconds of a search for one query, by one thread */
};

/* Compares the index with exact search over the vectors that it gives back; it has k vectors or
 * more besides `own`. As many threads as index_set_threads allows take part in exact search. An
 * index on a GPU: STATUS_UNSUPPORTED. */
enum status index_recall(const struct index *the_index, const struct recall_sample *sample,
                         struct recall_figures *out, struct error *e);
