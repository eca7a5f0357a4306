/* retrieval/tables/data_table_read.c: tables out of a document's text and marks. A line of a table
 * is "Northern coast, Oakhurst | 2019, Spring: 28,608": its marks say where cells begin, and what
 * stands between them is separators and names of columns. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/text.h"
#include "retrieval/tables/data_table_private.h"

/* Columns. */

int builder_add_column(struct data_table *table, uint32_t file_column, struct text_span name) {
    if (table->n_columns == TABLE_MOST_COLUMNS) return -1;
    table->columns =
        xgrow(table->columns, table->n_columns, &table->columns_capacity, sizeof *table->columns);
    struct data_column *column = &table->columns[table->n_columns];
    *column = (struct data_column){.file_column = file_column, .named_by_rows = name.size > 0};
    buffer_append(&column->name, name.text, name.size);
    buffer_append(&column->name, "", 0);
    table->n_columns++;
    return table->n_columns - 1;
}

/* The column of a cell, by its place in the file, else by its name; -1: there are too many. The
 * search begins behind the column before, where it nearly always is. */
static int find_column(struct data_table *table, uint32_t file_column, struct text_span name,
                       int before) {
    for (int step = 0; step < table->n_columns; step++) {
        int i = (before + 1 + step) % table->n_columns;
        struct data_column *column = &table->columns[i];
        bool same =
            file_column > 0 ? column->file_column == file_column : span_is(name, column->name.data);
        if (!same) continue;
        if (name.size > 0 && !column->named_by_rows) {
            buffer_clear(&column->name);
            buffer_append(&column->name, name.text, name.size);
            column->named_by_rows = true;
        }
        return i;
    }
    return builder_add_column(table, file_column, name);
}

void builder_add_cell(struct data_table *table, const struct line_cell *cell, uint32_t row,
                      int *before) {
    size_t n = table->cells.size / sizeof(struct data_cell);
    int column = find_column(table, cell->column, cell->name, *before);
    table->is_cut = table->is_cut || n >= TABLE_MOST_CELLS || column < 0;
    if (n >= TABLE_MOST_CELLS || column < 0 || table->text.size > UINT32_MAX) return;
    *before = column;
    struct data_cell added = {.row = row,
                              .column = (uint32_t)column,
                              .file_row = cell->row,
                              .file_column = cell->column,
                              .text = (uint32_t)table->text.size,
                              .size = (uint32_t)cell->text.size,
                              .copied = cell->row > 0 && cell->row < row};
    buffer_append(&table->text, cell->text.text, cell->text.size);
    buffer_append(&table->cells, &added, sizeof added);
}

/* Lines. */

static struct text_span span_between(struct text_span text, size_t start, size_t end) {
    return (struct text_span){text.text + start, end - start};
}

static size_t find_line_end(struct text_span text, size_t at) {
    const char *newline = memchr(text.text + at, '\n', text.size - at);
    return newline ? (size_t)(newline - text.text) : text.size;
}

/* The last " | " of a stretch; SIZE_MAX: there is none. */
static size_t find_bar(struct text_span stretch) {
    for (size_t at = stretch.size; at >= 3; at--)
        if (memcmp(stretch.text + at - 3, " | ", 3) == 0) return at - 3;
    return SIZE_MAX;
}

static struct text_span drop_end(struct text_span text, const char *end) {
    if (span_ends_with(text, end)) text.size -= strlen(end);
    return text;
}

/* The text between two cells of a line is the rest of the first, then the name of the second. */
static void split_stretch(struct text_span stretch, struct text_span *rest,
                          struct text_span *name) {
    size_t bar = find_bar(stretch);
    *name = (struct text_span){"", 0};
    if (bar == SIZE_MAX) {
        *rest = drop_end(stretch, ", ");
        return;
    }
    *rest = (struct text_span){stretch.text, bar};
    *name = drop_end((struct text_span){stretch.text + bar + 3, stretch.size - bar - 3}, ": ");
}

