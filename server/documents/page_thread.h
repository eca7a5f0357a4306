/* server/documents/page_thread.h: a thread that draws pages of documents for requests, one at a
 * time, in a process of the sandbox each; clients take turns (turns.h). */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"
#include "retrieval/collection.h"
#include "retrieval/kept/kept_file.h"
#include "server/access/principal.h"
#include "server/threads/turns.h"

struct page_thread;

/* A page of one document. The asker owns it and leaves it alone until done was called. */
struct page_job {
    struct turn turn;             /* first: one is cast to the other; the thread's */
    struct principal principal;   /* who asks, and until when: no other documents are there */
    const char *id;               /* of the document */
    int number;                   /* of the page, from 1 */
    struct buffer png;            /* owned by the asker; empty where the job fails */
    int n_pages;                  /* of the document */
    const atomic_bool *cancelled; /* true: nobody waits any more */
    enum status status;           /* STATUS_NOT_FOUND: there is no such document or page, its file
                                     is not kept, or it is no PDF */
    struct error error;
    bool is_changed;                    /* it failed because the file is no longer what was read */
    void (*done)(struct page_job *job); /* called once by the thread; must not block */
    void *context;
};

/* Both are borrowed; `files` may be NULL: none are kept. capacity: requests that may wait. */
enum status page_thread_open(struct page_thread **out, struct collection *collection,
                             struct kept_files *files, int capacity, struct error *e);
/* Ends the thread: a page that is drawn is given up. */
void page_thread_stop(struct page_thread *thread);
void page_thread_close(struct page_thread *thread);
/* STATUS_BUSY when `capacity` requests wait or the thread was stopped; then done is not called. */
enum status page_thread_ask(struct page_thread *thread, struct page_job *job, struct error *e);
