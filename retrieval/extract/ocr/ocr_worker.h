/* retrieval/extract/ocr/ocr_worker.h: one of the processes that share the pages of a file. */
#pragma once

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/ocr/ocr_child.h"
#include "retrieval/extract/ocr/ocr_pages.h"

struct ocr_worker {
    const struct extract_file *file;
    const struct ocr_wish *wish;
    struct sandbox_job job;
    struct ocr_child_options options;
    struct sandbox_child child;
    int step;            /* pages of the wish from one of this worker's to the next */
    int batch;           /* pages that the process has still to hand over */
    struct buffer piece; /* the bytes of the piece that came last */
    bool runs;
    bool fresh; /* its process has not handed over a page yet: it may still load models */
};

/* One of `step` workers. */
void ocr_worker_open(struct ocr_worker *worker, const struct extract_file *file,
                     const struct ocr_wish *wish, int step);
/* Begins its process with the page at place i of the wish. */
enum status ocr_worker_begin(struct ocr_worker *worker, int i, struct error *e);
void ocr_worker_close(struct ocr_worker *worker);
/* The page at place i of the wish, which is this worker's next. An empty record: it is lost, and
 * *why tells the reason. STATUS_CANCELLED. */
enum status ocr_worker_page(struct ocr_worker *worker, int i, struct text_span *record,
                            struct error *why);
/* How many pages a file of pictures has. */
enum status ocr_count_pages(const struct extract_file *file, int *n, struct error *e);
