/* retrieval/extract/office/docx.c: Word's DOCX: paragraphs, headings, numbered lists, tables,
 * notes, boxes of text, and the pages where the program that wrote the file noted its page breaks.
 * Text that was deleted or is hidden is left out. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/office/docx_styles.h"
#include "retrieval/extract/office/links.h"
#include "retrieval/extract/office/xml.h"

struct docx_reader {
    struct office_writer writer;
    struct docx_styles styles;
    struct buffer value; /* of an attribute */
    size_t page;
    int skipped;     /* open: text that is taken out, or stands there twice */
    int list, depth; /* of the paragraph that is open; list 0: none */
    bool in_text, in_run, is_hidden, in_row_facts, row_is_head;
};

static int read_value(struct docx_reader *reader, const struct xml_event *event) {
    return xml_attribute(event, "val", &reader->value) ? atoi(reader->value.data) : 0;
}

/* A switch such as <w:vanish/> is on unless it says no. */
static bool is_on(struct docx_reader *reader, const struct xml_event *event) {
    return !xml_attribute(event, "val", &reader->value) ||
           !(strcmp(reader->value.data, "0") == 0 || strcmp(reader->value.data, "false") == 0);
}

static bool is_skipped(const struct xml_event *event) {
    return xml_is(event, "moveFrom") || xml_is(event, "Fallback") || xml_is(event, "instrText") ||
           xml_is(event, "delText");
}

/* Paragraphs. */

static void take_style_name(struct docx_reader *reader, const struct xml_event *event) {
    if (!xml_attribute(event, "val", &reader->value)) return;
    const struct docx_style *style = docx_find_style(&reader->styles, reader->value.data);
    if (style == NULL) return;
    reader->writer.level = style->level;
    reader->writer.is_contents = style->is_contents;
    reader->list = style->list;
    reader->depth = style->depth;
}

static void take_paragraph_facts(struct docx_reader *reader, const struct xml_event *event) {
    if (xml_is(event, "pStyle")) take_style_name(reader, event);
    if (xml_is(event, "numId")) reader->list = read_value(reader, event);
    if (xml_is(event, "ilvl")) reader->depth = read_value(reader, event);
    if (xml_is(event, "outlineLvl") && xml_attribute(event, "val", &reader->value) &&
        reader->value.data[0] >= '0' && reader->value.data[0] <= '8')
        reader->writer.level = reader->value.data[0] - '0' + 1;
}

static void close_paragraph(struct docx_reader *reader) {
    struct office_writer *writer = &reader->writer;
    if (writer->boxes == 0 && reader->list > 0 && writer->paragraph.size > 0) {
        docx_number_item(&reader->styles, reader->list, reader->depth, &writer->label);
        /* The number of a heading is part of it. */
        if (writer->level > 0 && writer->label.size > 0) {
            buffer_append(&writer->label, writer->paragraph.data, writer->paragraph.size);
            buffer_clear(&writer->paragraph);
            buffer_append(&writer->paragraph, writer->label.data, writer->label.size);
            buffer_clear(&writer->label);
        }
    }
    office_end_paragraph(writer);
    if (writer->boxes == 0) reader->list = reader->depth = 0;
}

static void take_note(struct docx_reader *reader, const struct xml_event *event, bool at_end) {
    int id = xml_attribute(event, "id", &reader->value) ? atoi(reader->value.data) : -1;
    struct text_span note = docx_find_note(&reader->styles, id, at_end);
    if (note.size > 0) office_add_behind(&reader->writer, note);
}

static void take_run(struct docx_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "t")) reader->in_text = true;
    if (xml_is(event, "vanish")) reader->is_hidden = is_on(reader, event);
    if (xml_is(event, "tab") || xml_is(event, "ptab")) office_text(writer, "\t");
    if (xml_is(event, "noBreakHyphen")) office_text(writer, "-");
    if (xml_is(event, "br") || xml_is(event, "cr")) office_text(writer, "\n");
    if (xml_is(event, "footnoteReference")) take_note(reader, event, false);
    if (xml_is(event, "endnoteReference")) take_note(reader, event, true);
    if (xml_is(event, "lastRenderedPageBreak")) {
        reader->page++;
        office_page(writer, reader->page);
    }
}

