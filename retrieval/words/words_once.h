/* retrieval/words/words_once.h: words that are made when they are first asked for, once. Whoever
 * asks first makes them, without a lock that others need; who asks for the same meanwhile waits,
 * and who asks for others does not. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "retrieval/words/words.h"

struct words_once {
    pthread_mutex_t lock; /* all below */
    pthread_cond_t ended; /* a making has */
    struct words *words;  /* NULL: not made yet */
    bool making;
};
void words_once_open(struct words_once *once);
void words_once_close(struct words_once *once);

struct words_request {
    words_source *source;
    void *context;
    int64_t n; /* chunks */
    const atomic_bool
        *cancelled; /* true: the asker waits no more for one who makes them; NULL: it does */
};
/* *out lives as long as the once. STATUS_NO_MEMORY: whoever asks next tries again.
 * STATUS_CANCELLED. Any thread. */
enum status words_once_get(struct words_once *once, const struct words_request *request,
                           const struct words **out, struct error *e);
