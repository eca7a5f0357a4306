/* server/documents/document_thread.h: the threads that change the collection of a running server.
 * Some read the files that requests bring, each of them one at a time; one carries out changes, in
 * the order in which each client asked for them and a part of one at a time, so that clients take
 * turns (document_lines.h); one follows what other programs do, and compacts a collection in a
 * folder when enough of it has changed. */
#pragma once

#include <stdatomic.h>

#include "server/documents/document_lines.h"
#include "server/documents/document_quota.h"
#include "server/documents/document_upload.h"
#include "server/host/documents/document_group.h"

struct document_thread;

/* One document to put or to delete, or a file of any number of documents to put. */
struct document_item {
    struct collection_document
        document; /* to put: id, path, title, metadata, text; to delete: id */
    /* Has the text, and the title where that is ""; the parts of a file that may hold several have
     * all but metadata. NULL: `document` has it. */
    struct document_upload *upload;
    enum change_effect effect;
    enum status status;
    struct error error;
};

/* How far a job is, to be read while it is carried out. */
struct document_steps {
    atomic_bool begun;          /* it is no longer waiting for its turn */
    atomic_int items;           /* that are over */
    atomic_int_fast64_t chunks; /* that were put */
};

/* Documents to put or to delete, in order. The asker owns it and leaves it alone until done was
 * called. */
struct document_job {
    struct document_turn turn; /* first: one is cast to the other; the threads', as `progress` is */
    struct document_progress *progress;
    uint64_t client; /* of whom the changes are (struct principal) */
    bool deletes;
    const struct filter *filter; /* documents that the asker may put or delete; NULL: all */
    const struct principal *who; /* pays for what is embedded; borrowed. NULL: nobody does */
    int64_t upload_bytes;        /* of text that all its files may have together (option
                                    server.max_upload_text) */
    struct document_item *items; /* [n_items] */
    int n_items;
    /* Completes the document of an item just before it is put, NULL: it is complete. A failure is
     * the item's. */
    enum status (*fill)(struct document_job *job, struct document_item *item, struct error *e);
    void (*run)(struct document_job *job); /* carried out in place of the items, unless the thread
                                            * is stopped;  NULL: the items are */
    struct document_steps *steps;          /* NULL: nobody asks how far it is */
    const atomic_bool *cancelled;          /* true: nobody waits any more; NULL: somebody does */
    /* Called by the thread after each part of a document: so many of its chunks are embedded. NULL:
     * nobody asks. */
    void (*part)(struct document_job *job, int n_embedded, int n_chunks);
    void (*done)(struct document_job *job); /* called once by the thread; must not block */
    void *context;
};

struct document_thread_options {
    struct collection *collection;
    const struct embedder *embedder; /* shared (server/host/documents/embedder_shared.h) */
    const struct embedder *pictures; /* the pictures' own, shared; NULL: they have none */
    const struct tokenizer
        *tokenizer;           /* that the collection is cut with; NULL: documents cannot be put */
    struct chunk_rules rules; /* the collection's */
    int capacity;             /* jobs that may wait */
    int upload_seconds;       /* that reading a file may take, with all that are in it */
    struct extract_ocr ocr;   /* of their pages that are pictures; its pictures are set here */
    const struct extract_model *model; /* that reads pages; NULL: none */
    int readers;                       /* files that are read at once, of each client one */
    const char *files; /* folder of copies of uploads (retrieval/kept/kept_copy.h); NULL: they are
                          not kept */
    int compact_after; /* chunks that came or went; 0: the collection is not compacted */
};

/* Called by the thread that keeps the collection in order, now and then, before it looks for what
 * other programs have done. */
struct document_tender {
    void (*tend)(void *context);
    void *context;
};
/* From now on, once. Until document_thread_stop returns. */
void document_thread_tend(struct document_thread *thread, struct document_tender tender);

/* All is borrowed. */
enum status document_thread_open(struct document_thread **out,
                                 const struct document_thread_options *options, struct error *e);
/* Ends the threads: a file that is read is given up. Jobs that still wait are answered with
 * STATUS_CANCELLED, later ones are refused. */
void document_thread_stop(struct document_thread *thread);
void document_thread_close(struct document_thread *thread);
/* STATUS_BUSY when `capacity` jobs wait or the thread was stopped, STATUS_UNSUPPORTED to put
 * without a tokenizer; then done is not called. */
enum status document_thread_ask(struct document_thread *thread, struct document_job *job,
                                struct error *e);
