/* retrieval/tables/table_cells.c: the cells that a row of an answer was made from. */
#include <math.h>
#include <string.h>

#include "retrieval/tables/ranges.h"
#include "retrieval/tables/table_ask_private.h"

const struct data_cell *ask_find_cell(const struct data_table *table, uint32_t row, int column) {
    size_t n, low = 0;
    const struct data_cell *cells = data_cells(table, &n);
    size_t high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct data_cell *cell = &cells[middle];
        bool before = cell->row < row || (cell->row == row && (int)cell->column < column);
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < n && cells[low].row == row && (int)cells[low].column == column;
    return found ? &cells[low] : NULL;
}

/* Of a least or largest number the cells that have it; of all else each cell with a value. */
static bool takes_part(const struct ask_plan *plan, const struct ask_column *asked,
                       const struct data_cell *cell, const struct answer_value *value) {
    const struct data_column *column = &plan->table->columns[cell->column];
    struct cell_value own = cell_value_read(data_cell_text(plan->table, cell), column->mark);
    bool is_end = asked->kind == MEASURE_MIN || asked->kind == MEASURE_MAX;
    if (!asked->is_measure || asked->kind == MEASURE_COUNT) return own.kind != CELL_EMPTY;
    if (column->kind != CELL_NUMBER) return own.kind == column->kind;
    return own.kind == CELL_NUMBER && (!is_end || own.number == value->number);
}

static void write_column(const struct ask_plan *plan, const struct ask_column *asked,
                         const uint32_t *rows, size_t n, const struct answer_value *value,
                         struct buffer *out) {
    struct range_writer writer = {.sheet = plan->table->sheet.data, .most = ASK_MOST_RANGES};
    int column = asked->column >= 0 ? asked->column : 0;
    size_t start = out->size;
    if (start > 0 && out->data[start - 1] != '\0') buffer_append_string(out, ", ");
    size_t begin = out->size;
    for (size_t i = 0; i < n; i++) {
        const struct data_cell *cell = ask_find_cell(plan->table, rows[i], column);
        if (cell == NULL || cell->file_row == 0 || !takes_part(plan, asked, cell, value)) continue;
        writer.column = cell->file_column;
        range_add(&writer, cell->file_row, out);
    }
    range_end(&writer, out);
    if (out->size == begin) out->size = start;
}

void ask_write_cells(const struct ask_plan *plan, const uint32_t *rows, size_t n,
                     const struct answer_value *values, struct buffer *out) {
    bool measures = plan->question->n_measures > 0;
    bool written[TABLE_MOST_COLUMNS] = {false};
    for (int i = 0; i < plan->n_columns; i++) {
        const struct ask_column *asked = &plan->columns[i];
        int column = asked->column >= 0 ? asked->column : 0;
        bool is_end = asked->kind == MEASURE_MIN || asked->kind == MEASURE_MAX;
        if (measures && !asked->is_measure) continue;
        if (written[column] && !is_end) continue;
        written[column] = !(asked->is_measure && is_end);
        write_column(plan, asked, rows, n, &values[i], out);
    }
    buffer_append(out, "\0", 1);
}
