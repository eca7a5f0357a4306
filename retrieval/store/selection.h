/* retrieval/store/selection.h: the documents of a generation that a filter allows. A generation never changes, so they
 * are looked for once a filter; the latest filters are remembered. */
#pragma once

#include <pthread.h>

#include "retrieval/filter/filter.h"
#include "retrieval/generation/generation.h"

struct selection {
    atomic_int holders;
    struct filter *filter;
    uint8_t *documents; /* a bit each */
    int64_t n_documents, n_chunks;
};

static inline bool selection_has(const struct selection *s, int64_t document) {
    return (s->documents[document / 8] >> (document % 8) & 1) != 0;
}
void selection_release(struct selection *s); /* NULL: nothing */

enum { SELECTIONS = 16 };

struct selections {
    pthread_mutex_t lock;                 /* all below */
    struct selection *latest[SELECTIONS]; /* most recently used first; NULL behind the last */
};
void selections_open(struct selections *s);
void selections_close(struct selections *s);
/* The selection of f, held for the caller. Any thread. */
struct selection *selections_find(struct selections *s, const struct disk_generation *c, struct filter *f);
