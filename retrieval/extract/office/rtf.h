/* retrieval/extract/office/rtf.h: the parts of the reader of RTF: bytes to characters, the rows of
 * a table, and the reader itself. */
#pragma once

#include "retrieval/extract/office/office.h"

/* Code pages. */

enum { RTF_DEFAULT_PAGE = 1252, RTF_SYMBOL_PAGE = 42 };
/* The code page of a font's \fcharset; 0: it says none. */
int rtf_page_of_charset(int charset);
/* Opens the tables of the code pages that a file names, before files are out of reach. */
void rtf_open_pages(struct text_span rtf);
/* Appends bytes of a code page as UTF-8; bytes that are no characters become U+FFFD. */
void rtf_decode(int page, struct text_span bytes, struct buffer *out);

/* A table: cells lie between edges, of which each row has its own. */

struct rtf_cell {
    uint32_t row;
    uint32_t right;      /* its edge, in twips from the left of all */
    uint32_t text, size; /* bytes of the table's text */
    bool head, goes_on,
        joins; /* goes_on: it belongs to the cell above; joins: to the one at its left */
};
struct rtf_table {
    struct buffer text;
    struct buffer cells; /* struct rtf_cell */
    uint32_t rows;
    /* Of the row that is described and read. */
    struct buffer edges; /* struct rtf_cell without text */
    struct rtf_cell next_edge;
    bool is_head;
    uint32_t n_read; /* cells of the row */
};
/* \trowd: a description begins. */
void rtf_begin_row(struct rtf_table *table);
/* \cellx: the cell that was described ends at this edge. */
void rtf_add_edge(struct rtf_table *table, int right);
/* \cell: the text of the next cell. */
void rtf_add_cell(struct rtf_table *table, struct text_span text);
/* \row */
void rtf_end_row(struct rtf_table *table);
/* Writes the table, if there is any, and clears it. */
void rtf_write_table(struct rtf_table *table, struct document_text *out);
void rtf_free_table(struct rtf_table *table);
