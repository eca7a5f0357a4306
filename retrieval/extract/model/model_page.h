/* retrieval/extract/model/model_page.h: the picture of a page to Markdown, by a model that sees. */
#pragma once

#include "retrieval/extract/extract.h"

/* A picture of known kind, as picture_media_type has it, and until when there is time for it. */
struct model_page {
    struct text_span picture;
    const char *type; /* "image/png" */
    double until;     /* time_now(); 0: the model's own time alone */
};

/* Asks the model of the limits, or takes what was kept of the same page before. *markdown is valid
 * UTF-8 and not blank, and a stranger's text. STATUS_CANCELLED; else a failure is of this page, and
 * its text has no name of a file. */
enum status model_page_read(const struct model_page *page, const struct extract_limits *limits,
                            struct buffer *markdown, struct error *e);
