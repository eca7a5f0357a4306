/* server/schedule/embedding_thread.h: a thread that embeds texts for requests, one request after the other, a few texts
 * at a time, so that a client that leaves is noticed. */
#pragma once

#include <stdatomic.h>

#include "retrieval/embedder.h"

struct embedding_thread;

/* Texts of one request. The asker owns it and leaves it alone until done was called. */
struct embedding_job {
    const struct text_span *texts;
    int n;
    enum embed_role first, others; /* what text 0 is, and what the others are */
    float *vectors;                /* [n, dim of the embedder], unit length */
    const atomic_bool *cancelled;  /* true: nobody waits any more */
    enum status status;
    struct error error;
    void (*done)(struct embedding_job *j); /* called once by the thread; must not block */
    void *context;
};

/* capacity: requests that may wait. The embedder is borrowed, and shared (server/host/embedder_shared.h) where others
 * use it. */
enum status embedding_thread_open(struct embedding_thread **out, const struct embedder *embedder, int capacity,
                                  struct error *e);
/* Ends the thread. Texts that still wait are answered with STATUS_CANCELLED, later ones are refused. */
void embedding_thread_stop(struct embedding_thread *t);
void embedding_thread_close(struct embedding_thread *t);
/* STATUS_BUSY when `capacity` requests wait or the thread was stopped; then done is not called. */
enum status embedding_thread_ask(struct embedding_thread *t, struct embedding_job *j, struct error *e);
