/* retrieval/extract/pdf/pdf_fields.h: what a form was filled with, and text that was typed onto a
 * page later. A viewer shows both on the page, and Poppler's text of the page has neither. */
#pragma once

#include "retrieval/extract/page/page.h"
#include "retrieval/extract/pdf/pdf_library.h"

/* Finds the functions in Poppler's library, which is open. */
void pdf_fields_prepare(void *library);

/* Zero-initialise; free when done. */
struct pdf_fields {
    struct buffer list; /* struct pdf_field, in the order of the file */
    struct buffer text; /* their texts, UTF-8 */
};
struct pdf_field {
    struct page_rect area;
    uint32_t text, size; /* bytes of pdf_fields.text */
};
/* Those of the page that are shown and say something, in place of what the list had. */
void pdf_fields_read(const struct pdf_page *page, struct pdf_fields *fields);
void pdf_fields_free(struct pdf_fields *fields);

/* Takes what is written in them out of the picture of the page: it is no rule and no drawing. */
void pdf_fields_clear_ink(const struct pdf_fields *fields, struct pdf_pixels *pixels);
/* Adds their words. Their places within the area are about where a viewer writes them: the file
 * does not say it. */
void pdf_fields_add_words(const struct pdf_fields *fields, struct page *page);
