/* retrieval/extract/page/layout_join.c: tables that go on overleaf. See layout_private.h. */
#include <math.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/page/layout_private.h"

static const struct table_cell *cells_of(const struct table *table, size_t *n) {
    *n = table->cells.size / sizeof(struct table_cell);
    return (const struct table_cell *)(const void *)table->cells.data;
}

static uint32_t count_columns(const struct table *table) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    uint32_t columns = 0;
    for (size_t i = 0; i < n; i++)
        if (cells[i].column + cells[i].columns > columns)
            columns = cells[i].column + cells[i].columns;
    return columns;
}

static bool same_width(const struct layout_table *before, const struct layout_table *after) {
    const float slack = 12;
    return fabsf(before->box.left - after->box.left) < slack &&
           fabsf(before->box.right - after->box.right) < slack;
}

/* Whether the second begins with the heads of the first. */
static bool repeats_heads(const struct table *before, const struct table *after) {
    size_t n, m, i = 0;
    const struct table_cell *left = cells_of(before, &n), *right = cells_of(after, &m);
    for (; i < n && left[i].row < before->head_rows; i++) {
        struct text_span a = {before->text.data + left[i].text, left[i].size};
        if (i >= m) return false;
        struct text_span b = {after->text.data + right[i].text, right[i].size};
        if (left[i].row != right[i].row || left[i].column != right[i].column || !span_equals(a, b))
            return false;
    }
    return i > 0;
}

/* Puts the heads of the first table above the rows of the second. */
static void take_heads(const struct table *before, struct table *after) {
    size_t n, m;
    const struct table_cell *heads = cells_of(before, &n), *rows = cells_of(after, &m);
    struct buffer cells = {0};
    for (size_t i = 0; i < n && heads[i].row < before->head_rows; i++) {
        struct table_cell head = heads[i];
        head.text = (uint32_t)after->text.size;
        head.marks = head.n_marks = 0;
        buffer_append(&after->text, before->text.data + heads[i].text, heads[i].size);
        buffer_append(&cells, &head, sizeof head);
    }
    for (size_t i = 0; i < m; i++) {
        struct table_cell cell = rows[i];
        cell.row += before->head_rows;
        buffer_append(&cells, &cell, sizeof cell);
    }
    buffer_free(&after->cells);
    after->cells = cells;
    after->head_rows = before->head_rows;
    after->head_columns = before->head_columns;
}

/* Whether the source marks heads in the first row. */
static bool has_marked(const struct table *table) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    for (size_t i = 0; i < n && cells[i].row == 0; i++)
        if (cells[i].head) return true;
    return false;
}

/* Two tables that follow one another, the second at the top of the next page. */
static void join(struct page_layout *layout, int first, int second) {
    struct layout_table *before = layout_table(layout, first),
                        *after = layout_table(layout, second);
    uint32_t columns = count_columns(&before->table);
    if (after->page != before->page + 1 || before->table.head_rows == 0) return;
    if (columns != count_columns(&after->table) || !same_width(before, after)) {
        bool below = fabsf(before->box.left - after->box.left) < 12 && !has_marked(&after->table);
        if (below) after->table.head_rows = 0;
        return;
    }
    after->goes_on = true;
    if (repeats_heads(&before->table, &after->table)) {
        after->table.head_rows = before->table.head_rows;
        after->table.head_columns = before->table.head_columns;
    } else {
        take_heads(&before->table, &after->table);
    }
}

void layout_join_tables(struct page_layout *layout) {
    int n;
    const struct layout_line *lines = layout_lines(layout, &n);
    for (int i = 1; i < n; i++)
        if (lines[i].table >= 0 && lines[i - 1].table >= 0)
            join(layout, lines[i - 1].table, lines[i].table);
}
