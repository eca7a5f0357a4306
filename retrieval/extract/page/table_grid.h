/* retrieval/extract/page/table_grid.h: a table that comes row by row, cell by cell, as documents
 * have it: with cells that cover others, and rows below that leave out what is covered. */
#pragma once

#include "retrieval/extract/page/table_text.h"

/* Browsers read no more. */
enum { GRID_MOST_COLUMNS = 1000, GRID_MOST_ROWS = 65534 };

/* Zero-initialise; free when done. */
struct table_grid {
    struct table table;
    struct buffer covers; /* struct grid_cover for each column */
    uint32_t row, column; /* of the next cell, from 0; rows: one is open */
    bool row_is_open;
};
/* A cell that reaches into the rows below. */
struct grid_cover {
    uint32_t cell; /* of table.cells, from 1; 0: none */
    uint32_t end;  /* the row that it does not reach any more */
};

struct grid_cell {
    struct text_span text;
    uint32_t rows, columns; /* that it covers; 0 is 1 */
    bool head;
};

void grid_open_row(struct table_grid *grid);
void grid_close_row(struct table_grid *grid);
/* The next cell of the row, at the first column that no cell above covers. */
void grid_add_cell(struct table_grid *grid, const struct grid_cell *cell);
/* The next cell of the row belongs to the one above it. */
void grid_continue_cell(struct table_grid *grid, uint32_t columns);
/* Leaves so many columns empty. */
void grid_skip(struct table_grid *grid, uint32_t columns);
/* Writes the table with the heads that it has, and clears the grid. A table of one column or of
 * one cell is no table: its texts are written as paragraphs. */
void grid_write(struct table_grid *grid, struct document_text *out);
void grid_free(struct table_grid *grid);
