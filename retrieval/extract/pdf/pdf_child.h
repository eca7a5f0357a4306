/* retrieval/extract/pdf/pdf_child.h: what a worker's process does, and the pieces that it writes.
 */
#pragma once

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract.h"

enum pdf_piece_kind {
    PIECE_FACTS = 0x50444630, /* struct facts_piece, the title, then bookmarks as records */
    PIECE_FAILED,             /* text: the file cannot be read */
    PIECE_WORDS,              /* a record of the page without what is drawn on it */
    PIECE_PAGE,               /* a whole one */
    PIECE_LOST,               /* text: the page cannot be read */
};

struct pdf_piece_head {
    uint32_t kind, status; /* enum status of PIECE_FAILED */
    uint64_t size;         /* bytes that follow */
};

struct pdf_facts_piece {
    uint32_t n_pages, title;
};

struct pdf_child_options {
    int32_t first, step;                    /* pages, from 0 */
    int32_t tags;                           /* true: the file's tags are read too */
    char passwords[EXTRACT_PASSWORD_BYTES]; /* one a line */
    char name[SANDBOX_OPTIONS_BYTES - 12 - EXTRACT_PASSWORD_BYTES];
};

void pdf_child_prepare(const struct sandbox_call *call);
void pdf_child_work(const struct sandbox_call *call);
