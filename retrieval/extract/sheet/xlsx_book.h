/* retrieval/extract/sheet/xlsx_book.h: the parts of an XLSX file that its sheets share: the list of
 * sheets, their strings, and the formats of their cells. */
#pragma once

#include "retrieval/extract/office/links.h"

/* How a cell is shown: an index of cellXfs. */
struct xlsx_style {
    const char *code; /* of its number format, owned by the book */
    bool is_date, bold;
};
struct xlsx_sheet_name {
    char *name, *id;
    bool hidden;
};

/* Zero-initialise; free when done. */
struct xlsx_book {
    struct buffer path; /* of the workbook's part */
    struct part_list links;
    struct xlsx_sheet_name *sheets; /* [n_sheets], in order */
    int n_sheets, sheets_capacity;
    bool from_1904;
    bool not_computed; /* the program that wrote it computed nothing: zeros are no values */
    struct buffer strings, string_ends; /* the texts one behind the other; uint32_t each */
    struct xlsx_style *styles;          /* [n_styles] */
    int n_styles, styles_capacity;
    struct xlsx_format {
        int id;
        char *code;
    } * formats; /* [n_formats] */
    int n_formats, formats_capacity;
};
enum status xlsx_book_read(struct xlsx_book *book, const struct office_parts *parts,
                           struct error *e);
void xlsx_book_free(struct xlsx_book *book);
/* Shared string i; false: there is none. */
bool xlsx_find_string(const struct xlsx_book *book, size_t i, struct text_span *text);
/* Of a number that a reader passes: "_x000D_" in a text becomes its character, in place. */
void xlsx_unescape(struct buffer *text, size_t start);
/* Whether a flag says yes: "1", "true", "on". */
bool xlsx_is_true(const struct buffer *value);