/* In front of the first cell stands the name of the group that the row is in, a name of its
 * column, or both. */
static void split_front(struct text_span front, struct text_span *group, struct text_span *name) {
    size_t bar = find_bar(front);
    *group = *name = (struct text_span){"", 0};
    if (bar != SIZE_MAX) {
        *group = drop_end(drop_end((struct text_span){front.text, bar}, " "), ",");
        front = (struct text_span){front.text + bar + 3, front.size - bar - 3};
    } else if (span_ends_with(front, ", ")) {
        *group = drop_end(front, ", ");
        return;
    }
    *name = drop_end(front, ": ");
}

/* The marks of cells of a line, [first, end) of all marks. */
struct line_marks {
    struct mark_span marks;
    uint32_t first, end;
    size_t start, stop; /* of the line */
};

/* The next mark of a cell at i or behind it, within the line. */
static uint32_t next_cell(const struct line_marks *line, uint32_t i) {
    while (i < line->end && mark_read(line->marks, i).kind != MARK_CELL) i++;
    return i;
}

/* A cell above that covers the row is no part of it by its number: the largest is the row's. */
static uint32_t find_row(const struct line_marks *line) {
    uint32_t row = 0;
    for (uint32_t i = next_cell(line, line->first); i < line->end; i = next_cell(line, i + 1)) {
        struct mark mark = mark_read(line->marks, i);
        if (mark.value > row) row = mark.value;
    }
    return row;
}

/* Whether the cell is one that a line before has given: heads of a row that is cut are repeated. */
static bool is_repeated(const struct data_table *table, const struct line_cell *cell, uint32_t row,
                        size_t first_of_row) {
    size_t n;
    const struct data_cell *cells = data_cells(table, &n);
    size_t most = first_of_row + 8 < n ? first_of_row + 8 : n;
    for (size_t i = first_of_row; i < most; i++)
        if (cells[i].row == row && cells[i].file_row == cell->row &&
            cells[i].file_column == cell->column)
            return true;
    return n > first_of_row && cells[n - 1].file_row == cell->row &&
           cells[n - 1].file_column == cell->column;
}

static void add_marked_line(struct table_builder *builder, struct text_span text,
                            const struct line_marks *line) {
    struct data_table *table = builder->table;
    struct text_span group, name;
    uint32_t row = find_row(line), i = next_cell(line, line->first);
    size_t n = table->cells.size / sizeof(struct data_cell), first_of_row = n;
    const struct data_cell *cells = data_cells(table, &n);
    while (first_of_row > 0 && cells[first_of_row - 1].row == row) first_of_row--;
    int before = -1;
    split_front(span_between(text, line->start, mark_read(line->marks, i).at), &group, &name);
    if (group.size > 0 && first_of_row == n)
        builder_add_cell(table, &(struct line_cell){.name = {"Group", 5}, .text = group}, row,
                         &before);
    while (i < line->end) {
        struct mark mark = mark_read(line->marks, i);
        uint32_t next = next_cell(line, i + 1);
        size_t stop = next < line->end ? mark_read(line->marks, next).at : line->stop;
        struct text_span stretch = span_between(text, mark.at, stop), following = {"", 0};
        struct line_cell cell = {.name = name, .row = mark.value, .column = mark.column};
        cell.text = stretch;
        if (next < line->end) split_stretch(stretch, &cell.text, &following);
        if (!is_repeated(table, &cell, row, first_of_row))
            builder_add_cell(table, &cell, row, &before);
        name = following;
        i = next;
    }
    builder->last_row = row;
}

