/* retrieval/extract/office/office.c: zips of XML: unpacking their parts, and what the formats
 * share. */
#include "retrieval/extract/office/office.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/archive/unpack.h"
#include "retrieval/extract/office/xml.h"

enum { MAX_PARTS = 20000 };

/* Some programs write names in another case than they say. */
const struct buffer *office_find(const struct office_parts *parts, const char *name) {
    const struct buffer *alike = NULL;
    for (int i = 0; i < parts->n; i++) {
        if (strcmp(parts->list[i].name, name) == 0) return &parts->list[i].bytes;
        if (alike == NULL && strcasecmp(parts->list[i].name, name) == 0)
            alike = &parts->list[i].bytes;
    }
    return alike;
}

enum status office_require(const struct office_parts *parts, const char *name,
                           const struct buffer **out, struct error *e) {
    *out = office_find(parts, name);
    if (*out) return STATUS_OK;
    if (parts->unread.status == STATUS_OK)
        return error_set(e, STATUS_INVALID, "%s: damaged: it has no %s", parts->file->name, name);
    *e = parts->unread;
    return e->status;
}

/* Pictures, fonts and films stay packed. */
static bool is_wanted(void *context, const char *member) {
    static const char *const ends[] = {".xml", ".rels", ".opf", ".xhtml", ".html", ".htm"};
    size_t size = strlen(member);
    (void)context;
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
        size_t n = strlen(ends[i]);
        if (size > n && strcasecmp(member + size - n, ends[i]) == 0) return true;
    }
    return false;
}

static void take_part(void *context, const char *member, const struct buffer *bytes,
                      const struct error *why) {
    struct office_parts *parts = context;
    if (why) {
        if (parts->unread.status == STATUS_OK) parts->unread = *why;
        return;
    }
    parts->list = xgrow(parts->list, parts->n, &parts->capacity, sizeof *parts->list);
    parts->list[parts->n] = (struct office_part){.name = xstrdup(member)};
    buffer_append(&parts->list[parts->n].bytes, bytes->data, bytes->size);
    parts->n++;
}

void office_text(struct office_writer *writer, const char *text) {
    buffer_append_string(&writer->out->text, text);
}

/* Where the paragraph's text ends; its start: it has none. */
static size_t paragraph_end(const struct office_writer *writer) {
    const struct buffer *out = &writer->out->text;
    size_t end = out->size;
    while (end > writer->start && strchr(" \t\n", out->data[end - 1])) end--;
    return end;
}

void office_page(struct office_writer *writer, size_t page) {
    writer->page = page;
    writer->page_here = paragraph_end(writer) == writer->start;
}

/* Cells of a row are apart by tabs, all else by newlines. */
static void end_part(struct office_writer *writer, const char *separator) {
    struct document_text *out = writer->out;
    size_t end = paragraph_end(writer);
    bool has_text = end > writer->start;
    if (has_text && writer->page > 0 && writer->page_here) {
        marks_add(&out->marks, MARK_PAGE, 0, writer->start, writer->page);
        writer->page = 0;
    }
    if (has_text && writer->level > 0)
        marks_add(&out->marks, MARK_HEADING, min_int(writer->level, MARK_LEVELS), writer->start,
                  end - writer->start);
    if (has_text) buffer_append_string(&out->text, separator);
    writer->start = out->text.size;
    writer->level = 0;
    writer->page_here = true;
}

void office_end_paragraph(struct office_writer *writer) {
    end_part(writer, writer->cell_open ? " " : "\n");
}

void office_end_cell(struct office_writer *writer) {
    struct buffer *out = &writer->out->text;
    if (out->size > 0 && out->data[out->size - 1] == ' ') out->size--;
    buffer_append(out, "\t", 1);
    writer->start = out->size;
}

void office_end_row(struct office_writer *writer) {
    struct buffer *out = &writer->out->text;
    while (out->size > 0 && strchr(" \t", out->data[out->size - 1])) out->size--;
    buffer_append(out, "\n", 1);
    writer->start = out->size;
}

struct title_reader {
    struct buffer *title;
    bool inside, done;
};

static void take_title(void *context, const struct xml_event *event) {
    struct title_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT && reader->inside)
        buffer_append_string(reader->title, event->text);
    if (!xml_is(event, "title")) return;
    reader->done = reader->done || event->kind == XML_EVENT_CLOSE;
    reader->inside = event->kind == XML_EVENT_OPEN && !reader->done;
}

void office_title(const struct office_parts *parts, const char *part, struct buffer *title) {
    const struct buffer *xml = office_find(parts, part);
    struct title_reader reader = {.title = title};
    struct error e;
    if (xml == NULL ||
        xml_read(part, (struct text_span){xml->data, xml->size}, take_title, &reader, &e))
        buffer_clear(title);
}

static enum status read_parts(const struct office_parts *parts, struct document_text *out,
                              struct error *e) {
    switch (parts->file->kind) {
        case DOCUMENT_DOCX: return office_read_docx(parts, out, e);
        case DOCUMENT_ODT: return office_read_odt(parts, out, e);
        case DOCUMENT_PPTX: return office_read_pptx(parts, out, e);
        case DOCUMENT_XLSX: return sheet_read_xlsx(parts, out, e);
        case DOCUMENT_ODS: return sheet_read_ods(parts, out, e);
        default: return office_read_epub(parts, out, e);
    }
}

enum status extract_office(const struct extract_file *file, struct document_text *out,
                           struct error *e) {
    struct office_parts parts = {.file = file};
    struct unpack_job job = {.name = file->name,
                             .bytes = file->bytes,
                             .limits = {.member = file->limits.bytes,
                                        .total = 4 * file->limits.bytes,
                                        .members = MAX_PARTS},
                             .choose = is_wanted,
                             .take = take_part,
                             .context = &parts};
    enum status status = unpack(&job, e);
    if (status == STATUS_OK) status = read_parts(&parts, out, e);
    for (int i = 0; i < parts.n; i++) {
        free(parts.list[i].name);
        buffer_free(&parts.list[i].bytes);
    }
    free(parts.list);
    return status;
}
