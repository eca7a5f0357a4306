/* retrieval/extract/office/odt.c: OpenDocument's texts and presentations, ODT and ODP: paragraphs,
 * headings, lists, tables, notes, boxes of text, slides with the speaker's notes. Text that was
 * taken out and remarks of reviewers are left out. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/office/odt_lists.h"
#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"

struct odt_reader {
    struct office_writer writer;
    struct odt_lists lists;
    struct buffer value;
    int paragraphs; /* open */
    int hidden;     /* open: remarks of reviewers, text that was taken out, numbers of pages */
    size_t page;
    bool breaks_are_pages, in_heads, is_title;
    int notes; /* of the speaker: open */
};

/* Frames that stand on every slide. */
static bool is_furniture(struct odt_reader *reader, const struct xml_event *event) {
    static const char *const classes[] = {"header", "footer", "date-time", "page-number"};
    if (!xml_attribute(event, "class", &reader->value)) return false;
    for (size_t i = 0; i < ARRAY_COUNT(classes); i++)
        if (strcmp(reader->value.data, classes[i]) == 0) return true;
    return false;
}

static bool is_hidden(const struct xml_event *event) {
    return xml_is(event, "annotation") || xml_is(event, "tracked-changes") ||
           xml_is(event, "note-citation") || xml_is(event, "page-number") ||
           xml_is(event, "desc") || xml_is(event, "page-thumbnail");
}

static bool is_paragraph(const struct xml_event *event) {
    return xml_is(event, "p") || xml_is(event, "h");
}

static int read_count(struct odt_reader *reader, const struct xml_event *event, const char *name,
                      int most) {
    int n = xml_attribute(event, name, &reader->value) ? atoi(reader->value.data) : 1;
    return max_int(1, min_int(n, most));
}

/* Paragraphs within a paragraph come behind it. */
static bool begins_box(const struct odt_reader *reader, const struct xml_event *event) {
    return xml_is(event, "note-body") || (xml_is(event, "text-box") && reader->paragraphs > 0);
}

static void open_text(struct odt_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    reader->paragraphs += is_paragraph(event);
    if (xml_is(event, "h") && writer->boxes == 0)
        writer->level = read_count(reader, event, "outline-level", MARK_LEVELS);
    if (xml_is(event, "tab")) office_text(writer, "\t");
    if (xml_is(event, "line-break")) office_text(writer, "\n");
    if (xml_is(event, "s"))
        for (int i = read_count(reader, event, "c", 100); i > 0; i--) office_text(writer, " ");
    if (xml_is(event, "soft-page-break") && reader->breaks_are_pages) {
        reader->page++;
        office_page(writer, reader->page);
    }
    if (begins_box(reader, event)) writer->boxes++;
    if (xml_is(event, "table-of-content")) writer->is_contents = true;
}

static void open_slide(struct odt_reader *reader, const struct xml_event *event) {
    if (!xml_is(event, "page") || !xml_attribute(event, "master-page-name", &reader->value)) return;
    reader->page++;
    office_page(&reader->writer, reader->page);
}

static void open_table_part(struct odt_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "table")) office_open_table(writer);
    if (xml_is(event, "table-header-rows")) reader->in_heads = true;
    if (xml_is(event, "table-row")) office_open_row(writer);
    if (!xml_is(event, "table-cell")) return;
    office_open_cell(writer);
    if (writer->tables != 1 || writer->boxes > 0) return;
    writer->cell_facts.columns =
        (uint32_t)read_count(reader, event, "number-columns-spanned", GRID_MOST_COLUMNS);
    writer->cell_facts.rows =
        (uint32_t)read_count(reader, event, "number-rows-spanned", GRID_MOST_ROWS);
    writer->cell_facts.head = reader->in_heads;
}

static void take_odt_open(struct odt_reader *reader, const struct xml_event *event) {
    bool furniture = xml_is(event, "frame") && is_furniture(reader, event);
    /* A frame is within what is hidden from its first element on. */
    reader->hidden += is_hidden(event) || (xml_is(event, "frame") && reader->hidden > 0);
    if (furniture && reader->hidden == 0) reader->hidden = 1;
    if (reader->hidden > 0) return;
    odt_take_list_style(&reader->lists, event);
    odt_take_list(&reader->lists, event);
    if (xml_is(event, "frame"))
        reader->is_title = xml_attribute(event, "class", &reader->value) &&
                           strcmp(reader->value.data, "title") == 0;
    if (xml_is(event, "notes")) reader->notes++;
    open_slide(reader, event);
    open_text(reader, event);
    open_table_part(reader, event);
}

static void close_paragraph(struct odt_reader *reader) {
    struct office_writer *writer = &reader->writer;
    reader->paragraphs--;
    if (writer->boxes == 0) {
        if (reader->is_title && reader->notes == 0 && writer->level == 0) writer->level = 1;
        if (writer->level == 0) odt_write_label(&reader->lists, &writer->label);
        if (reader->notes > 0 && writer->paragraph.size > 0 && writer->label.size == 0)
            buffer_append_string(&writer->label, "Notes: ");
    }
    bool contents = writer->is_contents;
    office_end_paragraph(writer);
    writer->is_contents = contents;
}

static void take_odt_close(struct odt_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (reader->hidden > 0) {
        reader->hidden -= is_hidden(event) || xml_is(event, "frame");
        return;
    }
    odt_take_list(&reader->lists, event);
    if (is_paragraph(event)) close_paragraph(reader);
    if (begins_box(reader, event) && writer->boxes > 0) writer->boxes--;
    if (xml_is(event, "notes")) reader->notes--;
    if (xml_is(event, "frame")) reader->is_title = false;
    if (xml_is(event, "table-of-content")) writer->is_contents = false;
    if (xml_is(event, "table-header-rows")) reader->in_heads = false;
    if (xml_is(event, "table-cell")) office_close_cell(writer);
    if (xml_is(event, "table-row")) office_close_row(writer);
    if (xml_is(event, "table")) office_close_table(writer);
}

static void take_odt(void *context, const struct xml_event *event) {
    struct odt_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT && reader->paragraphs > 0 && reader->hidden == 0)
        office_text(&reader->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_odt_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_odt_close(reader, event);
}

static void take_style_part(void *context, const struct xml_event *event) {
    odt_take_list_style(&((struct odt_reader *)context)->lists, event);
}

static enum status read_content(struct odt_reader *reader, const char *name, struct text_span xml,
                                struct error *e) {
    static const char break_name[] = "soft-page-break";
    reader->breaks_are_pages = memmem(xml.text, xml.size, break_name, sizeof break_name - 1);
    if (reader->breaks_are_pages) {
        reader->page = 1;
        office_page(&reader->writer, 1);
    }
    enum status status = xml_read(name, xml, take_odt, reader, e);
    office_end_paragraph(&reader->writer);
    return status;
}

static void odt_reader_free(struct odt_reader *reader) {
    office_writer_free(&reader->writer);
    odt_lists_free(&reader->lists);
    buffer_free(&reader->value);
}

enum status office_read_odt(const struct office_parts *parts, struct document_text *out,
                            struct error *e) {
    const struct buffer *content, *styles = office_find(parts, "styles.xml");
    struct odt_reader reader = {.writer = {.out = out}};
    struct error unreadable;
    if (office_require(parts, "content.xml", &content, e)) return e->status;
    if (styles) xml_read("styles.xml", office_span(styles), take_style_part, &reader, &unreadable);
    enum status status = read_content(&reader, parts->file->name, office_span(content), e);
    office_title(parts, "meta.xml", &out->title);
    odt_reader_free(&reader);
    return status;
}
