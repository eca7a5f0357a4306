/* retrieval/extract/office/office.h: documents that are zips of XML. Each function reads the parts
 * of one format. */
#pragma once

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/page/table_grid.h"

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

/* Text as paragraphs with headings, list items and tables. A paragraph is gathered and written when
 * it ends; within a table it goes to the cell that is open. */
struct office_writer {
    struct document_text *out;
    struct buffer paragraph;
    struct buffer behind; /* lines that come behind the paragraph: notes, boxes of text */
    struct buffer label;  /* of a list item: "2.1 " */
    int level;            /* of the heading that the paragraph is; 0: it is none */
    bool is_contents;     /* the paragraph is a line of a table of contents */
    size_t page;          /* that is not marked yet; 0: none */
    bool page_here;       /* it begins in the paragraph that is open, not in the next */
    int boxes;            /* open, whose paragraphs come behind */
    struct table_grid grid;
    int tables; /* open: those within the outermost are text of its cells */
    struct buffer cell;
    struct grid_cell cell_facts;
    bool cell_goes_on; /* it belongs to the one above it */
    bool cell_is_open;
};
void office_writer_free(struct office_writer *writer);
void office_text(struct office_writer *writer, const char *text);
/* A page begins here. */
void office_page(struct office_writer *writer, size_t page);
/* Ends the paragraph, where it holds anything. */
void office_end_paragraph(struct office_writer *writer);
/* A line that comes behind the paragraph that is open. */
void office_add_behind(struct office_writer *writer, struct text_span text);
void office_open_table(struct office_writer *writer);
void office_close_table(struct office_writer *writer);
void office_open_row(struct office_writer *writer);
void office_close_row(struct office_writer *writer);
/* The cell's facts may be set until it is closed. */
void office_open_cell(struct office_writer *writer);
void office_close_cell(struct office_writer *writer);
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
