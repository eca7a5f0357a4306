/* retrieval/extract/page/page_record.h: pages as bytes, between the processes that read them and
 * the one that lays them out. A reader of records trusts nobody
 * who wrote them. */
#pragma once

#include "retrieval/extract/page/page_layout.h"

struct extract_file;

/* Appends a record. */
void record_add_page(struct buffer *records, const struct page *page);
void record_add_bookmark(struct buffer *records, struct text_span title, uint32_t page,
                         uint32_t level);
/* Adds what the records hold to *pages. STATUS_CORRUPT: they are none. */
enum status records_read(struct text_span records, struct pages *pages, struct error *e);
/* Lays out pages in a process of its own. The file is the one that they are of: its name, and its
 * limits. */
enum status pages_lay_out_in_child(const struct extract_file *file, struct text_span records,
                                   struct document_text *out, struct error *e);
