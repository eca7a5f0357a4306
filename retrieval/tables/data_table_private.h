/* retrieval/tables/data_table_private.h: tables while they are read. */
#pragma once

#include "retrieval/tables/data_table.h"

/* Of one table, while it is read. */
struct table_builder {
    struct data_table *table;
    uint32_t last_row; /* the row of the line before, as in the file */
};

/* A cell as a line has it. */
struct line_cell {
    struct text_span name, text;
    uint32_t row, column; /* of the file; 0: not known */
};

/* Adds a column at the end; -1: there are too many. `name` is empty where it is not known yet. */
int builder_add_column(struct data_table *table, uint32_t file_column, struct text_span name);
/* Adds a cell to the row. *before: the column of the cell before, or -1; it becomes this one's. */
void builder_add_cell(struct data_table *table, const struct line_cell *cell, uint32_t row,
                      int *before);

/* Lines of a table of Markdown: "| Kayak | 290 |", without the end of the line. Rows and columns
 * are counted from 1, the head is row 1. */
void markup_name_columns(struct data_table *table, struct text_span line);
void markup_add_row(struct table_builder *builder, struct text_span line);
