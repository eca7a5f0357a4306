/* retrieval/extract/pdf/pdf_structure.h: the tags of a PDF: which of its texts are headings, and
 * what its pictures show. They are what the file says of itself and may be wrong: no word comes or
 * goes by them. */
#pragma once

#include "retrieval/extract/pdf/pdf_library.h"

/* Finds the functions in Poppler's library, which is open. */
void pdf_structure_prepare(void *library);

struct pdf_structure;
/* NULL: the file has no tags. */
struct pdf_structure *pdf_structure_open(const struct pdf *pdf);

/* Level 1 .. 6: of a heading, whose text it is; 0: what a picture shows. */
typedef void pdf_tag_taker(void *context, struct text_span text, int page, int level);
/* Calls the taker for the tags of page i, from 0, in the order of the tree. Texts that would take
 * too long are left out. */
void pdf_structure_walk(struct pdf_structure *structure, int i, pdf_tag_taker *take, void *context);
