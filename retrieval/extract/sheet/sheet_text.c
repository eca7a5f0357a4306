/* retrieval/extract/sheet/sheet_text.c: a sheet as text: its name, titles, tables, lists, remarks,
 * and what was left out. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/sheet/sheet_heads.h"

enum { MOST_TITLE = 150 };

struct sheet_writer {
    struct sheet *sheet;
    struct sheet_merges merges;
    struct document_text *out;
    const struct sheet_block *above; /* the table that was written last */
    struct block_heads above_heads;
    struct table heads; /* of that table, for one that goes on */
    bool title_is_open; /* a text stood above by itself, and nothing followed */
};

static struct text_span text_of(const struct sheet *sheet, const struct sheet_cell *cell) {
    return (struct text_span){sheet->text.data + cell->text, cell->size};
}

/* Line breaks in a cell become blanks. */
static void append_line(struct buffer *out, struct text_span text) {
    bool blank = false;
    size_t start = out->size;
    for (size_t i = 0; i < text.size; i++) {
        bool is = is_blank(text.text[i]);
        if (!is && blank && out->size > start) buffer_append(out, " ", 1);
        if (!is) buffer_append(out, &text.text[i], 1);
        blank = is;
    }
}

static void write_heading(struct document_text *out, int level, struct text_span text) {
    size_t at = out->text.size;
    marks_add_block(&out->marks, BLOCK_HEADING, at);
    append_line(&out->text, text);
    marks_add(&out->marks, MARK_HEADING, level, at, out->text.size - at);
    buffer_append_string(&out->text, "\n");
}

static void write_line(struct sheet_writer *writer, const struct sheet_cell *cell) {
    struct document_text *out = writer->out;
    marks_add_block(&out->marks, BLOCK_PARAGRAPH, out->text.size);
    marks_add_cell(&out->marks, out->text.size, cell->row, cell->column);
    append_line(&out->text, text_of(writer->sheet, cell));
    buffer_append_string(&out->text, "\n");
}

/* A short text above a table is a heading, a long one a paragraph. */
static void write_title(struct sheet_writer *writer, const struct sheet_cell *cell) {
    if (cell->size <= MOST_TITLE)
        write_heading(writer->out, 2, text_of(writer->sheet, cell));
    else
        write_line(writer, cell);
}

/* How many rows and columns a cell covers, within its block. */
static void cover(const struct sheet_writer *writer, const struct sheet_block *block,
                  const struct sheet_cell *cell, struct table_cell *to) {
    const struct sheet_range *merge = merge_find(&writer->merges, cell);
    const struct sheet_cell *cells = block_cells(writer->sheet, block);
    const struct sheet_cell *next = cell + 1 < cells + block->n ? cell + 1 : NULL;
    if (merge == NULL) return;
    /* Where another cell stands within, nothing is merged. */
    if (next && next->row == cell->row && next->column <= merge->right) return;
    uint32_t bottom = merge->bottom < block->range.bottom ? merge->bottom : block->range.bottom;
    uint32_t right = merge->right < block->range.right ? merge->right : block->range.right;
    to->rows = bottom - cell->row + 1;
    to->columns = right - cell->column + 1;
}

/* In a row of heads with gaps, a head without a merged range stands for what is right of it. */
static void widen_heads(struct table *table, const struct sheet_block *block, uint32_t row) {
    struct table_cell *cells = (struct table_cell *)(void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells;
    uint32_t width = block->range.right - block->range.left + 1;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].row != row || cells[i].column == 0 || cells[i].columns > 1 ||
            cells[i].rows > 1)
            continue;
        bool has_next = i + 1 < n && cells[i + 1].row == row;
        uint32_t next = has_next ? cells[i + 1].column : width;
        if (next > cells[i].column) cells[i].columns = next - cells[i].column;
    }
}

/* A name in the first column stands for the rows below it that have none. */
static void deepen_groups(struct table *table, uint32_t last_row) {
    struct table_cell *cells = (struct table_cell *)(void *)table->cells.data;
    size_t n = table->cells.size / sizeof *cells;
    struct table_cell *open = NULL;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].column != 0 || cells[i].row < table->head_rows) continue;
        if (open) open->rows = cells[i].row - open->row;
        open = &cells[i];
    }
    if (open) open->rows = last_row - open->row + 1;
}

