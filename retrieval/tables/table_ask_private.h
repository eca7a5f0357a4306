/* retrieval/tables/table_ask_private.h: a question as a statement of SQL, and its answer with the
 * cells that it came from. */
#pragma once

#include "retrieval/tables/sqlite_door.h"
#include "retrieval/tables/table_ask.h"

enum {
    ASK_MOST_USED = 4 * ASK_MOST_COLUMNS + ASK_MOST_CONDITIONS,
    ASK_MOST_VALUES = ASK_MOST_CONDITIONS * 64
};

/* A column of the answer. */
struct ask_column {
    int column; /* of the table; -1: of none */
    bool is_measure;
    enum table_measure_kind kind;
    int date_size; /* characters of a date that are shown: 4, 7; 0: all */
};
struct ask_plan {
    const struct data_table *table;
    const struct table_question *question;
    int used[ASK_MOST_USED]; /* [n_used] columns of the table that are put into SQLite */
    int n_used;
    struct ask_column columns[2 * ASK_MOST_COLUMNS]; /* [n_columns] of the answer */
    int n_columns;
    struct buffer where;                         /* of SQL; "1" where all rows are asked for */
    struct buffer texts;                         /* what values point into */
    struct sqlite_value values[ASK_MOST_VALUES]; /* [n_values] for the places in `where` */
    size_t places[ASK_MOST_VALUES];              /* of texts in `texts`; SIZE_MAX: a number */
    int n_values;
};
/* Reads the question: what is asked for of which columns, and under which conditions. */
enum status ask_plan_make(struct ask_plan *plan, const struct data_table *table,
                          const struct table_question *question, struct table_reply *reply,
                          struct error *e);
void ask_plan_free(struct ask_plan *plan);
/* The place of a column among those that are used; it is added where it is not there. */
int ask_use(struct ask_plan *plan, int column);
/* Appends a text as it is compared. */
void ask_fold(struct buffer *out, struct text_span text);
/* Writes the cells that a row of the answer came from: those of the given rows of the table. The
 * numbers of `row` are what was measured. */
void ask_write_cells(const struct ask_plan *plan, const uint32_t *rows, size_t n,
                     const struct answer_value *values, struct buffer *out);
/* NULL: the row has no cell there. */
const struct data_cell *ask_find_cell(const struct data_table *table, uint32_t row, int column);
