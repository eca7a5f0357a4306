/* retrieval/store/selection.c: see selection.h. */
#include "retrieval/store/selection.h"

#include <stdlib.h>
#include <string.h>

void selection_release(struct selection *selection) {
    if (selection == NULL || atomic_fetch_sub(&selection->holders, 1) > 1) return;
    filter_release(selection->filter);
    free(selection->documents);
    free(selection);
}

static struct selection *selection_make(const struct disk_generation *generation,
                                        struct filter *filter) {
    int64_t n = disk_generation_info(generation)->n_documents;
    const struct words *words = disk_generation_words(generation);
    struct selection *selection = xcalloc(1, sizeof *selection);
    atomic_init(&selection->holders, 1);
    selection->filter = filter_hold(filter);
    selection->documents = xcalloc((size_t)n / 8 + 1, 1);
    for (int64_t i = 0; i < n; i++) {
        struct stored_document document = disk_generation_document_at(generation, i);
        if (!document_is_allowed(filter, &document)) continue;
        selection->documents[i / 8] |= (uint8_t)(1 << (i % 8));
        selection->n_documents++;
        selection->n_chunks += document.n_chunks;
        for (int64_t j = 0; j < document.n_chunks; j++)
            selection->n_words += words_length(words, document.first_chunk + j);
    }
    return selection;
}

void selections_open(struct selections *selections) {
    *selections = (struct selections){0};
    pthread_mutex_init(&selections->lock, NULL);
}

void selections_close(struct selections *selections) {
    for (int i = 0; i < SELECTIONS; i++) selection_release(selections->latest[i]);
    pthread_mutex_destroy(&selections->lock);
}

/* The place of the filter's selection; SELECTIONS: it is not remembered. */
static int find_latest(const struct selections *selections, const struct filter *filter) {
    int i = 0;
    while (i < SELECTIONS && selections->latest[i] &&
           !filter_is_same(selections->latest[i]->filter, filter))
        i++;
    return i < SELECTIONS && selections->latest[i] ? i : SELECTIONS;
}

/* Moves what is at `at` to the front, or drops the last for a new one. */
static void put_first(struct selections *selections, int at, struct selection *found) {
    if (at == SELECTIONS) {
        at = SELECTIONS - 1;
        selection_release(selections->latest[at]);
    }
    memmove(selections->latest + 1, selections->latest, (size_t)at * sizeof(struct selection *));
    selections->latest[0] = found;
}

/* The one that is remembered, or `made` where none is. NULL: neither. */
static struct selection *remember(struct selections *selections, const struct filter *filter,
                                  struct selection *made) {
    pthread_mutex_lock(&selections->lock);
    int at = find_latest(selections, filter);
    struct selection *found = at < SELECTIONS ? selections->latest[at] : made;
    if (found) {
        put_first(selections, at, found);
        atomic_fetch_add(&found->holders, 1);
    }
    pthread_mutex_unlock(&selections->lock);
    return found;
}

/* A new filter looks at all documents, and searches with others do not wait for it. */
struct selection *selections_find(struct selections *selections,
                                  const struct disk_generation *generation, struct filter *filter) {
    struct selection *found = remember(selections, filter, NULL);
    if (found) return found;
    struct selection *made = selection_make(generation, filter);
    found = remember(selections, filter, made);
    if (found != made) selection_release(made); /* another thread was first */
    return found;
}
