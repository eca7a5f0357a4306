/* retrieval/extract/page/table_text.h: a table as text in which every row stands alone:
 *
 *     Northern coast, Oakhurst | 2019, Spring: 28,608 | 2019, Autumn: 61,937
 *
 * The heads of its row stand in front, and each value carries the heads of its column from the
 * outermost in. A head that covers several rows or columns belongs to each. An empty cell is left
 * out with its heads. All readers of tables write them by this. */
#pragma once

#include "retrieval/extract/extract.h"

struct table_cell {
    uint32_t row, column;    /* from 0; of a cell that covers several the first */
    uint32_t rows, columns;  /* that it covers, at least 1 */
    uint32_t text, size;     /* bytes of table.text */
    uint32_t marks, n_marks; /* of table.marks: boxes of its words, whose places are bytes of
                                table.text too */
    bool head; /* the source says so: a cell of a head row, th, bold over light, or shaded */
};

/* Zero-initialise; free when done. */
struct table {
    struct buffer text, marks;
    struct buffer cells;                /* struct table_cell, by row, then by column */
    struct buffer caption;              /* is written before the rows; may be empty */
    uint32_t head_rows;                 /* rows that name the columns, from row 0 on */
    uint32_t head_columns;              /* columns that name the rows, from column 0 on */
    uint32_t source_row, source_column; /* of row 0 and column 0 in the file, from 1; 0: the cells
                                           are not marked */
};

/* Adds a cell. Its text is copied; blanks at its ends go and runs of blanks and line breaks within
 * become one blank. An empty cell may be left out, unless it covers several places. The pointer
 * holds until the next call. */
struct table_cell *table_add_cell(struct table *table, uint32_t row, uint32_t column,
                                  struct text_span text);
/* A cell that is filled piece by piece: table_begin_cell, then bytes to table->text and marks to
 * table->marks, then table_end_cell. */
struct table_cell *table_begin_cell(struct table *table, uint32_t row, uint32_t column);
void table_end_cell(struct table *table);
/* How many rows and columns are heads where the source does not say: the rows whose cells are
 * marked as heads or stand as text over numbers, else the first; the first column, and those
 * behind one whose cells cover several rows. */
void table_find_heads(struct table *table);
/* Whether the cells of a row may name columns: they are marked as heads, or short, and begin with
 * no number where the next row does. */
bool table_row_names(const struct table *table, uint32_t row);
/* head_columns alone, where head_rows is known. */
void table_find_columns(struct table *table);
/* Writes the caption and the heads, each a block of its own (BLOCK_TABLE_HEAD). */
void table_write_head(const struct table *table, struct document_text *out);
/* Writes the rows behind the head rows, each at least one line and one block (BLOCK_TABLE_ROW). A
 * row that is too long for a passage goes on in the next line, behind the row's heads. */
void table_write_rows(const struct table *table, struct document_text *out);
/* Both. */
void table_write(const struct table *table, struct document_text *out);
/* Leaves the head rows and drops the others, so that a long table is written part by part: rows
 * are counted on. */
void table_drop_rows(struct table *table);
void table_clear(struct table *table);
void table_free(struct table *table);
