/* retrieval/extract/page/table.c: filling a table, and finding its heads. See table_text.h. */
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/page/table_text.h"

static struct table_cell *cells_of(const struct table *table, size_t *n) {
    *n = table->cells.size / sizeof(struct table_cell);
    return (struct table_cell *)(void *)table->cells.data;
}

struct table_cell *table_begin_cell(struct table *table, uint32_t row, uint32_t column) {
    struct table_cell cell = {.row = row,
                              .column = column,
                              .rows = 1,
                              .columns = 1,
                              .text = (uint32_t)table->text.size,
                              .marks = marks_of(&table->marks).n};
    size_t n;
    buffer_append(&table->cells, &cell, sizeof cell);
    return &cells_of(table, &n)[table->cells.size / sizeof cell - 1];
}

void table_end_cell(struct table *table) {
    size_t n;
    struct table_cell *cell = cells_of(table, &n) + table->cells.size / sizeof *cell - 1;
    cell->size = (uint32_t)(table->text.size - cell->text);
    cell->n_marks = marks_of(&table->marks).n - cell->marks;
}

struct table_cell *table_add_cell(struct table *table, uint32_t row, uint32_t column,
                                  struct text_span text) {
    struct table_cell *cell = table_begin_cell(table, row, column);
    bool blank = false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        if (is_blank(c) || c == '\v' || c == '\f') {
            blank = true;
            continue;
        }
        if (blank && table->text.size > cell->text) buffer_append(&table->text, " ", 1);
        blank = false;
        buffer_append(&table->text, &c, 1);
    }
    table_end_cell(table);
    return cell;
}

/* Heads. */

/* A number, with what stands around numbers in tables: a sign, a unit, a percentage, a date. */
static bool is_numeric(struct text_span text) {
    size_t digits = 0, letters = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        digits += is_digit(c);
        letters += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }
    return (digits > 0 && digits >= letters) || span_is(text, "-") || span_is(text, "–");
}

/* A year alone names a column as often as it is a value. */
static bool is_year(struct text_span text) {
    return text.size == 4 && is_digit(text.text[0]) && is_digit(text.text[3]) &&
           (text.text[0] == '1' || text.text[0] == '2');
}

struct row_facts {
    uint32_t row;
    int n, n_heads, n_numbers, n_wide;
};

static size_t read_row(const struct table *table, size_t first, struct row_facts *facts) {
    size_t n, at = first;
    const struct table_cell *cells = cells_of(table, &n);
    *facts = (struct row_facts){.row = cells[first].row};
    while (at < n && cells[at].row == facts->row) {
        const struct table_cell *cell = &cells[at];
        struct text_span text = {table->text.data + cell->text, cell->size};
        at++;
        if (text.size == 0) continue;
        facts->n++;
        facts->n_heads += cell->head;
        facts->n_wide += cell->columns > 1;
        facts->n_numbers += cell->column > 0 && is_numeric(text) && !is_year(text);
    }
    return at;
}

/* Rows of heads as the source marks them; 0: it marks none. */
static uint32_t count_marked(const struct table *table) {
    size_t n, at = 0;
    uint32_t heads = 0;
    cells_of(table, &n);
    while (at < n) {
        struct row_facts facts;
        at = read_row(table, at, &facts);
        bool group = heads > 0 && facts.n == 1 && facts.n_wide == 1; /* names the rows below it */
        if (group || (facts.n > 0 && facts.n_heads < facts.n)) break;
        heads = facts.row + 1;
    }
    return at < n ? heads : 0;
}

/* Text over numbers: a row of heads that cover several columns is followed by the one that names
 * each. */
static uint32_t count_text_rows(const struct table *table) {
    size_t n, at = 0;
    uint32_t heads = 0;
    bool wide = false;
    cells_of(table, &n);
    while (at < n) {
        struct row_facts facts;
        at = read_row(table, at, &facts);
        if (facts.n_numbers > 0 || (heads > 0 && !wide)) break;
        wide = facts.n_wide > 0;
        heads = facts.row + 1;
    }
    return heads > 0 ? heads : 1;
}

/* A sentence, or more words than a name has. */
static bool is_long(struct text_span text) {
    size_t blanks = 0;
    for (size_t i = 0; i < text.size; i++) blanks += text.text[i] == ' ';
    return blanks > 6 || (blanks > 2 && text.text[text.size - 1] == '.');
}

bool table_row_names(const struct table *table, uint32_t row) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    bool number_first = false, number_below = false, is_form = true, value_is_number = false;
    for (size_t i = 0; i < n; i++) {
        struct text_span text = {table->text.data + cells[i].text, cells[i].size};
        if (cells[i].head && cells[i].row == row) return true;
        is_form = is_form && cells[i].column + cells[i].columns <= 2;
        if (cells[i].row == row && cells[i].column == 1)
            value_is_number = is_numeric(text) && !is_year(text);
        if (cells[i].row == row && is_long(text)) return false;
        if (cells[i].column == 0 && cells[i].row == row) number_first = is_numeric(text);
        if (cells[i].column == 0 && cells[i].row == row + 1) number_below = is_numeric(text);
    }
    return (!number_first || !number_below) && !(is_form && value_is_number);
}

/* The last row that a cell of a head row reaches. */
static uint32_t reach_of_heads(const struct table *table, uint32_t heads) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    uint32_t reach = heads;
    for (size_t i = 0; i < n && cells[i].row < heads; i++)
        if (cells[i].rows > 1 && cells[i].row + cells[i].rows > reach && cells[i].rows < 8)
            reach = cells[i].row + cells[i].rows;
    return reach;
}

/* The first column, and each behind one in which a name covers several rows. */
static uint32_t count_head_columns(const struct table *table) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    uint32_t columns = 1;
    for (uint32_t column = 0; column < 3; column++) {
        bool covers = false;
        for (size_t i = 0; i < n; i++)
            covers |= cells[i].row >= table->head_rows && cells[i].column == column &&
                      cells[i].rows > 1 && cells[i].size > 0 && cells[i].columns == 1;
        if (!covers) break;
        columns = column + 2;
    }
    return columns;
}

void table_find_columns(struct table *table) { table->head_columns = count_head_columns(table); }

static uint32_t last_row(const struct table *table) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    return n > 0 ? cells[n - 1].row : 0;
}

void table_find_heads(struct table *table) {
    size_t n;
    cells_of(table, &n);
    table->head_rows = table->head_columns = 0;
    if (n == 0) return;
    uint32_t heads = count_marked(table);
    if (heads == 0) heads = count_text_rows(table);
    if (heads == 1 && !table_row_names(table, 0)) heads = 0;
    heads = reach_of_heads(table, heads);
    table->head_rows = heads <= last_row(table) ? heads : 0;
    table->head_columns = count_head_columns(table);
}

void table_drop_rows(struct table *table) {
    size_t n, kept = 0;
    struct table_cell *cells = cells_of(table, &n);
    while (kept < n && cells[kept].row < table->head_rows) kept++;
    if (kept < n) {
        table->text.size = cells[kept].text;
        table->marks.size = cells[kept].marks * sizeof(struct mark);
        table->cells.size = kept * sizeof *cells;
    }
}

void table_clear(struct table *table) {
    buffer_clear(&table->text);
    buffer_clear(&table->marks);
    buffer_clear(&table->cells);
    buffer_clear(&table->caption);
    table->head_rows = table->head_columns = 0;
    table->source_row = table->source_column = 0;
}

void table_free(struct table *table) {
    buffer_free(&table->text);
    buffer_free(&table->marks);
    buffer_free(&table->cells);
    buffer_free(&table->caption);
}
