/* retrieval/store/best_chunks.h: the best k of the chunks that a search scores. Of equal ones those
 * with the smaller numbers are better. */
#pragma once

#include "config/base/base.h"

struct scored {
    float score;
    int64_t id;
};

/* Zeroed, with k and room for as many. */
struct best_chunks {
    struct scored *list; /* [k] once n is k a heap, the worst first */
    int n, k;
};
/* The score that a chunk must exceed, unless a smaller number makes it better. */
static inline float best_chunks_floor(const struct best_chunks *best) {
    return best->n == best->k ? best->list[0].score : 0;
}
/* Takes a chunk in where it is among the best; each is offered once. */
void best_chunks_keep(struct best_chunks *best, struct scored scored);
/* Best first. */
void best_chunks_sort(struct best_chunks *best);
