/* retrieval/extract/text/blocks.h: marks of blocks (MARK_BLOCK) of texts that are kept as they are.
 */
#pragma once

#include "retrieval/extract/extract.h"

/* Appends the marks of the blocks of a text, whose headings [struct mark] are known. */
void blocks_mark(enum document_kind kind, struct text_span text, const struct buffer *headings,
                 struct buffer *blocks);
/* The same of a man page, as mandoc formats it. */
void blocks_mark_man(struct text_span text, const struct buffer *headings, struct buffer *blocks);
/* Appends the marks of two lists in the order of their places; of equal ones, the left's first. */
void marks_join(const struct buffer *left, const struct buffer *right, struct buffer *out);
