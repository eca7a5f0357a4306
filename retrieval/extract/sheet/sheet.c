/* retrieval/extract/sheet/sheet.c: the cells of a sheet, and their addresses. See sheet.h. */
#include "retrieval/extract/sheet/sheet.h"

#include <string.h>

#include "config/base/text.h"

void sheet_clear(struct sheet *sheet) {
    size_t n = sheet->n_before + sheet->cells.size / sizeof(struct sheet_cell);
    buffer_clear(&sheet->name);
    buffer_clear(&sheet->text);
    buffer_clear(&sheet->cells);
    buffer_clear(&sheet->merges);
    buffer_clear(&sheet->tables);
    buffer_clear(&sheet->remarks);
    sheet->hidden_rows = sheet->hidden_columns = sheet->not_computed = 0;
    sheet->is_full = sheet->is_unordered = false;
    sheet->n_before = n;
}

void sheet_free(struct sheet *sheet) {
    buffer_free(&sheet->name);
    buffer_free(&sheet->text);
    buffer_free(&sheet->cells);
    buffer_free(&sheet->merges);
    buffer_free(&sheet->tables);
    buffer_free(&sheet->remarks);
}

static const struct sheet_cell *last_cell(const struct sheet *sheet) {
    size_t n = sheet->cells.size / sizeof(struct sheet_cell);
    return n > 0 ? (const struct sheet_cell *)(const void *)sheet->cells.data + n - 1 : NULL;
}

void sheet_add_cell(struct sheet *sheet, const struct sheet_cell *cell, size_t start) {
    struct buffer *text = &sheet->text;
    const struct sheet_cell *last = last_cell(sheet);
    size_t from = start, n = sheet->n_before + sheet->cells.size / sizeof *cell;
    while (text->size > start && is_blank(text->data[text->size - 1])) text->size--;
    while (from < text->size && is_blank(text->data[from])) from++;
    bool outside =
        cell->row < 1 || cell->row > SHEET_ROWS || cell->column < 1 || cell->column > SHEET_COLUMNS;
    sheet->is_full = sheet->is_full || (from < text->size && n >= SHEET_MOST_CELLS);
    if (from == text->size || outside || n >= SHEET_MOST_CELLS || text->size > UINT32_MAX) {
        text->size = start;
        return;
    }
    struct sheet_cell added = *cell;
    added.text = (uint32_t)from;
    added.size = (uint32_t)(text->size - from);
    sheet->is_unordered =
        sheet->is_unordered || (last && (last->row > cell->row ||
                                         (last->row == cell->row && last->column >= cell->column)));
    buffer_append(&sheet->cells, &added, sizeof added);
}

void sheet_add_merge(struct sheet *sheet, const struct sheet_range *range) {
    if (sheet->merges.size / sizeof *range >= SHEET_MOST_RANGES) return;
    if (range->bottom < range->top || range->right < range->left) return;
    buffer_append(&sheet->merges, range, sizeof *range);
}

void sheet_print_address(struct buffer *out, size_t row, size_t column) {
    marks_print_column(out, column);
    buffer_printf(out, "%zu", row);
}

/* One address, with or without dollar signs; where it ends, NULL: it is none. */
static const char *read_address(const char *text, uint32_t *row, uint32_t *column) {
    *row = *column = 0;
    text += *text == '$';
    for (; *text && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", *text); text++) {
        *column = *column * 26 + (uint32_t)(*text - 'A' + 1);
        if (*column > SHEET_COLUMNS) return NULL;
    }
    text += *text == '$';
    for (; is_digit(*text); text++) {
        *row = *row * 10 + (uint32_t)(*text - '0');
        if (*row > SHEET_ROWS) return NULL;
    }
    return *row > 0 && *column > 0 ? text : NULL;
}

bool sheet_read_range(const char *text, struct sheet_range *range) {
    const char *rest = read_address(text, &range->top, &range->left);
    if (rest == NULL) return false;
    range->bottom = range->top;
    range->right = range->left;
    if (*rest == '\0') return true;
    if (*rest != ':') return false;
    rest = read_address(rest + 1, &range->bottom, &range->right);
    return rest && *rest == '\0' && range->bottom >= range->top && range->right >= range->left;
}
