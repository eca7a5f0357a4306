/* retrieval/extract/office/office.h: documents that are zips of XML. Each function reads the parts
 * of one format. */
#pragma once

#include "retrieval/extract/extract_private.h"

/* The members of a file that hold text, by name. */
struct office_part {
    char *name;
    struct buffer bytes;
};
struct office_parts {
    const struct extract_file *file;
    struct office_part *list;
    int n, capacity;
    struct error unread; /* why the first part that cannot be read is missing */
};
/* STATUS_INVALID: the file has no part of that name. */
enum status office_require(const struct office_parts *parts, const char *name,
                           const struct buffer **out, struct error *e);
/* NULL: there is no part of that name. */
const struct buffer *office_find(const struct office_parts *parts, const char *name);

static inline struct text_span office_span(const struct buffer *part) {
    return (struct text_span){part->data, part->size};
}

/* Text as paragraphs, with headings. */
struct office_writer {
    struct document_text *out;
    size_t start;   /* of the paragraph that is open */
    int level;      /* of the heading that it is; 0: it is none */
    size_t page;    /* that is not marked yet; 0: none */
    bool page_here; /* it begins in the paragraph that is open, not in the next */
    bool cell_open; /* the next paragraph follows in its row */
};
void office_text(struct office_writer *writer, const char *text);
/* A page begins here. */
void office_page(struct office_writer *writer, size_t page);
/* Ends the paragraph: a newline, where it holds anything. */
void office_end_paragraph(struct office_writer *writer);
/* Ends a cell of a table, or a row. */
void office_end_cell(struct office_writer *writer);
void office_end_row(struct office_writer *writer);
/* The title that a part of metadata gives: the text of its first element "title". */
void office_title(const struct office_parts *parts, const char *part, struct buffer *title);

enum status office_read_docx(const struct office_parts *parts, struct document_text *out,
                             struct error *e);
enum status office_read_odt(const struct office_parts *parts, struct document_text *out,
                            struct error *e);
enum status office_read_pptx(const struct office_parts *parts, struct document_text *out,
                             struct error *e);
enum status office_read_epub(const struct office_parts *parts, struct document_text *out,
                             struct error *e);
/* retrieval/extract/sheet/ */
enum status sheet_read_xlsx(const struct office_parts *parts, struct document_text *out,
                            struct error *e);
enum status sheet_read_ods(const struct office_parts *parts, struct document_text *out,
                           struct error *e);
