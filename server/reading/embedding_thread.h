/* server/reading/embedding_thread.h: a thread that embeds texts for requests, a few texts at a
 * time, so that a client that leaves is noticed, and no client waits for all texts of another
 * (turns.h). */
#pragma once

#include <stdatomic.h>

#include "retrieval/embedder.h"
#include "server/access/principal.h"
#include "server/threads/turns.h"

struct embedding_thread;

/* Texts of one request. The asker owns it and leaves it alone until done was called. */
struct embedding_job {
    struct turn turn; /* first: one is cast to the other; the thread's, as n_done is */
    int n_done;
    struct principal principal; /* who asks, and until when */
    const struct text_span *texts;
    const struct embedder_picture
        *pictures; /* [n] without pixels where there is a text; NULL: there are texts alone */
    int n;
    struct text_span query;        /* a reranker reads each text beside it */
    enum embed_role first, others; /* what text 0 is, and what the others are */
    float *vectors;               /* [n, dim of the embedder], raw: as the embedder's folder says */
    struct sparse_rows *sparse;   /* those of embed_request; NULL: none are wanted */
    const atomic_bool *cancelled; /* true: nobody waits any more */
    enum status status;
    struct error error;
    void (*done)(struct embedding_job *job); /* called once by the thread; must not block */
    void *context;
};

/* capacity: requests that may wait. The embedder is borrowed, and shared
 * (server/host/documents/embedder_shared.h) where others use it. */
enum status embedding_thread_open(struct embedding_thread **out, const struct embedder *embedder,
                                  int capacity, struct error *e);
/* Ends the thread. Texts that still wait are answered with STATUS_CANCELLED, later ones are
 * refused. */
void embedding_thread_stop(struct embedding_thread *thread);
void embedding_thread_close(struct embedding_thread *thread);
/* STATUS_BUSY when `capacity` requests wait or the thread was stopped; then done is not called. */
enum status embedding_thread_ask(struct embedding_thread *thread, struct embedding_job *job,
                                 struct error *e);
/* Seconds, 1 to 60, until a place is free for a request that was refused as STATUS_BUSY. */
int embedding_thread_retry_after(struct embedding_thread *thread);
