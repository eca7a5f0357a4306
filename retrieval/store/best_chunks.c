/* retrieval/store/best_chunks.c: see best_chunks.h. */
#include "retrieval/store/best_chunks.h"

#include <stdlib.h>

/* Whether the first of two is to go before the second. */
static bool is_worse(struct scored left, struct scored right) {
    return left.score != right.score ? left.score < right.score : left.id > right.id;
}

static void sink(struct scored *heap, int n, int at) {
    for (int child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && is_worse(heap[child + 1], heap[child])) child++;
        if (!is_worse(heap[child], heap[at])) return;
        struct scored lower = heap[at];
        heap[at] = heap[child];
        heap[child] = lower;
        at = child;
    }
}

void best_chunks_keep(struct best_chunks *best, struct scored scored) {
    if (best->n == best->k) {
        if (!is_worse(best->list[0], scored)) return;
        best->list[0] = scored;
        sink(best->list, best->k, 0);
        return;
    }
    best->list[best->n] = scored;
    best->n++;
    if (best->n < best->k) return;
    for (int i = best->k / 2; i >= 0; i--) sink(best->list, best->k, i);
}

static int compare_scored(const void *left, const void *right) {
    const struct scored *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

void best_chunks_sort(struct best_chunks *best) {
    if (best->n > 0) qsort(best->list, (size_t)best->n, sizeof *best->list, compare_scored);
}
