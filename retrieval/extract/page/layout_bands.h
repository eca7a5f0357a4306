/* retrieval/extract/page/layout_bands.h: between layout_bands.c, which finds the bands of a part of
 * a page, and layout_cut.c, which reads them. */
#pragma once

#include "retrieval/extract/page/layout_private.h"

enum { MAX_STRIPS = 40 }; /* in a band */

struct part {
    struct layout_word *words; /* [n] */
    int *tables;               /* [n_tables] of layout->tables */
    int n, n_tables;
};

struct page_cutter {
    struct page_layout *layout;
    const struct page_words *on;
    int page;
    struct buffer asides; /* struct part, to be added last */
    float size;           /* of most of the page's letters */
};

/* The rows of a part. */
struct part_rows {
    struct cut_row *list; /* [n] */
    int n;
    struct page_rect box;
};

struct band {
    int first, end; /* rows */
    struct strip strips[MAX_STRIPS];
    int n_strips; /* 0: lines over the whole width */
};

/* The longest band from row band->first on that a white strip goes through; where there is none,
 * one row. */
void band_extend(const struct page_cutter *cutter, const struct part *part,
                 const struct part_rows *rows, struct band *band);
