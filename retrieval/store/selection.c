/* retrieval/store/selection.c: see selection.h. */
#include "retrieval/store/selection.h"

#include <stdlib.h>
#include <string.h>

void selection_release(struct selection *s) {
    if (s == NULL || atomic_fetch_sub(&s->holders, 1) > 1) return;
    filter_release(s->filter);
    free(s->documents);
    free(s);
}

static struct selection *selection_make(const struct disk_generation *c, struct filter *f) {
    int64_t n = disk_generation_info(c)->n_documents;
    struct selection *s = xcalloc(1, sizeof *s);
    atomic_init(&s->holders, 1);
    s->filter = filter_hold(f);
    s->documents = xcalloc((size_t)n / 8 + 1, 1);
    for (int64_t i = 0; i < n; i++) {
        struct stored_document d = disk_generation_document_at(c, i);
        if (!document_is_allowed(f, &d)) continue;
        s->documents[i / 8] |= (uint8_t)(1 << (i % 8));
        s->n_documents++;
        s->n_chunks += d.n_chunks;
    }
    return s;
}

void selections_open(struct selections *s) {
    *s = (struct selections){0};
    pthread_mutex_init(&s->lock, NULL);
}

void selections_close(struct selections *s) {
    for (int i = 0; i < SELECTIONS; i++) selection_release(s->latest[i]);
    pthread_mutex_destroy(&s->lock);
}

/* The place of the filter's selection; SELECTIONS: it is not remembered. */
static int find_latest(const struct selections *s, const struct filter *f) {
    int i = 0;
    while (i < SELECTIONS && s->latest[i] && !filter_is_same(s->latest[i]->filter, f)) i++;
    return i < SELECTIONS && s->latest[i] ? i : SELECTIONS;
}

/* Moves what is at `at` to the front, or drops the last for a new one. */
static void put_first(struct selections *s, int at, struct selection *found) {
    if (at == SELECTIONS) {
        at = SELECTIONS - 1;
        selection_release(s->latest[at]);
    }
    memmove(s->latest + 1, s->latest, (size_t)at * sizeof(struct selection *));
    s->latest[0] = found;
}

struct selection *selections_find(struct selections *s, const struct disk_generation *c, struct filter *f) {
    pthread_mutex_lock(&s->lock);
    int at = find_latest(s, f);
    struct selection *found = at < SELECTIONS ? s->latest[at] : selection_make(c, f);
    put_first(s, at, found);
    atomic_fetch_add(&found->holders, 1);
    pthread_mutex_unlock(&s->lock);
    return found;
}
