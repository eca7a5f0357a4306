/* retrieval/extract/office/pptx.c: PowerPoint's PPTX, whose slides are pages in the order in which
 * they are shown, and EPUB, whose chapters are pages of XHTML in the order of its spine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/links.h"
#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"

/* PPTX. */

/* A slide's id and its relationship's are both called id; the relationship's comes behind a number.
 */
static void take_slide_id(void *context, const struct xml_event *event) {
    struct part_list *list = context;
    if (xml_is(event, "sldId") && xml_attribute(event, "r:id", &list->id))
        part_list_add_order(list);
}

struct slide_reader {
    struct office_writer writer;
    struct buffer value;
    bool in_text;
    bool is_title, is_furniture; /* of the shape that is open */
    bool is_notes;               /* the part is that of the speaker's notes */
    int skipped;                 /* open: what stands there twice */
};

/* The purpose of a shape: those that stand on every slide are left out, and of notes all but the
 * notes. */
static void take_placeholder(struct slide_reader *reader, const struct xml_event *event) {
    static const char *const furniture[] = {"dt", "ftr", "hdr", "sldNum", "sldImg"};
    if (!xml_attribute(event, "type", &reader->value)) return;
    const char *type = reader->value.data;
    reader->is_title = strcmp(type, "title") == 0 || strcmp(type, "ctrTitle") == 0;
    for (size_t i = 0; i < ARRAY_COUNT(furniture); i++)
        if (strcmp(type, furniture[i]) == 0) reader->is_furniture = true;
}

static int read_span(struct slide_reader *reader, const struct xml_event *event, const char *name) {
    int n = xml_attribute(event, name, &reader->value) ? atoi(reader->value.data) : 1;
    return max_int(1, min_int(n, GRID_MOST_COLUMNS));
}

static bool says_yes(struct slide_reader *reader, const struct xml_event *event, const char *name) {
    return xml_attribute(event, name, &reader->value) &&
           (strcmp(reader->value.data, "1") == 0 || strcmp(reader->value.data, "true") == 0);
}

/* Cells that another one covers stand in the file, empty. */
static void open_table_part(struct slide_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    if (xml_is(event, "tbl")) office_open_table(writer);
    if (xml_is(event, "tr")) office_open_row(writer);
    if (!xml_is(event, "tc")) return;
    if (says_yes(reader, event, "hMerge") || says_yes(reader, event, "vMerge")) return;
    office_open_cell(writer);
    writer->cell_facts.columns = (uint32_t)read_span(reader, event, "gridSpan");
    writer->cell_facts.rows = (uint32_t)read_span(reader, event, "rowSpan");
}

static void take_slide_open(struct slide_reader *reader, const struct xml_event *event) {
    reader->skipped += xml_is(event, "Fallback");
    if (reader->skipped > 0) return;
    if (xml_is(event, "sp")) reader->is_title = reader->is_furniture = false;
    if (xml_is(event, "ph")) take_placeholder(reader, event);
    if (xml_is(event, "t")) reader->in_text = true;
    if (xml_is(event, "br") && !reader->is_furniture) office_text(&reader->writer, "\n");
    open_table_part(reader, event);
}

static void close_slide_paragraph(struct slide_reader *reader) {
    struct office_writer *writer = &reader->writer;
    writer->level = reader->is_title && !reader->is_notes ? 1 : 0;
    if (reader->is_notes && writer->paragraph.size > 0)
        buffer_append_string(&writer->label, "Notes: ");
    office_end_paragraph(writer);
}

static void take_slide_close(struct slide_reader *reader, const struct xml_event *event) {
    struct office_writer *writer = &reader->writer;
    reader->skipped -= xml_is(event, "Fallback");
    if (reader->skipped > 0) return;
    if (xml_is(event, "t")) reader->in_text = false;
    if (xml_is(event, "p")) close_slide_paragraph(reader);
    if (xml_is(event, "sp")) reader->is_title = reader->is_furniture = false;
    if (xml_is(event, "tc")) office_close_cell(writer);
    if (xml_is(event, "tr")) office_close_row(writer);
    if (xml_is(event, "tbl")) office_close_table(writer);
}

