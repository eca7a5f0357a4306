/* retrieval/extract/office/docx.c: Word's DOCX and OpenDocument's ODT: paragraphs, headings, tables
 * as rows with tabs, and the pages where the program that wrote the file noted its page breaks. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"

/* Styles of DOCX: which of them are headings. Their ids are of the writer's language, their names
 * are English. */

struct docx_style {
    char id[64];
    int level;
};

struct docx_reader {
    struct office_writer writer;
    struct docx_style *styles;
    int n_styles, styles_capacity;
    struct docx_style style; /* that is read */
    struct buffer value;     /* of an attribute */
    bool in_text, has_breaks;
    size_t page;
    int rows, cells; /* open: tables lie within tables */
};

static void take_style(void *context, const struct xml_event *event) {
    struct docx_reader *reader = context;
    if (xml_is(event, "style") && event->kind == XML_EVENT_OPEN) {
        reader->style = (struct docx_style){.level = 0};
        if (xml_attribute(event, "styleId", &reader->value) &&
            reader->value.size < sizeof reader->style.id)
            memcpy(reader->style.id, reader->value.data, reader->value.size + 1);
    } else if (xml_is(event, "style") && reader->style.level > 0 && reader->style.id[0]) {
        reader->styles = xgrow(reader->styles, reader->n_styles, &reader->styles_capacity,
                               sizeof *reader->styles);
        reader->styles[reader->n_styles] = reader->style;
        reader->n_styles++;
    } else if (xml_is(event, "name") && xml_attribute(event, "val", &reader->value)) {
        const char *name = reader->value.data;
        if (strncasecmp(name, "heading ", 8) == 0 && name[8] >= '1' && name[8] <= '9')
            reader->style.level = name[8] - '0';
        if (strcasecmp(name, "title") == 0) reader->style.level = 1;
    } else if (xml_is(event, "outlineLvl") && xml_attribute(event, "val", &reader->value)) {
        if (reader->value.data[0] >= '0' && reader->value.data[0] <= '8')
            reader->style.level = reader->value.data[0] - '0' + 1;
    }
}

static int style_level(const struct docx_reader *reader) {
    for (int i = 0; i < reader->n_styles; i++)
        if (strcmp(reader->styles[i].id, reader->value.data) == 0) return reader->styles[i].level;
    return 0;
}

static void take_docx_open(struct docx_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "t")) reader->in_text = true;
    if (xml_is(event, "tab")) office_text(writer, "\t");
    if (xml_is(event, "noBreakHyphen")) office_text(writer, "-");
    if (xml_is(event, "tc")) reader->cells++;
    if (xml_is(event, "pStyle") && xml_attribute(event, "val", &reader->value))
        writer->level = style_level(reader);
    if (xml_is(event, "outlineLvl") && xml_attribute(event, "val", &reader->value) &&
        reader->value.data[0] >= '0' && reader->value.data[0] <= '8')
        writer->level = reader->value.data[0] - '0' + 1;
    if (xml_is(event, "lastRenderedPageBreak")) {
        reader->page++;
        office_page(writer, reader->page);
    }
    if (xml_is(event, "br")) office_text(writer, "\n");
    writer->cell_open = reader->cells > 0;
}

static void take_docx_close(struct docx_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "t")) reader->in_text = false;
    if (xml_is(event, "p")) office_end_paragraph(writer);
    if (xml_is(event, "tc")) {
        reader->cells--;
        office_end_cell(writer);
    }
    if (xml_is(event, "tr")) office_end_row(writer);
    writer->cell_open = reader->cells > 0;
}

static void take_docx(void *context, const struct xml_event *event) {
    struct docx_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT && reader->in_text) office_text(&reader->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_docx_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_docx_close(reader, event);
}

enum status office_read_docx(const struct office_parts *parts, struct document_text *out,
                             struct error *e) {
    static const char break_name[] = "lastRenderedPageBreak";
    const struct buffer *document, *styles = office_find(parts, "word/styles.xml");
    struct docx_reader reader = {.writer = {.out = out}};
    struct error unreadable;
    if (office_require(parts, "word/document.xml", &document, e)) return e->status;
    if (styles) xml_read("word/styles.xml", office_span(styles), take_style, &reader, &unreadable);
    /* A file in which no break is noted has pages that nobody knows. */
    if (memmem(document->data, document->size, break_name, sizeof break_name - 1)) {
        reader.page = 1;
        office_page(&reader.writer, 1);
    }
    enum status status = xml_read(parts->file->name, office_span(document), take_docx, &reader, e);
    office_end_paragraph(&reader.writer);
    office_title(parts, "docProps/core.xml", &out->title);
    free(reader.styles);
    buffer_free(&reader.value);
    return status;
}

/* OpenDocument. */

struct odt_reader {
    struct office_writer writer;
    struct buffer value;
    int paragraphs; /* open */
    int hidden;     /* open: notes of reviewers, and text that was taken out */
    size_t page;
    int cells;
};

static bool is_hidden(const struct xml_event *event) {
    return xml_is(event, "annotation") || xml_is(event, "tracked-changes");
}

static bool is_paragraph(const struct xml_event *event) {
    return xml_is(event, "p") || xml_is(event, "h");
}

static int read_count(const struct xml_event *event, const char *name, struct buffer *value,
                      int most) {
    int n = xml_attribute(event, name, value) ? atoi(value->data) : 1;
    return max_int(1, min_int(n, most));
}

static void take_odt_open(struct odt_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    reader->hidden += is_hidden(event);
    if (reader->hidden) return;
    reader->paragraphs += is_paragraph(event);
    if (xml_is(event, "h"))
        writer->level = read_count(event, "outline-level", &reader->value, MARK_LEVELS);
    if (xml_is(event, "tab")) office_text(writer, "\t");
    if (xml_is(event, "line-break")) office_text(writer, "\n");
    if (xml_is(event, "s"))
        for (int i = read_count(event, "c", &reader->value, 100); i > 0; i--)
            office_text(writer, " ");
    if (xml_is(event, "soft-page-break")) {
        reader->page++;
        office_page(writer, reader->page);
    }
    if (xml_is(event, "table-cell")) reader->cells++;
    writer->cell_open = reader->cells > 0;
}

static void take_odt_close(struct odt_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    reader->hidden -= is_hidden(event);
    if (reader->hidden) return;
    reader->paragraphs -= is_paragraph(event);
    if (is_paragraph(event)) office_end_paragraph(writer);
    if (xml_is(event, "table-cell")) {
        reader->cells--;
        office_end_cell(writer);
    }
    if (xml_is(event, "table-row")) office_end_row(writer);
    writer->cell_open = reader->cells > 0;
}

static void take_odt(void *context, const struct xml_event *event) {
    struct odt_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT && reader->paragraphs > 0 && reader->hidden == 0)
        office_text(&reader->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_odt_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_odt_close(reader, event);
}

enum status office_read_odt(const struct office_parts *parts, struct document_text *out,
                            struct error *e) {
    static const char break_name[] = "soft-page-break";
    const struct buffer *content;
    struct odt_reader reader = {.writer = {.out = out}};
    if (office_require(parts, "content.xml", &content, e)) return e->status;
    if (memmem(content->data, content->size, break_name, sizeof break_name - 1)) {
        reader.page = 1;
        office_page(&reader.writer, 1);
    }
    enum status status = xml_read(parts->file->name, office_span(content), take_odt, &reader, e);
    office_end_paragraph(&reader.writer);
    office_title(parts, "meta.xml", &out->title);
    buffer_free(&reader.value);
    return status;
}
