/* retrieval/tables/data_table.c: columns, their types, and rows that sum up. See data_table.h. */
#include "retrieval/tables/data_table.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/text.h"

static struct data_cell *own_cells(struct data_table *table, size_t *n) {
    *n = table->cells.size / sizeof(struct data_cell);
    return (struct data_cell *)(void *)table->cells.data;
}

/* Types. */

struct column_facts {
    size_t n, numbers[2], dates; /* numbers: by decimal mark */
    bool marks[2];               /* a cell that has this decimal mark and no other */
};

static void note_cell(struct column_facts *facts, struct text_span text) {
    struct cell_value point = cell_value_read(text, DECIMAL_POINT);
    struct cell_value comma = cell_value_read(text, DECIMAL_COMMA);
    facts->n += point.kind != CELL_EMPTY;
    facts->dates += point.kind == CELL_DATE;
    facts->numbers[DECIMAL_POINT] += point.kind == CELL_NUMBER;
    facts->numbers[DECIMAL_COMMA] += comma.kind == CELL_NUMBER;
    facts->marks[DECIMAL_POINT] |= point.kind == CELL_NUMBER && point.marks_point;
    facts->marks[DECIMAL_COMMA] |= comma.kind == CELL_NUMBER && comma.marks_comma;
}

static void judge_column(struct data_column *column, const struct column_facts *facts) {
    size_t point = facts->numbers[DECIMAL_POINT], comma = facts->numbers[DECIMAL_COMMA];
    bool by_comma = comma > point ||
                    (comma == point && facts->marks[DECIMAL_COMMA] && !facts->marks[DECIMAL_POINT]);
    size_t numbers = by_comma ? comma : point;
    column->mark = by_comma ? DECIMAL_COMMA : DECIMAL_POINT;
    column->kind = numbers * 2 > facts->n        ? CELL_NUMBER
                   : facts->dates * 2 > facts->n ? CELL_DATE
                                                 : CELL_TEXT;
}

/* The unit that all numbers of a column have; none where they differ. */
static void find_units(struct data_table *table) {
    size_t n;
    const struct data_cell *cells = own_cells(table, &n);
    bool *mixed = xcalloc((size_t)table->n_columns + 1, sizeof *mixed);
    for (size_t i = 0; i < n; i++) {
        struct data_column *column = &table->columns[cells[i].column];
        if (column->kind != CELL_NUMBER || mixed[cells[i].column]) continue;
        struct cell_value value = cell_value_read(data_cell_text(table, &cells[i]), column->mark);
        if (value.kind != CELL_NUMBER || value.unit.size == 0) continue;
        struct text_span unit = {column->unit.data, column->unit.size};
        if (unit.size == 0)
            buffer_append(&column->unit, value.unit.text, value.unit.size);
        else if (!span_equals(unit, value.unit))
            mixed[cells[i].column] = true;
    }
    for (int i = 0; i < table->n_columns; i++) {
        if (mixed[i]) buffer_clear(&table->columns[i].unit);
        buffer_append(&table->columns[i].unit, "", 0);
    }
    free(mixed);
}

static void find_types(struct data_table *table) {
    size_t n;
    const struct data_cell *cells = own_cells(table, &n);
    struct column_facts *facts = xcalloc((size_t)table->n_columns + 1, sizeof *facts);
    for (size_t i = 0; i < n; i++)
        note_cell(&facts[cells[i].column], data_cell_text(table, &cells[i]));
    for (int i = 0; i < table->n_columns; i++) judge_column(&table->columns[i], &facts[i]);
    free(facts);
    find_units(table);
}

/* Rows that sum up. */

static bool is_total(struct text_span text) {
    static const char *const words[] = {"total",
                                        "totals",
                                        "grand total",
                                        "subtotal",
                                        "sub-total",
                                        "sum",
                                        "sums",
                                        "gesamt",
                                        "gesamtsumme",
                                        "summe",
                                        "zwischensumme",
                                        "insgesamt",
                                        "total g\u00e9n\u00e9ral",
                                        "sous-total",
                                        "razem",
                                        "suma",
                                        "og\u00f3\u0142em",
                                        "average",
                                        "mean",
                                        "durchschnitt",
                                        "mittelwert",
                                        "moyenne"};
    while (text.size > 0 && strchr(": ", text.text[text.size - 1])) text.size--;
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (text.size == strlen(words[i]) && strncasecmp(text.text, words[i], text.size) == 0)
            return true;
    return false;
}

static void find_totals(struct data_table *table) {
    size_t n;
    const struct data_cell *cells = own_cells(table, &n);
    buffer_clear(&table->totals);
    for (uint32_t row = 0; row < table->n_rows; row++) buffer_append(&table->totals, "\0", 1);
    for (size_t i = 0; i < n; i++) {
        bool names_row = cells[i].column < 2 && !cells[i].copied;
        if (names_row && is_total(data_cell_text(table, &cells[i])))
            table->totals.data[cells[i].row] = 1;
    }
}

/* Order. */

static int compare_cells(const void *left, const void *right) {
    const struct data_cell *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return (a->column > b->column) - (a->column < b->column);
}

static bool is_ordered(const struct data_cell *cells, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (compare_cells(&cells[i - 1], &cells[i]) >= 0) return false;
    return true;
}

/* Rows that were numbered by their places in the file become those of the table. */
static void number_rows(struct data_table *table) {
    size_t n;
    struct data_cell *cells = own_cells(table, &n);
    uint32_t last = 0, rows = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || cells[i].row != last) rows++;
        last = cells[i].row;
        cells[i].row = rows - 1;
    }
    table->n_rows = rows;
}

void data_table_finish(struct data_table *table) {
    size_t n;
    struct data_cell *cells = own_cells(table, &n);
    if (!is_ordered(cells, n)) qsort(cells, n, sizeof *cells, compare_cells);
    number_rows(table);
    buffer_append(&table->name, "", 0);
    buffer_append(&table->sheet, "", 0);
    buffer_append(&table->text, "", 0);
    for (int i = 0; i < table->n_columns; i++) buffer_append(&table->columns[i].name, "", 0);
    find_types(table);
    find_totals(table);
}

/* Columns by name. */

static uint32_t read_letters(const char *name) {
    uint32_t column = 0;
    for (const char *at = name; *at; at++) {
        char c = (char)(*at & ~0x20);
        if (c < 'A' || c > 'Z' || at - name >= 3) return 0;
        column = column * 26 + (uint32_t)(c - 'A' + 1);
    }
    return column;
}

int data_table_find_column(const struct data_table *table, const char *name) {
    for (int i = 0; i < table->n_columns; i++)
        if (strcmp(table->columns[i].name.data, name) == 0) return i;
    for (int i = 0; i < table->n_columns; i++)
        if (strcasecmp(table->columns[i].name.data, name) == 0) return i;
    uint32_t column = read_letters(name);
    for (int i = 0; i < table->n_columns && column > 0; i++)
        if (table->columns[i].file_column == column) return i;
    return -1;
}

void data_table_free(struct data_table *table) {
    for (int i = 0; i < table->n_columns; i++) {
        buffer_free(&table->columns[i].name);
        buffer_free(&table->columns[i].unit);
    }
    free(table->columns);
    buffer_free(&table->name);
    buffer_free(&table->sheet);
    buffer_free(&table->text);
    buffer_free(&table->cells);
    buffer_free(&table->totals);
    *table = (struct data_table){.n_columns = 0};
}

void data_tables_free(struct data_tables *tables) {
    for (int i = 0; i < tables->n; i++) data_table_free(&tables->list[i]);
    free(tables->list);
    *tables = (struct data_tables){.n = 0};
}
