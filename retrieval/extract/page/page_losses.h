/* retrieval/extract/page/page_losses.h: what was not read of a document's pages, a line for each
 * run of pages that are lost for one reason. */
#pragma once

#include "retrieval/extract/extract.h"

struct losses {
    struct document_text *out;
    int first, last; /* pages, from 1; 0: none */
    char reason[1100];
};

void losses_add(struct losses *losses, int page, const char *reason);
/* Writes what is still open. */
void losses_end(struct losses *losses);
/* STATUS_INVALID for a file without any text: its first loss is the reason. */
enum status losses_refuse(const char *file, const struct buffer *losses, struct error *e);