/* Tables. */

static void take_cell_facts(struct docx_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (writer->tables != 1 || writer->boxes > 0) return;
    if (xml_is(event, "gridSpan")) {
        int columns = read_value(reader, event);
        writer->cell_facts.columns = columns > 0 ? (uint32_t)columns : 1;
    }
    if (xml_is(event, "vMerge"))
        writer->cell_goes_on = !xml_attribute(event, "val", &reader->value) ||
                               strcmp(reader->value.data, "restart") != 0;
    if (xml_is(event, "hMerge"))
        writer->cell_goes_on = writer->cell_goes_on || !xml_attribute_is(event, "val", "restart");
    if (xml_is(event, "tblHeader")) reader->row_is_head = is_on(reader, event);
    if (xml_is(event, "gridBefore") && reader->in_row_facts) {
        int columns = read_value(reader, event);
        grid_skip(&writer->grid, columns > 0 ? (uint32_t)columns : 0);
    }
}

static void open_table_part(struct docx_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "tbl")) office_open_table(writer);
    if (xml_is(event, "tr")) {
        office_open_row(writer);
        if (writer->tables == 1) reader->row_is_head = false;
    }
    if (xml_is(event, "trPr")) reader->in_row_facts = true;
    if (xml_is(event, "tc")) {
        office_open_cell(writer);
        if (writer->tables == 1) writer->cell_facts.head = reader->row_is_head;
    }
    take_cell_facts(reader, event);
}

static void close_table_part(struct docx_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "trPr")) reader->in_row_facts = false;
    if (xml_is(event, "tc")) office_close_cell(writer);
    if (xml_is(event, "tr")) office_close_row(writer);
    if (xml_is(event, "tbl")) office_close_table(writer);
}

/* Events. */

static void take_open(struct docx_reader *reader, const struct xml_event *event) {
    reader->skipped += is_skipped(event);
    if (reader->skipped > 0) return;
    if (xml_is(event, "r")) {
        reader->in_run = true;
        reader->is_hidden = false;
    }
    if (xml_is(event, "txbxContent")) reader->writer.boxes++;
    if (reader->in_run) take_run(reader, event);
    if (xml_is(event, "t")) reader->in_text = true;
    take_paragraph_facts(reader, event);
    open_table_part(reader, event);
}

static void take_close(struct docx_reader *reader, const struct xml_event *event) {
    if (is_skipped(event)) {
        reader->skipped--;
        return;
    }
    if (reader->skipped > 0) return;
    if (xml_is(event, "t")) reader->in_text = false;
    if (xml_is(event, "r")) reader->in_run = false;
    if (xml_is(event, "p")) close_paragraph(reader);
    if (xml_is(event, "txbxContent")) {
        reader->writer.boxes--;
        reader->in_run = true; /* the run that holds the box goes on */
    }
    close_table_part(reader, event);
}

static void take_docx(void *context, const struct xml_event *event) {
    struct docx_reader *reader = context;
    bool shown = reader->in_text && !reader->is_hidden && reader->skipped == 0;
    if (event->kind == XML_EVENT_TEXT && shown) office_text(&reader->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_close(reader, event);
}

enum status office_read_docx(const struct office_parts *parts, struct document_text *out,
                             struct error *e) {
    static const char break_name[] = "lastRenderedPageBreak";
    const struct buffer *document;
    struct buffer name = {0};
    struct docx_reader reader = {.writer = {.out = out}};
    office_main_part(parts, "word/document.xml", &name);
    enum status status = office_require(parts, name.data, &document, e);
    if (status == STATUS_OK) {
        docx_styles_read(&reader.styles, parts, name.data);
        /* A file in which no break is noted has pages that nobody knows. */
        if (memmem(document->data, document->size, break_name, sizeof break_name - 1)) {
            reader.page = 1;
            office_page(&reader.writer, 1);
        }
        status = xml_read(parts->file->name, office_span(document), take_docx, &reader, e);
        office_end_paragraph(&reader.writer);
    }
    office_title(parts, "docProps/core.xml", &out->title);
    office_writer_free(&reader.writer);
    docx_styles_free(&reader.styles);
    buffer_free(&reader.value);
    buffer_free(&name);
    return status;
}
