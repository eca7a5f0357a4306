/* retrieval/extract/page/table_text.c: see table_text.h. */
#include "retrieval/extract/page/table_text.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"

enum {
    /* Of a line: what a passage of 64 tokens holds of names and numbers, with the row's heads. */
    LINE_BYTES = 110,
    HEAD_BYTES = 200,       /* of the heads of one column, or of one row */
    MAX_COLUMNS = 16384,    /* as many as a sheet has */
    MAX_REPEATED = 1 << 20, /* values that are written again because their cell covers more */
};

/* The heads that stand over a column, or before a row. */
struct table_writer {
    const struct table *table;
    struct document_text *out;
    struct buffer *names; /* [n_columns] "2019, Spring" */
    uint32_t n_columns;
    struct buffer group;   /* the text of the row over the rows, which covers all columns */
    struct buffer carried; /* uint32_t: cells of rows above that cover this one */
    struct buffer line;    /* uint32_t: the cells of this row, by column */
    size_t line_start;     /* of the text */
    size_t n_repeated;
    bool has_value; /* on the line that is open */
};

static const struct table_cell *cells_of(const struct table *table, size_t *n) {
    *n = table->cells.size / sizeof(struct table_cell);
    return (const struct table_cell *)(const void *)table->cells.data;
}

static struct text_span text_of(const struct table *table, const struct table_cell *cell) {
    return (struct text_span){table->text.data + cell->text, cell->size};
}

/* As much of a text as fits, in whole characters. */
static void append_within(struct buffer *out, struct text_span text, size_t limit) {
    size_t room = limit > out->size ? limit - out->size : 0, size = 0;
    while (size < text.size) {
        int n = utf8_length(text.text + size, text.size - size);
        size_t step = n > 0 ? (size_t)n : 1;
        if (size + step > room) break;
        size += step;
    }
    buffer_append(out, text.text, size);
}

/* One more head behind those outside it; the same text twice is one head. */
static void append_head(struct buffer *out, struct text_span text) {
    if (text.size == 0) return;
    struct text_span before = {out->data, out->size};
    bool again = before.size >= text.size &&
                 memcmp(before.text + before.size - text.size, text.text, text.size) == 0 &&
                 (before.size == text.size || before.text[before.size - text.size - 1] == ' ');
    if (again) return;
    if (out->size > 0) append_within(out, (struct text_span){", ", 2}, HEAD_BYTES);
    append_within(out, text, HEAD_BYTES);
}

static uint32_t last_column(const struct table_cell *cell) {
    uint32_t columns = cell->columns > 0 ? cell->columns : 1;
    return cell->column > MAX_COLUMNS || columns > MAX_COLUMNS - cell->column
               ? MAX_COLUMNS
               : cell->column + columns;
}

static uint32_t count_columns(const struct table *table) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    uint32_t columns = 0;
    for (size_t i = 0; i < n; i++)
        if (cells[i].size > 0 && last_column(&cells[i]) > columns) columns = last_column(&cells[i]);
    return columns;
}

static void writer_open(struct table_writer *writer, const struct table *table,
                        struct document_text *out) {
    size_t n;
    const struct table_cell *cells = cells_of(table, &n);
    *writer = (struct table_writer){.table = table, .out = out, .n_columns = count_columns(table)};
    writer->names = xcalloc((size_t)writer->n_columns + 1, sizeof *writer->names);
    for (size_t i = 0; i < n && cells[i].row < table->head_rows; i++)
        for (uint32_t column = cells[i].column;
             column < last_column(&cells[i]) && column < writer->n_columns; column++)
            append_head(&writer->names[column], text_of(table, &cells[i]));
}

static void writer_close(struct table_writer *writer) {
    for (uint32_t i = 0; i < writer->n_columns; i++) buffer_free(&writer->names[i]);
    free(writer->names);
    buffer_free(&writer->group);
    buffer_free(&writer->carried);
    buffer_free(&writer->line);
}

/* Lines. */

static void line_begin(struct table_writer *writer, enum block_kind kind) {
    writer->line_start = writer->out->text.size;
    writer->has_value = false;
    marks_add_block(&writer->out->marks, kind, writer->line_start);
}

