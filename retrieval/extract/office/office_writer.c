/* retrieval/extract/office/office_writer.c: paragraphs, headings, list items and tables of office
 * documents as text with marks. See office.h. */
#include <string.h>

#include "retrieval/extract/office/office.h"

void office_writer_free(struct office_writer *writer) {
    buffer_free(&writer->paragraph);
    buffer_free(&writer->behind);
    buffer_free(&writer->label);
    buffer_free(&writer->cell);
    grid_free(&writer->grid);
}

void office_text(struct office_writer *writer, const char *text) {
    buffer_append_string(writer->boxes > 0 ? &writer->behind : &writer->paragraph, text);
}

static struct text_span trim_text(struct text_span text) {
    while (text.size > 0 && strchr(" \t\n", text.text[text.size - 1])) text.size--;
    while (text.size > 0 && strchr(" \t\n", text.text[0])) {
        text.text++;
        text.size--;
    }
    return text;
}

static struct text_span trim_line(const struct buffer *line) {
    return trim_text((struct text_span){line->data, line->size});
}

void office_page(struct office_writer *writer, size_t page) {
    writer->page = page;
    writer->page_here = trim_line(&writer->paragraph).size == 0;
}

static void mark_page(struct office_writer *writer) {
    if (writer->page > 0 && writer->page_here) {
        marks_add(&writer->out->marks, MARK_PAGE, 0, writer->out->text.size, writer->page);
        writer->page = 0;
    }
    writer->page_here = true;
}

static void write_block(struct office_writer *writer, enum block_kind kind, struct text_span text) {
    struct document_text *out = writer->out;
    size_t at = out->text.size;
    mark_page(writer);
    marks_add_block(&out->marks, kind, at);
    if (kind == BLOCK_LIST_ITEM) buffer_append(&out->text, writer->label.data, writer->label.size);
    buffer_append(&out->text, text.text, text.size);
    if (writer->level > 0)
        marks_add(&out->marks, MARK_HEADING, min_int(writer->level, MARK_LEVELS), at,
                  out->text.size - at);
    buffer_append_string(&out->text, "\n");
}

static void add_to_cell(struct office_writer *writer, struct text_span text) {
    if (text.size == 0) return;
    if (writer->cell.size > 0) buffer_append_string(&writer->cell, " ");
    buffer_append(&writer->cell, writer->label.data, writer->label.size);
    buffer_append(&writer->cell, text.text, text.size);
}

/* Each line that comes behind, as a block or as text of the cell. */
static void write_behind(struct office_writer *writer) {
    struct buffer behind = writer->behind;
    writer->behind = (struct buffer){0};
    for (const char *at = behind.data ? behind.data : ""; *at;) {
        size_t size = strcspn(at, "\n");
        struct text_span line = trim_text((struct text_span){at, size});
        if (line.size > 0 && writer->tables > 0) add_to_cell(writer, line);
        if (line.size > 0 && writer->tables == 0) write_block(writer, BLOCK_FOOTNOTE, line);
        at += size;
        at += *at == '\n';
    }
    buffer_free(&behind);
}

void office_end_paragraph(struct office_writer *writer) {
    if (writer->boxes > 0) {
        buffer_append_string(&writer->behind, "\n");
        return;
    }
    struct text_span text = trim_line(&writer->paragraph);
    enum block_kind kind = writer->is_contents      ? BLOCK_CONTENTS
                           : writer->level > 0      ? BLOCK_HEADING
                           : writer->label.size > 0 ? BLOCK_LIST_ITEM
                                                    : BLOCK_PARAGRAPH;
    if (writer->tables > 0)
        add_to_cell(writer, text);
    else if (text.size > 0)
        write_block(writer, kind, text);
    else
        writer->page_here = true;
    buffer_clear(&writer->paragraph);
    buffer_clear(&writer->label);
    writer->level = 0;
    writer->is_contents = false;
    write_behind(writer);
}

void office_add_behind(struct office_writer *writer, struct text_span text) {
    if (writer->behind.size > 0 && writer->behind.data[writer->behind.size - 1] != '\n')
        buffer_append_string(&writer->behind, "\n");
    for (size_t i = 0; i < text.size; i++)
        buffer_append(&writer->behind, text.text[i] == '\n' ? " " : &text.text[i], 1);
    buffer_append_string(&writer->behind, "\n");
}

/* Tables. */

void office_open_table(struct office_writer *writer) {
    if (writer->boxes > 0) return;
    if (writer->tables == 0) office_end_paragraph(writer);
    writer->tables++;
}

void office_close_table(struct office_writer *writer) {
    if (writer->boxes > 0 || writer->tables == 0) return;
    writer->tables--;
    if (writer->tables > 0) return;
    mark_page(writer);
    grid_write(&writer->grid, writer->out);
    buffer_clear(&writer->cell);
}

void office_open_row(struct office_writer *writer) {
    if (writer->boxes == 0 && writer->tables == 1) grid_open_row(&writer->grid);
}

void office_close_row(struct office_writer *writer) {
    if (writer->boxes > 0) return;
    if (writer->tables == 1) grid_close_row(&writer->grid);
    if (writer->tables > 1 && writer->cell.size > 0) buffer_append_string(&writer->cell, ";");
}

void office_open_cell(struct office_writer *writer) {
    if (writer->boxes > 0 || writer->tables != 1) return;
    buffer_clear(&writer->cell);
    buffer_clear(&writer->paragraph);
    writer->cell_facts = (struct grid_cell){.rows = 1, .columns = 1};
    writer->cell_goes_on = false;
    writer->cell_is_open = true;
}

void office_close_cell(struct office_writer *writer) {
    if (writer->boxes > 0) return;
    if (writer->paragraph.size > 0) office_end_paragraph(writer);
    if (writer->tables != 1 || !writer->cell_is_open) return;
    writer->cell_is_open = false;
    writer->cell_facts.text = (struct text_span){writer->cell.data, writer->cell.size};
    if (writer->cell_goes_on)
        grid_continue_cell(&writer->grid, writer->cell_facts.columns);
    else
        grid_add_cell(&writer->grid, &writer->cell_facts);
    buffer_clear(&writer->cell);
}