/* A bold text alone in its row names the rows below. */
static bool names_rows(const struct sheet_block *block, const struct sheet_cell *cells, size_t i) {
    bool alone = (i == 0 || cells[i - 1].row != cells[i].row) &&
                 (i + 1 == block->n || cells[i + 1].row != cells[i].row);
    return alone && cells[i].bold && !cells[i].number && cells[i].column == block->range.left &&
           block->range.right > block->range.left + 1 && i + 1 < block->n;
}

static void fill_table(const struct sheet_writer *writer, const struct sheet_block *block,
                       size_t first, struct table *table) {
    const struct sheet_cell *cells = block_cells(writer->sheet, block);
    uint32_t top = cells[first].row, left = block->range.left;
    table->source_row = top;
    table->source_column = left;
    for (size_t i = first; i < block->n; i++) {
        struct table_cell *cell = table_add_cell(table, cells[i].row - top, cells[i].column - left,
                                                 text_of(writer->sheet, &cells[i]));
        cover(writer, block, &cells[i], cell);
        if (cell->row >= table->head_rows && names_rows(block, cells, i))
            cell->columns = block->range.right - left + 1;
    }
    for (uint32_t row = 0; row + 1 < table->head_rows; row++) widen_heads(table, block, row);
}

/* The names of columns that a table above an empty row had: they are put over this one. */
static void borrow_heads(const struct sheet_writer *writer, const struct sheet_block *block,
                         struct table *table) {
    const struct sheet_block *above = writer->above;
    const struct sheet_cell *cells = block_cells(writer->sheet, above);
    size_t first = writer->above_heads.titles;
    uint32_t top = cells[first].row, left = above->range.left;
    uint32_t heads = writer->above_heads.rows;
    table->head_rows = heads;
    table->head_columns = writer->above_heads.columns;
    for (size_t i = first; i < above->n && cells[i].row < top + heads; i++)
        cover(writer, above, &cells[i],
              table_add_cell(table, cells[i].row - top, cells[i].column - left,
                             text_of(writer->sheet, &cells[i])));
    for (uint32_t row = 0; row + 1 < heads; row++) widen_heads(table, above, row);
    const struct sheet_cell *own = block_cells(writer->sheet, block);
    table->source_row = top;
    table->source_column = left;
    for (size_t i = 0; i < block->n; i++)
        cover(writer, block, &own[i],
              table_add_cell(table, own[i].row - top, own[i].column - left,
                             text_of(writer->sheet, &own[i])));
}

static void write_table(struct sheet_writer *writer, const struct sheet_block *block,
                        const struct block_heads *heads) {
    struct table table = {.head_rows = heads->rows, .head_columns = heads->columns};
    const struct sheet_cell *cells = block_cells(writer->sheet, block);
    if (heads->goes_on) {
        borrow_heads(writer, block, &table);
        table_write_rows(&table, writer->out);
    } else {
        fill_table(writer, block, heads->titles, &table);
        if (heads->groups_below)
            deepen_groups(&table, block->range.bottom - cells[heads->titles].row);
        table_write(&table, writer->out);
        writer->above = block;
        writer->above_heads = *heads;
    }
    table_free(&table);
}

/* "Table1", "Tabelle12": a name that nobody gave. */
static bool is_given_name(const char *name) {
    static const char *const usual[] = {"Table", "Tabelle", "Tableau", "Tabela", "Tabla",
                                        "Sheet", "Feuil",   "Arkusz",  "Blatt",  "Hoja"};
    for (size_t i = 0; i < ARRAY_COUNT(usual); i++)
        if (starts_with(name, usual[i])) {
            const char *rest = name + strlen(usual[i]);
            return rest[strspn(rest, " 0123456789")] != '\0';
        }
    return name[0] != '\0';
}

static void begin_part(struct document_text *out) {
    if (out->text.size > 0) buffer_append_string(&out->text, "\n");
}

