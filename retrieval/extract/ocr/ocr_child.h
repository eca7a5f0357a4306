/* retrieval/extract/ocr/ocr_child.h: what the process of an OCR worker does, and the pieces that it
 * writes: one for each page that it was asked for, in that order. */
#pragma once

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/ocr/ocr_source.h"
#include "retrieval/extract/ocr/tesseract.h"

enum ocr_piece_kind {
    OCR_PIECE_PAGE = 0x4f435230, /* a record of the page (page_record.h) */
    OCR_PIECE_LOST,              /* text: why the page is not read */
    OCR_PIECE_COUNT,             /* struct ocr_count: how many pages there are */
};

struct ocr_piece_head {
    uint32_t kind, size; /* size: bytes that follow */
};
struct ocr_count {
    uint32_t n;
};

enum { OCR_BATCH = 256 };
struct ocr_child_options {
    const struct ocr_source *source;
    int32_t n;                /* pages; 0: they are counted */
    int32_t sample;           /* true: a few lines of each page are enough */
    int32_t seconds;          /* that a page may take */
    uint64_t memory;          /* bytes that there are */
    int32_t pages[OCR_BATCH]; /* [n] from 0 */
    char languages[OCR_MOST_LANGUAGES * OCR_LANGUAGE_SIZE]; /* ocr_languages_parse takes them */
    char passwords[EXTRACT_PASSWORD_BYTES]; /* that the file may be opened with, one a line */
    char name[512];                         /* of the file, for messages */
};
_Static_assert(sizeof(struct ocr_child_options) <= SANDBOX_OPTIONS_BYTES, "a job has that room");

void ocr_child_prepare(const struct sandbox_call *call);
void ocr_child_work(const struct sandbox_call *call);