/* A line without marks of cells, as of a page: the first part names the row. */
static void add_plain_line(struct table_builder *builder, struct text_span line) {
    int before = -1;
    bool first = true;
    builder->last_row++;
    while (line.size > 0) {
        const char *bar = memmem(line.text, line.size, " | ", 3);
        size_t size = bar ? (size_t)(bar - line.text) : line.size;
        struct text_span part = {line.text, size};
        const char *colon = memmem(part.text, part.size, ": ", 2);
        struct line_cell cell = {.name = {"", 0}, .text = part};
        if (colon && !(first && bar)) {
            cell.name.text = part.text;
            cell.name.size = (size_t)(colon - part.text);
            cell.text = (struct text_span){colon + 2, part.size - cell.name.size - 2};
        }
        builder_add_cell(builder->table, &cell, builder->last_row, &before);
        first = false;
        line.text += size + (bar ? 3 : 0);
        line.size -= size + (bar ? 3 : 0);
    }
}

/* Heads: each of their cells names its column, the lowest last. Only columns that rows do not name
 * are named so: those of the heads of rows. */
static void name_columns(struct data_table *table, struct text_span text,
                         const struct line_marks *line) {
    int before = -1;
    for (uint32_t i = next_cell(line, line->first); i < line->end;) {
        struct mark mark = mark_read(line->marks, i);
        uint32_t next = next_cell(line, i + 1);
        size_t stop = next < line->end ? mark_read(line->marks, next).at : line->stop;
        struct text_span name = drop_end(span_between(text, mark.at, stop), " | ");
        int column = find_column(table, mark.column, (struct text_span){"", 0}, before);
        if (column < 0) return;
        buffer_clear(&table->columns[column].name);
        buffer_append(&table->columns[column].name, name.text, name.size);
        before = column;
        i = next;
    }
}

/* Documents. */

struct document_walk {
    struct data_tables *tables;
    struct text_span text;
    struct mark_span marks;
    struct table_builder builder; /* table NULL: none is open */
    struct text_span sheet, heading, caption;
};

static void end_table(struct document_walk *walk) {
    struct data_table *table = walk->builder.table;
    if (table) data_table_finish(table);
    walk->builder.table = NULL;
}

static void begin_table(struct document_walk *walk) {
    struct data_tables *tables = walk->tables;
    end_table(walk);
    tables->list = xgrow(tables->list, tables->n, &tables->capacity, sizeof *tables->list);
    struct data_table *table = &tables->list[tables->n];
    *table = (struct data_table){.n_columns = 0};
    tables->n++;
    struct text_span name = walk->caption.size > 0 ? walk->caption : walk->heading;
    buffer_append(&table->name, name.text, name.size);
    buffer_append(&table->sheet, walk->sheet.text, walk->sheet.size);
    walk->builder = (struct table_builder){.table = table};
    walk->caption.size = 0;
}

static struct line_marks line_of(const struct document_walk *walk, const struct mark *block,
                                 uint32_t i) {
    struct line_marks line = {.marks = walk->marks, .start = block->at};
    line.stop = find_line_end(walk->text, block->at);
    line.first = line.end = i + 1;
    while (line.end < walk->marks.n && mark_read(walk->marks, line.end).at < line.stop) {
        struct mark mark = mark_read(walk->marks, line.end);
        if (mark.kind == MARK_BLOCK) break;
        line.end++;
    }
    return line;
}

/* Whether the line behind a head begins with its text: then it names a group of rows. */
static bool names_group(const struct document_walk *walk, const struct line_marks *line) {
    size_t size = line->stop - line->start, next = line->stop + 1;
    if (next + size + 2 > walk->text.size) return false;
    const char *head = walk->text.text + line->start;
    return memcmp(walk->text.text + next, head, size) == 0 &&
           memcmp(walk->text.text + next + size, ", ", 2) == 0;
}

