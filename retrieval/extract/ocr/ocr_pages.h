/* retrieval/extract/ocr/ocr_pages.h: pages of a file by OCR: processes of the sandbox read them,
 * several at a time, and each page has a time of its own. A page that crashes its process, takes
 * all of its memory or does not end is lost, and the others are not. */
#pragma once

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/ocr/ocr_source.h"
#include "retrieval/extract/page/page.h"

/* Called for each page, in the order of the list. `record` (page_record.h) is foreign, and empty
 * where the page is lost; `why` tells then. */
typedef enum status ocr_taker(void *context, int page, struct text_span record, const char *why,
                              struct error *e);

struct ocr_wish {
    const struct ocr_source *source;
    const int *pages; /* [n] from 0, ascending */
    int n;
    bool sample; /* the words of a few lines of each are enough */
};
/* STATUS_CANCELLED, or what the taker or the sandbox fails with; a page that is lost is no failure.
 */
enum status ocr_pages_read(const struct extract_file *file, const struct ocr_wish *wish,
                           ocr_taker *take, void *context, struct error *e);
