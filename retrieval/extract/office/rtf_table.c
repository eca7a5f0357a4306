/* retrieval/extract/office/rtf_table.c: tables of RTF. See rtf.h. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/office/rtf.h"

/* Edges that are this near are one: a twentieth of an inch, in twips. */
enum { NEAR = 72, MOST_CELLS = 500000 };

void rtf_begin_row(struct rtf_table *table) {
    buffer_clear(&table->edges);
    table->next_edge = (struct rtf_cell){0};
    table->is_head = false;
}

void rtf_add_edge(struct rtf_table *table, int right) {
    if (table->edges.size / sizeof table->next_edge >= GRID_MOST_COLUMNS) return;
    /* Tables may begin left of the margin. */
    table->next_edge.right = (uint32_t)max_int(0, min_int(right, 1000000) + 100000);
    buffer_append(&table->edges, &table->next_edge, sizeof table->next_edge);
    table->next_edge = (struct rtf_cell){0};
}

void rtf_add_cell(struct rtf_table *table, struct text_span text) {
    const struct rtf_cell *edges = (const struct rtf_cell *)(const void *)table->edges.data;
    size_t n_edges = table->edges.size / sizeof *edges;
    struct rtf_cell cell = {.right = (table->n_read + 1) * 1000};
    if (table->n_read >= GRID_MOST_COLUMNS || table->cells.size / sizeof cell >= MOST_CELLS ||
        table->text.size + text.size > UINT32_MAX)
        return;
    if (table->n_read < n_edges) cell = edges[table->n_read];
    cell.row = table->rows;
    cell.text = (uint32_t)table->text.size;
    cell.size = (uint32_t)text.size;
    buffer_append(&table->text, text.text, text.size);
    buffer_append(&table->cells, &cell, sizeof cell);
    table->n_read++;
}

/* Word describes a row in front of its cells, and again behind them: what stands behind holds. */
void rtf_end_row(struct rtf_table *table) {
    const struct rtf_cell *edges = (const struct rtf_cell *)(const void *)table->edges.data;
    size_t n_edges = table->edges.size / sizeof *edges;
    struct rtf_cell *cells = (struct rtf_cell *)(void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells, first = n - table->n_read;
    for (size_t i = first; i < n; i++) {
        if (i - first < n_edges) {
            const struct rtf_cell *edge = &edges[i - first];
            cells[i].right = edge->right;
            cells[i].goes_on = edge->goes_on;
            cells[i].joins = edge->joins;
        }
        cells[i].head = table->is_head;
    }
    table->rows += table->n_read > 0;
    table->n_read = 0;
}

static int compare_edges(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* All edges of the table from the left, each once. */
static size_t gather_edges(const struct rtf_table *table, uint32_t **out) {
    const struct rtf_cell *cells = (const struct rtf_cell *)(const void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells, kept = 0;
    uint32_t *edges = xcalloc(n + 1, sizeof *edges);
    for (size_t i = 0; i < n; i++) edges[i] = cells[i].right;
    qsort(edges, n, sizeof *edges, compare_edges);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && edges[i] - edges[kept - 1] < NEAR) continue;
        edges[kept] = edges[i];
        kept++;
    }
    *out = edges;
    return kept;
}

/* The column that ends at an edge, from 0. */
static uint32_t find_edge(const uint32_t *edges, size_t n, uint32_t right) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (edges[middle] + NEAR <= right)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)(low < n ? low : n - 1);
}

static void fill_grid(const struct rtf_table *table, const uint32_t *edges, size_t n_edges,
                      struct table_grid *grid) {
    const struct rtf_cell *cells = (const struct rtf_cell *)(const void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells;
    uint32_t row = UINT32_MAX, next = 0;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].row != row) {
            row = cells[i].row;
            grid_open_row(grid);
            next = 0;
        }
        uint32_t column = find_edge(edges, n_edges, cells[i].right);
        uint32_t columns = column >= next ? column - next + 1 : 1;
        while (i + 1 < n && cells[i + 1].row == row && cells[i + 1].joins) {
            i++;
            columns = find_edge(edges, n_edges, cells[i].right) + 1 - next;
        }
        next += columns;
        const struct rtf_cell *cell = &cells[i];
        struct text_span text = {table->text.data + cell->text, cell->size};
        if (cell->goes_on)
            grid_continue_cell(grid, columns);
        else
            grid_add_cell(
                grid, &(struct grid_cell){.text = text, .columns = columns, .head = cell->head});
        if (next >= n_edges) next = (uint32_t)n_edges;
    }
}

void rtf_write_table(struct rtf_table *table, struct document_text *out) {
    if (table->cells.size > 0) {
        struct table_grid grid = {0};
        uint32_t *edges;
        size_t n_edges = gather_edges(table, &edges);
        fill_grid(table, edges, n_edges, &grid);
        grid_write(&grid, out);
        grid_free(&grid);
        free(edges);
    }
    buffer_clear(&table->text);
    buffer_clear(&table->cells);
    buffer_clear(&table->edges);
    table->rows = table->n_read = 0;
}

void rtf_free_table(struct rtf_table *table) {
    buffer_free(&table->text);
    buffer_free(&table->cells);
    buffer_free(&table->edges);
}