static void take_slide(void *context, const struct xml_event *event) {
    struct slide_reader *reader = context;
    bool shown = reader->in_text && !reader->is_furniture && reader->skipped == 0;
    if (event->kind == XML_EVENT_TEXT && shown) office_text(&reader->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_slide_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_slide_close(reader, event);
}

static bool slide_is_hidden(const struct buffer *slide) {
    const char *head = slide->data ? strstr(slide->data, ":sld ") : NULL;
    const char *end = head ? strchr(head, '>') : NULL;
    const char *hidden = head ? strstr(head, " show=\"0\"") : NULL;
    return hidden && end && hidden < end;
}

static void read_notes(struct slide_reader *reader, const struct office_parts *parts,
                       const char *slide) {
    struct part_list links = {0};
    struct buffer name = {0};
    struct error unreadable;
    int i = 0;
    const char *target = NULL;
    if (office_read_links(parts, slide, &links, &unreadable) == STATUS_OK)
        target = part_list_find_type(&links, "/notesSlide", &i);
    if (target) resolve_name(slide, target, &name);
    const struct buffer *notes = target ? office_find(parts, name.data) : NULL;
    reader->is_notes = true;
    if (notes) xml_read(name.data, office_span(notes), take_slide, reader, &unreadable);
    reader->is_notes = reader->in_text = false;
    office_end_paragraph(&reader->writer);
    buffer_free(&name);
    part_list_free(&links);
}

static void read_slides(const struct office_parts *parts, const char *show,
                        const struct part_list *slides, struct document_text *out) {
    struct buffer name = {0};
    struct error unreadable;
    struct slide_reader reader = {.writer = {.out = out}};
    for (int i = 0; i < slides->n_order; i++) {
        const char *target = part_list_find(slides, slides->order[i]);
        if (target == NULL) continue;
        resolve_name(show, target, &name);
        const struct buffer *slide = office_find(parts, name.data);
        if (slide == NULL || slide_is_hidden(slide)) {
            document_text_lose(out, "slide %d %s", i + 1,
                               slide ? "is hidden and left out" : "is not in the file");
            continue;
        }
        office_page(&reader.writer, (size_t)i + 1);
        if (xml_read(name.data, office_span(slide), take_slide, &reader, &unreadable)) {
            document_text_lose(out, "slide %d: damaged: what is behind the damage is left out",
                               i + 1);
            reader.in_text = reader.is_furniture = false;
            while (reader.writer.tables > 0) office_close_table(&reader.writer);
        }
        office_end_paragraph(&reader.writer);
        read_notes(&reader, parts, name.data);
    }
    buffer_free(&name);
    buffer_free(&reader.value);
    office_writer_free(&reader.writer);
}

enum status office_read_pptx(const struct office_parts *parts, struct document_text *out,
                             struct error *e) {
    const struct buffer *show;
    struct part_list slides = {0};
    struct buffer name = {0};
    office_main_part(parts, "ppt/presentation.xml", &name);
    enum status status = office_require(parts, name.data, &show, e);
    if (status == STATUS_OK) status = office_read_links(parts, name.data, &slides, e);
    if (status == STATUS_OK)
        status = xml_read(parts->file->name, office_span(show), take_slide_id, &slides, e);
    if (status == STATUS_OK) read_slides(parts, name.data, &slides, out);
    office_title(parts, "docProps/core.xml", &out->title);
    part_list_free(&slides);
    buffer_free(&name);
    return status;
}

/* EPUB. */

static void take_rootfile(void *context, const struct xml_event *event) {
    struct buffer *path = context;
    struct buffer value = {0};
    if (path->size == 0 && xml_is(event, "rootfile") && xml_attribute(event, "full-path", &value))
        buffer_append(path, value.data, value.size);
    buffer_free(&value);
}

static void take_package(void *context, const struct xml_event *event) {
    struct part_list *list = context;
    if (xml_is(event, "item") && xml_attribute(event, "id", &list->id) &&
        xml_attribute(event, "href", &list->name))
        part_list_add(list);
    if (xml_is(event, "itemref") && xml_attribute(event, "idref", &list->id))
        part_list_add_order(list);
}

/* Appends a chapter; one that cannot be read is left out. */
static void add_chapter(const char *name, const struct buffer *page, struct document_text *out) {
    struct document_text chapter = {0};
    struct error unreadable;
    bool is_utf8 = utf8_is_valid(page->data, page->size);
    if (memchr(page->data, '\0', page->size) == NULL &&
        extract_html(name, office_span(page), is_utf8, &chapter, &unreadable) == STATUS_OK &&
        chapter.text.size > 0) {
        if (out->text.size > 0) buffer_append(&out->text, "\n", 1);
        struct mark *marks = (struct mark *)(void *)chapter.marks.data;
        for (size_t i = 0; i < chapter.marks.size / sizeof *marks; i++) {
            size_t at = out->text.size + marks[i].at;
            if (marks[i].kind == MARK_CELL)
                marks_add_cell(&out->marks, at, marks[i].value, marks[i].column);
            else
                marks_add(&out->marks, (enum mark_kind)marks[i].kind, marks[i].level, at,
                          marks[i].value);
        }
        buffer_append(&out->text, chapter.text.data, chapter.text.size);
    }
    document_text_free(&chapter);
}

enum status office_read_epub(const struct office_parts *parts, struct document_text *out,
                             struct error *e) {
    static const char container_name[] = "META-INF/container.xml";
    const struct buffer *container, *package = NULL;
    struct buffer path = {0}, name = {0};
    struct part_list chapters = {0};
    if (office_require(parts, container_name, &container, e)) return e->status;
    enum status status =
        xml_read(parts->file->name, office_span(container), take_rootfile, &path, e);
    if (status == STATUS_OK)
        status = office_require(parts, path.size > 0 ? path.data : "package", &package, e);
    if (status == STATUS_OK)
        status = xml_read(parts->file->name, office_span(package), take_package, &chapters, e);
    for (int i = 0; i < chapters.n_order && status == STATUS_OK; i++) {
        const char *target = part_list_find(&chapters, chapters.order[i]);
        if (target == NULL) continue;
        resolve_name(path.data, target, &name);
        const struct buffer *page = office_find(parts, name.data);
        if (page && page->size > 0) add_chapter(name.data, page, out);
    }
    if (package) office_title(parts, path.data, &out->title);
    part_list_free(&chapters);
    buffer_free(&path);
    buffer_free(&name);
    return status;
}
