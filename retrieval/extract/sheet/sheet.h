/* retrieval/extract/sheet/sheet.h: a sheet of a spreadsheet as its reader found it, and the tables
 * that are written of it (retrieval/extract/page/table_text.h). Rows and columns count from 1. */
#pragma once

#include "retrieval/extract/extract.h"

enum { SHEET_ROWS = 1 << 20, SHEET_COLUMNS = 1 << 14 };
/* Of a file: cells that hold anything, and ranges that are merged. */
enum { SHEET_MOST_CELLS = 2000000, SHEET_MOST_RANGES = 200000 };

struct sheet_range {
    uint32_t top, left, bottom, right; /* all are part of it */
};
struct sheet_cell {
    uint32_t row, column;
    uint32_t seen_row, seen_column; /* the same without those that are hidden */
    uint32_t text, size;            /* bytes of sheet.text */
    bool number;                    /* or a date */
    bool bold;                      /* or shaded */
};
/* A range that the file itself calls a table. */
struct sheet_table {
    struct sheet_range range;
    uint32_t head_rows;
    char name[64];
};
/* A remark of a reviewer. */
struct sheet_remark {
    uint32_t row, column;
    uint32_t text, size; /* bytes of sheet.text */
};

/* Zero-initialise; free when done. */
struct sheet {
    struct buffer name, text;
    struct buffer cells;                /* struct sheet_cell */
    struct buffer merges;               /* struct sheet_range */
    struct buffer tables;               /* struct sheet_table */
    struct buffer remarks;              /* struct sheet_remark */
    size_t hidden_rows, hidden_columns; /* that were left out, with what they hold */
    size_t not_computed;                /* formulas without a value */
    size_t n_before;                    /* cells of the file's sheets before */
    bool is_full;                       /* a cell was left out, as there are too many */
    bool is_unordered;                  /* cells did not come row by row */
};
void sheet_clear(struct sheet *sheet);
void sheet_free(struct sheet *sheet);

/* A cell whose text is what was appended to sheet->text from `start` on. Blanks at its ends go;
 * one without text, or outside of all sheets, is dropped. */
void sheet_add_cell(struct sheet *sheet, const struct sheet_cell *cell, size_t start);
void sheet_add_merge(struct sheet *sheet, const struct sheet_range *range);
/* Appends the address of a cell: "C7". */
void sheet_print_address(struct buffer *out, size_t row, size_t column);
/* "B2:C7", "$B$2" or "C7" as a range; false: it is none. */
bool sheet_read_range(const char *text, struct sheet_range *range);

/* A sheet that is hidden and not read. */
void sheet_lose_hidden(const char *name, struct document_text *out);
/* Writes the sheet: its name as a heading where it is one of several, its tables and lines, its
 * remarks, and into the losses what was left out. */
void sheet_write(struct sheet *sheet, bool named, struct document_text *out);
