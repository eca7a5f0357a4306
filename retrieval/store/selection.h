/* retrieval/store/selection.h: the documents of a generation that a filter allows. A generation
 * never changes, so they are looked for once a filter; the latest filters are remembered. */
#pragma once

#include <pthread.h>

#include "retrieval/filter/filter.h"
#include "retrieval/generation/generation.h"

struct selection {
    atomic_int holders;
    struct filter *filter;
    uint8_t *documents; /* a bit each */
    int64_t n_documents, n_chunks, n_words;
};

static inline bool selection_has(const struct selection *selection, int64_t document) {
    return (selection->documents[document / 8] >> (document % 8) & 1) != 0;
}
void selection_release(struct selection *selection); /* NULL: nothing */

enum { SELECTIONS = 16 };

struct selections {
    pthread_mutex_t lock;                 /* all below */
    struct selection *latest[SELECTIONS]; /* most recently used first; NULL behind the last */
};
void selections_open(struct selections *selections);
void selections_close(struct selections *selections);
/* The selection of f, held for the caller. Any thread. */
struct selection *selections_find(struct selections *selections,
                                  const struct disk_generation *generation, struct filter *filter);
