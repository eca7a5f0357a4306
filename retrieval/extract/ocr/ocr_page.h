/* retrieval/extract/ocr/ocr_page.h: the picture of a page to its words, rules and places. The
 * picture is cleaned first: noise, uneven light, letters that are too small or too large, pages
 * that lie on their side or on their head, and pages that are askew. */
#pragma once

#include "retrieval/extract/ocr/tesseract.h"

struct ocr_page_job {
    float dpi;    /* pixels an inch; 0: not known */
    double until; /* ocr_clock() when reading is broken off */
    bool sample;  /* the words of a few lines are enough */
};
/* The picture is changed. *page gets its size, words, rules and confidence; no words where there
 * are none. STATUS_TOO_LARGE: the time was over before it was read. */
enum status ocr_read_page(struct ocr_engine *engine, struct grey *picture,
                          const struct ocr_page_job *job, struct page *page, struct error *e);

/* The steps, for tests. */

/* How a picture was changed: first scaled, then turned, then rotated about its middle. */
struct ocr_view {
    struct grey picture;
    int width, height;     /* before */
    float scale;           /* pixels of `picture` for one before */
    int quarters;          /* clockwise */
    float degrees;         /* clockwise */
    int threshold;         /* ink is below it */
    float letter;          /* height of an x; 0: no letters were found */
    bool is_noise;         /* it is of more parts than any page has letters */
    struct buffer letters; /* struct ink_box: parts of ink, as `picture` has them now */
};
/* Takes over *picture. */
void ocr_view_make(struct ocr_view *view, struct grey *picture);
void ocr_view_free(struct ocr_view *view);
/* A box of the view where the picture before would have it, were it level. */
struct page_rect ocr_view_undo(const struct ocr_view *view, const struct page_rect *box);
