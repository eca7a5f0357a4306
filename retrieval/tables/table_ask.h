/* retrieval/tables/table_ask.h: questions about one table that need arithmetic: filter, group, sum,
 * count, min, max, mean, sort. SQLite answers them, in memory; the statement is made here and never
 * by a client. An answer names the cells that it was made from. */
#pragma once

#include "retrieval/tables/data_table.h"

enum table_operator {
    OPERATOR_EQUAL,
    OPERATOR_UNEQUAL,
    OPERATOR_LESS,
    OPERATOR_AT_MOST,
    OPERATOR_MORE,
    OPERATOR_AT_LEAST,
    OPERATOR_CONTAINS, /* a text */
    OPERATOR_EMPTY,
    OPERATOR_FILLED
};
/* Any of several values does, of OPERATOR_UNEQUAL none. Texts are compared as they fold. */
struct table_condition {
    const char *column;
    enum table_operator is;
    struct text_span values[64]; /* as a cell has them: "5", "2024-03", "North" */
    int n_values;
};
enum table_measure_kind { MEASURE_COUNT, MEASURE_SUM, MEASURE_MIN, MEASURE_MAX, MEASURE_MEAN };
struct table_measure {
    enum table_measure_kind kind;
    const char *column; /* NULL: a count of rows */
};
/* "Day:month" groups dates by months, "Day:year" by years. */
struct table_order {
    const char *by; /* a column of the answer: of the table, or "sum of Price" */
    bool descending;
};
enum {
    ASK_MOST_CONDITIONS = 16,
    ASK_MOST_COLUMNS = 16,
    ASK_MOST_ROWS = 1000,
    ASK_MOST_RANGES = 100
};

struct table_question {
    struct table_condition conditions[ASK_MOST_CONDITIONS]; /* all hold */
    int n_conditions;
    const char *groups[ASK_MOST_COLUMNS];
    int n_groups;
    struct table_measure measures[ASK_MOST_COLUMNS];
    int n_measures;
    const char *columns[ASK_MOST_COLUMNS]; /* that rows show where nothing is measured; none: all */
    int n_columns;
    struct table_order orders[ASK_MOST_COLUMNS];
    int n_orders;
    int limit;        /* rows of the answer, 1 .. ASK_MOST_ROWS */
    bool with_totals; /* rows that sum others up are rows like any */
    double until;     /* time_now() when it is given up; 0: never */
};

struct answer_value {
    enum cell_kind kind; /* CELL_EMPTY: there is none */
    double number;
    uint32_t text, size; /* bytes of the answer's text */
};
/* Zero-initialise; free when done. */
struct table_reply {
    struct buffer names; /* of its columns, each with a NUL behind it */
    int n_columns;
    struct buffer values; /* struct answer_value, [n_rows, n_columns] */
    int n_rows;
    struct buffer text;
    struct buffer
        cells;         /* of each row: ranges "Counts!B2:B9, Counts!B12", each with a NUL behind */
    int64_t n_matched; /* rows of the table that the conditions let through */
    bool has_more;     /* rows of the answer were left out by the limit */
    struct buffer left_out; /* cells that were asked for as numbers and are none: ranges */
    int64_t n_left_out;
    struct buffer totals; /* rows that sum others up and were left out: ranges of their rows */
    int64_t n_totals;
};
/* STATUS_INVALID: no such column, a value or an operation that its type does not have. */
enum status table_ask(const struct data_table *table, const struct table_question *question,
                      struct table_reply *reply, struct error *e);
void table_reply_free(struct table_reply *reply);