static void line_end(struct table_writer *writer) { buffer_append(&writer->out->text, "\n", 1); }

/* A cell's text with its place in the file and on the page. */
static void write_cell(struct table_writer *writer, const struct table_cell *cell) {
    const struct table *table = writer->table;
    struct document_text *out = writer->out;
    struct mark_span marks = marks_of(&table->marks);
    size_t at = out->text.size;
    if (table->source_row > 0 && table->source_column > 0)
        marks_add_cell(&out->marks, at, (size_t)cell->row + table->source_row,
                       (size_t)cell->column + table->source_column);
    for (uint32_t i = cell->marks; i < cell->marks + cell->n_marks; i++) {
        struct mark mark = mark_read(marks, i);
        marks_add(&out->marks, (enum mark_kind)mark.kind, mark.level, at + (mark.at - cell->text),
                  mark.value);
    }
    buffer_append(&out->text, table->text.data + cell->text, cell->size);
}

static const struct table_cell *line_cells(const struct table_writer *writer, size_t i) {
    size_t n;
    const uint32_t *line = (const uint32_t *)(const void *)writer->line.data;
    return &cells_of(writer->table, &n)[line[i]];
}

/* The heads of the row, from the outermost in; false: it has none. */
static bool write_row_heads(struct table_writer *writer) {
    size_t n = writer->line.size / sizeof(uint32_t), start = writer->out->text.size;
    if (writer->group.size > 0)
        buffer_append(&writer->out->text, writer->group.data, writer->group.size);
    for (size_t i = 0; i < n; i++) {
        const struct table_cell *cell = line_cells(writer, i);
        if (cell->column >= writer->table->head_columns || cell->size == 0) continue;
        if (writer->out->text.size > start) buffer_append(&writer->out->text, ", ", 2);
        write_cell(writer, cell);
    }
    return writer->out->text.size > start;
}

/* A value with the heads of one of the columns that its cell covers. */
static void write_value(struct table_writer *writer, const struct table_cell *cell, uint32_t column,
                        bool *has_heads) {
    const struct buffer *name = &writer->names[column];
    size_t size = writer->out->text.size - writer->line_start + name->size + cell->size + 5;
    if (writer->has_value && size > LINE_BYTES) {
        line_end(writer);
        line_begin(writer, BLOCK_TABLE_ROW);
        *has_heads = write_row_heads(writer);
    }
    if (*has_heads || writer->has_value) buffer_append(&writer->out->text, " | ", 3);
    buffer_append(&writer->out->text, name->data, name->size);
    if (name->size > 0) buffer_append(&writer->out->text, ": ", 2);
    write_cell(writer, cell);
    writer->has_value = true;
}

static void write_values(struct table_writer *writer, const struct table_cell *cell,
                         bool *has_heads) {
    uint32_t end = last_column(cell);
    if (end > writer->n_columns) end = writer->n_columns;
    for (uint32_t column = cell->column; column < end; column++) {
        bool again = column > cell->column;
        if (again && writer->n_repeated == MAX_REPEATED) return;
        writer->n_repeated += again;
        write_value(writer, cell, column, has_heads);
    }
}

/* A row whose one cell covers the whole table names the rows below it. */
static bool row_is_group(const struct table_writer *writer) {
    enum { GROUP_BYTES = 80 };
    if (writer->line.size != sizeof(uint32_t) || writer->n_columns < 2) return false;
    const struct table_cell *cell = line_cells(writer, 0);
    bool ends = span_ends_with(text_of(writer->table, cell), ".");
    return cell->column == 0 && last_column(cell) >= writer->n_columns &&
           cell->size <= GROUP_BYTES && !ends;
}

static void write_group(struct table_writer *writer) {
    const struct table_cell *cell = line_cells(writer, 0);
    buffer_clear(&writer->group);
    append_within(&writer->group, text_of(writer->table, cell), HEAD_BYTES);
    line_begin(writer, BLOCK_TABLE_HEAD);
    write_cell(writer, cell);
    line_end(writer);
}