static void write_block(struct sheet_writer *writer, const struct sheet_block *block,
                        const struct sheet_block *next) {
    const struct sheet_cell *cells = block_cells(writer->sheet, block);
    struct block_heads heads =
        block_find_heads(writer->sheet, block, writer->above, &writer->merges);
    if (!heads.goes_on) begin_part(writer->out);
    if (heads.list) {
        bool titles = next && block->n <= 2 && next->range.right > next->range.left &&
                      next->seen.top - block->seen.bottom <= 3;
        for (size_t i = 0; i < block->n; i++)
            if (titles && !cells[i].number)
                write_title(writer, &cells[i]);
            else
                write_line(writer, &cells[i]);
        writer->title_is_open = titles;
        return;
    }
    if (block->named && !writer->title_is_open && is_given_name(block->named->name))
        write_heading(writer->out, 2,
                      (struct text_span){block->named->name, strlen(block->named->name)});
    for (size_t i = 0; i < heads.titles; i++) write_title(writer, &cells[i]);
    writer->title_is_open = false;
    write_table(writer, block, &heads);
}

static void write_remarks(struct sheet_writer *writer) {
    const struct sheet *sheet = writer->sheet;
    struct document_text *out = writer->out;
    const struct sheet_remark *remarks = (const struct sheet_remark *)(void *)sheet->remarks.data;
    size_t n = sheet->remarks.size / sizeof *remarks;
    if (n > 0) begin_part(out);
    for (size_t i = 0; i < n; i++) {
        marks_add_block(&out->marks, BLOCK_FOOTNOTE, out->text.size);
        buffer_append_string(&out->text, "Comment on ");
        sheet_print_address(&out->text, remarks[i].row, remarks[i].column);
        buffer_append_string(&out->text, ": ");
        append_line(&out->text,
                    (struct text_span){sheet->text.data + remarks[i].text, remarks[i].size});
        buffer_append_string(&out->text, "\n");
    }
}

void sheet_lose_hidden(const char *name, struct document_text *out) {
    document_text_lose(out, "sheet \"%s\" is hidden and left out", name);
    out->has_hidden = true;
}

static void tell_losses(const struct sheet *sheet, struct document_text *out) {
    out->has_hidden |= sheet->hidden_rows > 0 || sheet->hidden_columns > 0;
    if (sheet->hidden_rows > 0)
        document_text_lose(out, "sheet \"%s\": %zu hidden rows are left out", sheet->name.data,
                           sheet->hidden_rows);
    if (sheet->hidden_columns > 0)
        document_text_lose(out, "sheet \"%s\": %zu hidden columns are left out", sheet->name.data,
                           sheet->hidden_columns);
    if (sheet->not_computed > 0)
        document_text_lose(out,
                           "sheet \"%s\": %zu formulas have no value in the file and are shown as "
                           "formulas; open and save it in a spreadsheet program",
                           sheet->name.data, sheet->not_computed);
    if (!sheet->is_full) return;
    marks_add_block(&out->marks, BLOCK_PARAGRAPH, out->text.size);
    buffer_printf(&out->text, "The sheet goes on; a file is read up to %d cells.\n",
                  SHEET_MOST_CELLS);
    document_text_lose(out, "sheet \"%s\": a file is read up to %d cells; split it",
                       sheet->name.data, SHEET_MOST_CELLS);
}

static int compare_ranges(const void *left, const void *right) {
    const struct sheet_range *a = left, *b = right;
    if (a->top != b->top) return a->top < b->top ? -1 : 1;
    return (a->left > b->left) - (a->left < b->left);
}

void sheet_write(struct sheet *sheet, bool named, struct document_text *out) {
    struct sheet_writer writer = {.sheet = sheet, .out = out};
    struct buffer blocks = {0};
    buffer_append(&sheet->name, "", 0);
    buffer_append(&sheet->text, "", 0);
    writer.merges.n = sheet->merges.size / sizeof(struct sheet_range);
    if (writer.merges.n > 0)
        qsort(sheet->merges.data, writer.merges.n, sizeof(struct sheet_range), compare_ranges);
    writer.merges.list = (const struct sheet_range *)(void *)sheet->merges.data;
    sheet_split(sheet, &blocks);
    size_t n = blocks.size / sizeof(struct sheet_block);
    if (n > 0 && (named || is_given_name(sheet->name.data))) {
        begin_part(out);
        write_heading(out, 1, (struct text_span){sheet->name.data, sheet->name.size});
    }
    const struct sheet_block *list = (const struct sheet_block *)(void *)blocks.data;
    for (size_t i = 0; i < n; i++) write_block(&writer, &list[i], i + 1 < n ? &list[i + 1] : NULL);
    write_remarks(&writer);
    tell_losses(sheet, out);
    buffer_free(&blocks);
}
