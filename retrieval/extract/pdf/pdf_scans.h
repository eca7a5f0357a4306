/* retrieval/extract/pdf/pdf_scans.h: pages of a PDF that are read by OCR, in place of what the file
 * says of them. */
#pragma once

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/page/page_needs.h"

/* A page, as it was read. */
struct pdf_scan {
    struct buffer record; /* (page_record.h); empty: there is none */
    struct buffer loss;   /* what is not read of it; empty: nothing */
    enum page_need need;
    bool has_layer;   /* the text of a scan, by somebody else's OCR, or one that is doubtful: a few
                         lines are to be read */
    bool is_doubtful; /* its letters are those of no usual language */
    size_t n_words;
};
/* Whether it is to be read by OCR, as far as is known before the layers are tried. */
static inline bool page_waits(const struct pdf_scan *page) {
    return page->need > PAGE_IS_EMPTY && page->record.size > 0;
}

/* Reads pages [n] by OCR where they need it; one that cannot be read so keeps its record, and its
 * loss says why. Whether a hidden layer is the page's text is tried on some of the pages: a few
 * lines are read, and most of their words have to stand in the layer. */
enum status pdf_read_scans(const struct extract_file *file, struct pdf_scan *pages, int n,
                           struct error *e);