static bool row_has_text(const struct table_writer *writer) {
    for (size_t i = 0; i < writer->line.size / sizeof(uint32_t); i++)
        if (line_cells(writer, i)->size > 0) return true;
    return false;
}

static void write_row(struct table_writer *writer) {
    size_t n = writer->line.size / sizeof(uint32_t);
    if (!row_has_text(writer)) return;
    if (row_is_group(writer)) {
        write_group(writer);
        return;
    }
    line_begin(writer, BLOCK_TABLE_ROW);
    bool has_heads = write_row_heads(writer);
    for (size_t i = 0; i < n; i++) {
        const struct table_cell *cell = line_cells(writer, i);
        if (cell->column >= writer->table->head_columns && cell->size > 0)
            write_values(writer, cell, &has_heads);
    }
    line_end(writer);
}

/* Rows. */

static void add_index(struct buffer *list, uint32_t index) {
    buffer_append(list, &index, sizeof index);
}

/* The cells that cover a row: those that began above it, which are kept in order of columns, and
 * its own [first, end). */
static void gather_row(struct table_writer *writer, uint32_t row, uint32_t first, uint32_t end) {
    size_t n;
    const struct table_cell *cells = cells_of(writer->table, &n);
    struct buffer kept = {0};
    size_t n_carried = writer->carried.size / sizeof(uint32_t), i = 0;
    const uint32_t *carried = (const uint32_t *)(const void *)writer->carried.data;
    buffer_clear(&writer->line);
    while (first < end || i < n_carried) {
        bool own =
            i == n_carried || (first < end && cells[first].column < cells[carried[i]].column);
        uint32_t index = own ? first : carried[i];
        first += own;
        i += !own;
        const struct table_cell *cell = &cells[index];
        if (!own && (cell->row + (uint64_t)cell->rows <= row || writer->n_repeated == MAX_REPEATED))
            continue;
        writer->n_repeated += !own;
        add_index(&writer->line, index);
        if (cell->rows > 1 && cell->row + (uint64_t)cell->rows > row + (uint64_t)1)
            add_index(&kept, index);
    }
    buffer_free(&writer->carried);
    writer->carried = kept;
}

static void walk_rows(struct table_writer *writer, void (*visit)(struct table_writer *writer),
                      uint32_t from, uint32_t to) {
    size_t n;
    const struct table_cell *cells = cells_of(writer->table, &n);
    for (size_t first = 0; first < n && cells[first].row < to;) {
        size_t end = first;
        while (end < n && cells[end].row == cells[first].row) end++;
        gather_row(writer, cells[first].row, (uint32_t)first, (uint32_t)end);
        if (cells[first].row >= from) visit(writer);
        first = end;
    }
}

/* The heads as they stand, a row each, as one block a row. */
static void write_head_row(struct table_writer *writer) {
    size_t n = writer->line.size / sizeof(uint32_t);
    if (!row_has_text(writer)) return;
    line_begin(writer, BLOCK_TABLE_HEAD);
    for (size_t i = 0; i < n; i++) {
        const struct table_cell *cell = line_cells(writer, i);
        if (cell->size == 0) continue;
        if (writer->has_value) buffer_append(&writer->out->text, " | ", 3);
        write_cell(writer, cell);
        writer->has_value = true;
    }
    line_end(writer);
}

void table_write_head(const struct table *table, struct document_text *out) {
    struct table_writer writer;
    writer_open(&writer, table, out);
    if (table->caption.size > 0) {
        line_begin(&writer, BLOCK_TABLE_HEAD);
        buffer_append(&out->text, table->caption.data, table->caption.size);
        line_end(&writer);
    }
    walk_rows(&writer, write_head_row, 0, table->head_rows);
    writer_close(&writer);
}

void table_write_rows(const struct table *table, struct document_text *out) {
    struct table_writer writer;
    writer_open(&writer, table, out);
    walk_rows(&writer, write_row, table->head_rows, UINT32_MAX);
    writer_close(&writer);
}

void table_write(const struct table *table, struct document_text *out) {
    table_write_head(table, out);
    table_write_rows(table, out);
}
