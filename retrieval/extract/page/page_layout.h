/* retrieval/extract/page/page_layout.h: pages to text with marks: words become lines, lines become
 * paragraphs, headings, lists, tables and notes, in the order in which a reader takes them. Pages
 * of a PDF and pages that OCR read are laid out the same way.
 *
 * Lines that stand on most pages at the same place (heads, feet, numbers of pages) are left out,
 * and so are words that nobody sees on the page. */
#pragma once

#include "retrieval/extract/page/page.h"

/* An entry of a document's own table of contents. */
struct page_bookmark {
    uint32_t title, size; /* bytes of pages.titles */
    uint32_t page;        /* from 1 */
    uint32_t level;       /* from 1; 0: no heading, but what a picture of the page shows */
};

/* The pages of one document. Zero-initialise; free when done. */
struct pages {
    struct page *list; /* [n], by number; a page that was lost is not there, and one whose words
                          lead several ways may be there for each of them */
    int n, capacity;
    struct buffer bookmarks; /* struct page_bookmark */
    struct buffer titles;
};

/* A page behind the others, zero but for its number. */
struct page *pages_add(struct pages *pages, int number);
void pages_add_bookmark(struct pages *pages, struct text_span title, uint32_t page, uint32_t level);
void pages_free(struct pages *pages);

/* Parts pages of which some words are upright and others are not: the layout reads one turn of a
 * page. A few words on their side stay where they are, and are not read. */
void pages_part_turns(struct pages *pages);

/* Appends the text of the pages to out->text, with its marks: pages with their sizes, headings,
 * blocks, cells of tables, and the box of every line and word. Words are taken as they are but for
 * the order; `pages` is not changed. */
void pages_lay_out(const struct pages *pages, struct document_text *out);
