/* server/reading/retrieval_thread.h: the one thread that embeds and searches. It owns the retriever
 * while it runs; whatever waits when it looks goes into one batch: the chunks of a prompt, closed
 * chunks of several sequences, and searches. */
#pragma once

#include <stdatomic.h>

#include "retrieval/retriever.h"
#include "server/threads/histogram.h"

struct retrieval_thread;

/* Queries that are answered together. The asker owns it and leaves it alone until done was called.
 */
struct lookup {
    struct retriever_query *queries; /* [n]; their snapshot is the lookup's */
    struct hits *hits; /* [n], filled in when status is zero: free each with hits_free */
    int n;
    /* The collection that is searched. NULL: the newest, which is put here and held for the asker;
     * the next lookup of the same request then searches the same. */
    struct snapshot *snapshot;
    const struct recall *recall; /* beside the queries, whose hits then have their versions; NULL:
                                    nothing is recalled */
    const atomic_bool
        *cancelled; /* true: nobody waits any more, the lookup is skipped with STATUS_CANCELLED */
    enum status status;
    struct error error;
    double asked;                        /* set by retrieval_thread_ask: when */
    void (*done)(struct lookup *lookup); /* called once by the retrieval thread; must not block */
    void *context;
};

/* Seconds of lookups: in the queue, and of each batch of them in the embedder and in the index. */
struct retrieval_metrics {
    struct histogram queue, embed, search;
};

/* capacity: lookups that may wait at once. threads: of FAISS in this thread. The retriever is
 * borrowed. */
enum status retrieval_thread_open(struct retrieval_thread **out, struct retriever *retriever,
                                  int capacity, int threads, struct error *e);
/* Ends the thread. Lookups still waiting are answered with STATUS_CANCELLED; later ones are
 * refused. */
void retrieval_thread_stop(struct retrieval_thread *thread);
void retrieval_thread_close(struct retrieval_thread *thread);
/* The newest snapshot of what is searched, held for the caller. Any thread. */
struct snapshot *retrieval_thread_hold(struct retrieval_thread *thread);
/* STATUS_BUSY when `capacity` lookups wait or the thread was stopped; then done is not called. */
enum status retrieval_thread_ask(struct retrieval_thread *thread, struct lookup *lookup,
                                 struct error *e);
void retrieval_thread_metrics(struct retrieval_thread *thread, struct retrieval_metrics *out);
