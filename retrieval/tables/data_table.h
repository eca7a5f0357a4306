/* retrieval/tables/data_table.h: the tables of stored documents, as their readers marked them
 * (retrieval/extract/page/table_text.h): rows and typed columns, each cell with its place in the
 * file. */
#pragma once

#include "retrieval/document.h"
#include "retrieval/tables/cell_value.h"

/* Of a table; a larger one is cut, and says so. */
enum { TABLE_MOST_CELLS = 1000000, TABLE_MOST_COLUMNS = 1024 };

struct data_cell {
    uint32_t row, column;           /* of the table, from 0 */
    uint32_t file_row, file_column; /* from 1; 0: the file's are not known */
    uint32_t text, size;            /* bytes of the table's text */
    bool copied; /* it stands in a row above, and covers this one: its number counts once */
};
struct data_column {
    struct buffer name;   /* "2019, Spring" */
    bool named_by_rows;   /* they repeat the name in full, with the names over it */
    uint32_t file_column; /* from 1; 0: not known */
    enum cell_kind kind;  /* CELL_TEXT, CELL_NUMBER or CELL_DATE: what most of its cells are */
    enum decimal_mark mark;
    struct buffer unit; /* of its numbers, where all have one */
};
/* Zero-initialise; free when done. */
struct data_table {
    struct buffer name;          /* the heading or caption over it; "" where there is none */
    struct buffer sheet;         /* the outermost heading, which is a spreadsheet's sheet */
    struct buffer text;          /* of all cells */
    struct data_column *columns; /* [n_columns] */
    int n_columns, columns_capacity;
    struct buffer cells;  /* struct data_cell, by row, then by column */
    struct buffer totals; /* bool for each row: it sums the others up */
    uint32_t n_rows;
    bool is_cut;
};
/* Zero-initialise; free when done. */
struct data_tables {
    struct data_table *list; /* [n] */
    int n, capacity;
};

/* Appends the tables of a document. */
void data_tables_read(struct data_tables *tables, const struct stored_document *document);
/* Adds a record of a CSV file, which is a document of its own ("prices.csv#4"), as a row of the
 * table: records may come in any order, and are put in theirs by data_table_finish. False: it is
 * no record of a table. */
bool data_table_add_record(struct data_table *table, const struct stored_document *document);
/* Orders rows, and finds the types of columns and the rows that sum up: to be called once a table
 * has all of its records. */
void data_table_finish(struct data_table *table);
void data_table_free(struct data_table *table);
void data_tables_free(struct data_tables *tables);

static inline struct text_span data_cell_text(const struct data_table *table,
                                              const struct data_cell *cell) {
    return (struct text_span){table->text.data + cell->text, cell->size};
}
static inline const struct data_cell *data_cells(const struct data_table *table, size_t *n) {
    *n = table->cells.size / sizeof(struct data_cell);
    return (const struct data_cell *)(const void *)table->cells.data;
}
/* The column of a name, else of letters as spreadsheets have them ("C"); -1: there is none. Case
 * does not count. */
int data_table_find_column(const struct data_table *table, const char *name);