static void take_head(struct document_walk *walk, const struct line_marks *line) {
    const struct data_table *table = walk->builder.table;
    bool has_rows = table && table->cells.size > 0;
    if (has_rows && names_group(walk, line)) return;
    if (next_cell(line, line->first) == line->end) {
        if (has_rows) end_table(walk);
        struct text_span text = span_between(walk->text, line->start, line->stop);
        bool is_caption = walk->builder.table == NULL && find_bar(text) == SIZE_MAX;
        if (is_caption) walk->caption = text;
        if (is_caption) return;
    }
    if (table == NULL || has_rows) begin_table(walk);
    name_columns(walk->builder.table, walk->text, line);
}

static void take_row(struct document_walk *walk, const struct line_marks *line) {
    if (walk->builder.table == NULL) begin_table(walk);
    if (next_cell(line, line->first) < line->end)
        add_marked_line(&walk->builder, walk->text, line);
    else
        add_plain_line(&walk->builder, span_between(walk->text, line->start, line->stop));
}

static void take_heading(struct document_walk *walk, const struct mark *mark) {
    struct text_span text = {walk->text.text + mark->at, mark->value};
    if (mark->level == 1) walk->sheet = text;
    walk->heading = text;
}

/* A table of Markdown stands in its document as it was written, between bars. */
static bool is_markup(const struct document_walk *walk, const struct line_marks *line) {
    return line->start < walk->text.size && walk->text.text[line->start] == '|';
}

/* A table of Markdown has one head, which names its columns. */
static void take_markup(struct document_walk *walk, const struct mark *mark,
                        const struct line_marks *line) {
    struct text_span text = span_between(walk->text, line->start, line->stop);
    if (mark->level == BLOCK_TABLE_HEAD) {
        begin_table(walk);
        markup_name_columns(walk->builder.table, text);
    } else if (mark->level == BLOCK_TABLE_ROW && walk->builder.table) {
        markup_add_row(&walk->builder, text);
    }
}

void data_tables_read(struct data_tables *tables, const struct stored_document *document) {
    struct document_walk *walk = xcalloc(1, sizeof *walk);
    walk->tables = tables;
    walk->text = document->text;
    walk->marks = document->marks;
    for (uint32_t i = 0; i < walk->marks.n; i++) {
        struct mark mark = mark_read(walk->marks, i);
        if (mark.kind == MARK_HEADING) take_heading(walk, &mark);
        if (mark.kind != MARK_BLOCK) continue;
        struct line_marks line = line_of(walk, &mark, i);
        if (is_markup(walk, &line))
            take_markup(walk, &mark, &line);
        else if (mark.level == BLOCK_TABLE_HEAD)
            take_head(walk, &line);
        else if (mark.level == BLOCK_TABLE_ROW)
            take_row(walk, &line);
        else
            end_table(walk);
        if (mark.level == BLOCK_CAPTION)
            walk->caption = span_between(walk->text, line.start, line.stop);
    }
    end_table(walk);
    free(walk);
}

/* Records. */

bool data_table_add_record(struct data_table *table, const struct stored_document *document) {
    struct text_span text = document->text;
    bool any = false;
    int before = -1;
    for (uint32_t i = 0; i < document->marks.n; i++) {
        struct mark mark = mark_read(document->marks, i), next = {0};
        if (mark.kind == MARK_BLOCK && mark.level != BLOCK_PARAGRAPH) return false;
        if (mark.kind != MARK_CELL) continue;
        size_t start = mark.at, stop = text.size;
        while (start > 0 && text.text[start - 1] != '\n') start--;
        for (uint32_t k = i + 1; k < document->marks.n && next.kind != MARK_LINE; k++)
            next = mark_read(document->marks, k);
        if (next.kind == MARK_LINE) stop = next.at;
        while (stop > mark.at && is_blank(text.text[stop - 1])) stop--;
        struct line_cell cell = {.name = drop_end(span_between(text, start, mark.at), ": "),
                                 .text = span_between(text, mark.at, stop),
                                 .row = mark.value,
                                 .column = mark.column};
        builder_add_cell(table, &cell, mark.value, &before);
        any = true;
    }
    return any;
}
