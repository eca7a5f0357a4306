/* retrieval/extract/page/page_needs.h: which pages have to be read by OCR. Pages decide, not files:
 * a file whose first page has text may hide twenty scans. */
#pragma once

#include "retrieval/extract/page/page.h"

enum page_need {
    PAGE_NEEDS_NOTHING,
    PAGE_IS_EMPTY,      /* nothing is drawn on it */
    PAGE_HAS_NO_TEXT,   /* but pictures, or shapes */
    PAGE_HAS_A_STAMP,   /* a picture, and a few words beside its text */
    PAGE_HAS_BAD_LAYER, /* the text that lies hidden under its picture is none */
    PAGE_HAS_GIBBERISH, /* its letters are not those that are seen: a font without Unicode */
};

struct page_verdict {
    enum page_need need;
    bool has_layer; /* most of its words lie hidden under a picture: a scan that was read before */
    /* Its letters are as frequent as in no usual language, or there are all but none beside digits:
     * fonts may name wrong ones. */
    bool is_doubtful;
};
struct page_verdict page_judge(const struct page *page);
/* "a picture without text" */
const char *page_need_name(enum page_need need);
