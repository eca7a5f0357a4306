/* retrieval/extract/pdf/pdf_worker.h: the processes that read the pages of a PDF. Several share a
 * file, every so many pages each. One that a page ends, by its time or its memory, is followed by
 * another that begins behind it: the page is lost, and the others are not. */
#pragma once

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract_private.h"

struct pdf_worker {
    struct sandbox_job job;
    struct sandbox_child child;
    const struct extract_file *file;
    struct buffer piece; /* the bytes of the piece that came last */
    int step;            /* pages from one of this process to its next */
    int n_pages;         /* of the file; 0: not known yet */
    bool runs;
    bool lost;        /* a page ended its process: it reads no tags any more */
    struct error end; /* why it does not run any more */
};

/* How the reading of a page ended. */
enum page_outcome {
    PAGE_READ,
    PAGE_HALF, /* its words, but not what is drawn */
    PAGE_LOST,
};

/* The file's own facts, from a worker that has not read a page. */
struct pdf_facts {
    int n_pages;
    struct buffer title, bookmarks; /* the latter records (page_record.h) */
};

/* Begins with page `first`, from 0; `memory` bytes are its. */
enum status pdf_worker_begin(struct pdf_worker *worker, const struct extract_file *file,
                             const int pages[2], size_t memory, struct error *e);
/* The first piece. Fails where the file cannot be read at all. */
enum status pdf_worker_facts(struct pdf_worker *worker, struct pdf_facts *facts, struct error *e);
/* Page i, from 0, which is this worker's next, as a record behind the others. Where it is not
 * PAGE_READ, *why tells the reason. STATUS_CANCELLED. */
enum status pdf_worker_page(struct pdf_worker *worker, int i, struct buffer *records,
                            enum page_outcome *outcome, struct error *why);
void pdf_worker_end(struct pdf_worker *worker);
