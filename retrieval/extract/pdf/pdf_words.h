/* retrieval/extract/pdf/pdf_words.h: what is found on a page of a PDF, as struct page has it. */
#pragma once

#include "retrieval/extract/page/page.h"
#include "retrieval/extract/pdf/pdf_library.h"

/* The letters of a page as its words. */
void pdf_words_add(const struct pdf_letters *letters, struct page *page);
/* Of the page as it looks: its rules, which words are not seen, and where it has no words but is
 * not empty, where it is drawn on. */
void pdf_ink_add(const struct pdf_pixels *pixels, struct page *page);
