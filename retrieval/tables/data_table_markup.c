/* retrieval/tables/data_table_markup.c: tables of Markdown, as GitHub's have them: a bar before
 * each cell, and "\\|" for one that is text. */
#include <string.h>

#include "config/base/text.h"
#include "retrieval/tables/data_table_private.h"

static struct text_span trim(struct text_span text) {
    while (text.size > 0 && is_blank(text.text[0]))
        text = (struct text_span){text.text + 1, text.size - 1};
    while (text.size > 0 && is_blank(text.text[text.size - 1])) text.size--;
    return text;
}

/* The bar that ends the cell which begins at `at`; line.size: the line does. */
static size_t find_end(struct text_span line, size_t at) {
    while (at < line.size && line.text[at] != '|') at += line.text[at] == '\\' ? 2 : 1;
    return at < line.size ? at : line.size;
}

/* The text of the next cell, without marks of emphasis around it, into `out`; false: there is none.
 * *at is behind a bar. */
static bool next_cell(struct text_span line, size_t *at, struct buffer *out) {
    static const char emphasis[] = "*`_";
    buffer_clear(out);
    if (*at >= line.size) return false;
    size_t end = find_end(line, *at);
    struct text_span cell = trim((struct text_span){line.text + *at, end - *at});
    *at = end + 1;
    while (cell.size > 2 && strchr(emphasis, cell.text[0]) &&
           cell.text[cell.size - 1] == cell.text[0])
        cell = (struct text_span){cell.text + 1, cell.size - 2};
    for (size_t i = 0; i < cell.size; i++) {
        bool escapes = cell.text[i] == '\\' && i + 1 < cell.size && cell.text[i + 1] == '|';
        if (!escapes) buffer_append(out, cell.text + i, 1);
    }
    buffer_append(out, "", 0);
    return true;
}

void markup_name_columns(struct data_table *table, struct text_span line) {
    struct buffer cell = {0};
    struct text_span whole = trim(line);
    uint32_t column = 1;
    for (size_t at = 1; next_cell(whole, &at, &cell); column++)
        builder_add_column(table, column, (struct text_span){cell.data, cell.size});
    buffer_free(&cell);
}

void markup_add_row(struct table_builder *builder, struct text_span line) {
    struct buffer cell = {0};
    struct text_span whole = trim(line);
    uint32_t column = 1, named = (uint32_t)builder->table->n_columns;
    int before = -1;
    if (builder->last_row == 0) builder->last_row = 1;
    builder->last_row++;
    for (size_t at = 1; column <= named && next_cell(whole, &at, &cell); column++) {
        struct line_cell added = {
            .text = {cell.data, cell.size}, .row = builder->last_row, .column = column};
        if (cell.size > 0) builder_add_cell(builder->table, &added, builder->last_row, &before);
    }
    buffer_free(&cell);
}
