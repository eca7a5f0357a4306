/* retrieval/extract/office/notebook.c: notebooks of Jupyter: texts, code, and what it printed. */
#include <string.h>

#include "config/json/json_value.h"
#include "retrieval/extract/extract_private.h"

/* A text that JSON may cut into a list of lines. */
static void append_text(const struct json *json, struct buffer *out) {
    struct text_span text = json_text(json);
    buffer_append(out, text.text, text.size);
    for (size_t i = 0; i < json_count(json) && json_is_list(json); i++) {
        text = json_text(json_item(json, i));
        buffer_append(out, text.text, text.size);
    }
}

static void end_part(struct document_text *out) {
    while (out->text.size > 0 && strchr(" \n", out->text.data[out->text.size - 1]))
        out->text.size--;
    if (out->text.size > 0) buffer_append_string(&out->text, "\n\n");
}

/* The headings of a text in Markdown, whose marks count from its own beginning. */
static void add_markdown(struct text_span text, struct document_text *out) {
    struct buffer marks = {0};
    size_t start = out->text.size;
    document_mark(DOCUMENT_MARKDOWN, text, &marks);
    struct mark_span span = marks_of(&marks);
    marks_add_block(&out->marks, BLOCK_PARAGRAPH, start);
    for (uint32_t i = 0; i < span.n; i++) {
        struct mark mark = mark_read(span, i);
        if (mark.kind == MARK_HEADING)
            marks_add(&out->marks, MARK_HEADING, mark.level, start + mark.at, mark.value);
    }
    buffer_append(&out->text, text.text, text.size);
    buffer_free(&marks);
}

static void add_output(const struct json *output, struct document_text *out) {
    const struct json *data = json_member(output, "data");
    size_t start = out->text.size;
    append_text(json_member(output, "text"), &out->text);
    append_text(json_member(data, "text/plain"), &out->text);
    if (json_is_text(json_member(output, "ename"))) {
        append_text(json_member(output, "ename"), &out->text);
        buffer_append_string(&out->text, ": ");
        append_text(json_member(output, "evalue"), &out->text);
    }
    if (out->text.size > start) marks_add_block(&out->marks, BLOCK_CODE, start);
    end_part(out);
}

static void add_cell(const struct json *cell, struct document_text *out) {
    struct buffer source = {0};
    const struct json *kind = json_member(cell, "cell_type");
    const struct json *outputs = json_member(cell, "outputs");
    const struct json *text = json_member(cell, "source");
    append_text(text ? text : json_member(cell, "input"), &source);
    bool is_text = json_text_is(kind, "markdown") || json_text_is(kind, "heading");
    if (source.size > 0 && is_text) add_markdown((struct text_span){source.data, source.size}, out);
    if (source.size > 0 && !is_text) {
        marks_add_block(&out->marks, BLOCK_CODE, out->text.size);
        buffer_append(&out->text, source.data, source.size);
    }
    end_part(out);
    for (size_t i = 0; i < json_count(outputs) && json_is_list(outputs); i++)
        add_output(json_item(outputs, i), out);
    buffer_free(&source);
}

/* The cells of a notebook; those of its third version lie in sheets. */
static void add_cells(const struct json *notebook, struct document_text *out) {
    const struct json *cells = json_member(notebook, "cells");
    const struct json *sheets = json_member(notebook, "worksheets");
    for (size_t i = 0; i < json_count(cells) && json_is_list(cells); i++)
        add_cell(json_item(cells, i), out);
    for (size_t i = 0; i < json_count(sheets) && json_is_list(sheets); i++) {
        const struct json *inner = json_member(json_item(sheets, i), "cells");
        for (size_t k = 0; k < json_count(inner) && json_is_list(inner); k++)
            add_cell(json_item(inner, k), out);
    }
}

/* NUL bytes have no place in a text, and JSON can spell them. */
static void drop_nuls(struct buffer *text) {
    for (size_t i = 0; i < text->size; i++)
        if (text->data[i] == '\0') text->data[i] = ' ';
}

enum status extract_notebook(const struct extract_file *file, struct document_text *out,
                             struct error *e) {
    struct json *notebook;
    if (json_parse(&notebook, file->bytes, file->name, e)) return e->status;
    const struct json *facts = json_member(notebook, "metadata");
    add_cells(notebook, out);
    append_text(json_member(facts, "title"), &out->title);
    json_close(notebook);
    drop_nuls(&out->text);
    drop_nuls(&out->title);
    if (out->text.size == 0)
        return error_set(e, STATUS_INVALID, "%s: empty: no cell with a text in it", file->name);
    out->text.size--; /* one newline at the end */
    out->text.data[out->text.size] = '\0';
    return STATUS_OK;
}
