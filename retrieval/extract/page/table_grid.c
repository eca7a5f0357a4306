/* retrieval/extract/page/table_grid.c: see table_grid.h. */
#include "retrieval/extract/page/table_grid.h"

#include "retrieval/tables/cell_value.h"

static struct grid_cover *covers_of(struct table_grid *grid, uint32_t columns) {
    static const struct grid_cover none = {0};
    while (grid->covers.size < columns * sizeof none)
        buffer_append(&grid->covers, &none, sizeof none);
    return (struct grid_cover *)(void *)grid->covers.data;
}

static struct table_cell *cell_at(struct table_grid *grid, uint32_t number) {
    return (struct table_cell *)(void *)grid->table.cells.data + (number - 1);
}

void grid_open_row(struct table_grid *grid) {
    if (grid->row_is_open) grid_close_row(grid);
    grid->row_is_open = true;
    grid->column = 0;
}

void grid_close_row(struct table_grid *grid) {
    if (!grid->row_is_open) return;
    grid->row_is_open = false;
    grid->row++;
}

static uint32_t within(uint32_t n, uint32_t most) { return n == 0 ? 1 : n < most ? n : most; }

void grid_add_cell(struct table_grid *grid, const struct grid_cell *cell) {
    if (!grid->row_is_open) grid_open_row(grid);
    const struct grid_cover *above = covers_of(grid, grid->column + 1);
    size_t n = grid->covers.size / sizeof *above;
    while (grid->column < n && above[grid->column].end > grid->row) grid->column++;
    if (grid->column >= GRID_MOST_COLUMNS) return;

    uint32_t columns = within(cell->columns, GRID_MOST_COLUMNS - grid->column);
    uint32_t rows = within(cell->rows, GRID_MOST_ROWS);
    struct table_cell *added = table_add_cell(&grid->table, grid->row, grid->column, cell->text);
    added->rows = rows;
    added->columns = columns;
    added->head = cell->head;
    uint32_t number = (uint32_t)(grid->table.cells.size / sizeof *added);
    struct grid_cover *covers = covers_of(grid, grid->column + columns);
    for (uint32_t i = 0; i < columns; i++)
        covers[grid->column + i] = (struct grid_cover){number, grid->row + rows};
    grid->column += columns;
}

void grid_continue_cell(struct table_grid *grid, uint32_t columns) {
    columns = within(columns, GRID_MOST_COLUMNS);
    if (grid->column + columns > GRID_MOST_COLUMNS) return;
    struct grid_cover *covers = covers_of(grid, grid->column + columns);
    struct grid_cover *cover = &covers[grid->column];
    if (cover->cell > 0) {
        struct table_cell *above = cell_at(grid, cover->cell);
        above->rows = grid->row - above->row + 1;
    }
    grid->column += columns;
}

void grid_skip(struct table_grid *grid, uint32_t columns) {
    if (columns < GRID_MOST_COLUMNS - grid->column) grid->column += columns;
}

static bool is_single_column(const struct table *table) {
    const struct table_cell *cells = (const struct table_cell *)(const void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells;
    for (size_t i = 0; i < n; i++)
        if (cells[i].column > 0 && cells[i].size > 0) return false;
    return true;
}

static bool is_single_row(const struct table *table) {
    const struct table_cell *cells = (const struct table_cell *)(const void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells;
    for (size_t i = 0; i < n; i++)
        if (cells[i].row > 0 && cells[i].size > 0) return false;
    return true;
}

static void write_paragraphs(const struct table *table, struct document_text *out) {
    const struct table_cell *cells = (const struct table_cell *)(const void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells;
    if (table->caption.size > 0) {
        marks_add_block(&out->marks, BLOCK_CAPTION, out->text.size);
        buffer_printf(&out->text, "%s\n", table->caption.data);
    }
    for (size_t i = 0; i < n; i++) {
        if (cells[i].size == 0) continue;
        marks_add_block(&out->marks, BLOCK_PARAGRAPH, out->text.size);
        buffer_append(&out->text, table->text.data + cells[i].text, cells[i].size);
        buffer_append_string(&out->text, "\n");
    }
}

/* Whether most texts of a column below the heads are numbers. */
static bool column_has_numbers(const struct table *table, uint32_t column) {
    const struct table_cell *cells = (const struct table_cell *)(const void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells, numbers = 0, texts = 0;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].column != column || cells[i].row < table->head_rows || cells[i].size == 0)
            continue;
        struct text_span text = {table->text.data + cells[i].text, cells[i].size};
        bool number = cell_value_read(text, DECIMAL_POINT).kind == CELL_NUMBER;
        numbers += number;
        texts += !number;
    }
    return numbers > texts;
}

void grid_write(struct table_grid *grid, struct document_text *out) {
    struct table *table = &grid->table;
    grid_close_row(grid);
    buffer_append(&table->text, "", 0);
    if (is_single_column(table) || is_single_row(table)) {
        write_paragraphs(table, out);
    } else {
        table_find_heads(table);
        while (table->head_columns > 1 && column_has_numbers(table, table->head_columns - 1))
            table->head_columns--;
        table->source_row = table->source_column = 1;
        table_write(table, out);
    }
    table_clear(table);
    buffer_clear(&grid->covers);
    grid->row = grid->column = 0;
}

void grid_free(struct table_grid *grid) {
    table_free(&grid->table);
    buffer_free(&grid->covers);
}
