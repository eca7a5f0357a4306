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
    bool in_text;
    bool is_title; /* of the shape that is open */
    int cells;
};

static void take_slide(void *context, const struct xml_event *event) {
    struct slide_reader *reader = context;
    struct office_writer *writer = &reader->writer;
    bool opens = event->kind == XML_EVENT_OPEN, closes = event->kind == XML_EVENT_CLOSE;
    if (event->kind == XML_EVENT_TEXT && reader->in_text) office_text(writer, event->text);
    if (xml_is(event, "sp")) reader->is_title = false;
    if (xml_is(event, "ph") && opens)
        reader->is_title =
            xml_attribute_is(event, "type", "title") || xml_attribute_is(event, "type", "ctrTitle");
    if (xml_is(event, "t")) reader->in_text = opens;
    if (xml_is(event, "br") && opens) office_text(writer, "\n");
    if (xml_is(event, "tc")) reader->cells += opens ? 1 : -1;
    writer->cell_open = reader->cells > 0;
    if (xml_is(event, "p") && closes) {
        writer->level = reader->is_title ? 1 : 0;
        office_end_paragraph(writer);
    }
    if (xml_is(event, "tc") && closes) office_end_cell(writer);
    if (xml_is(event, "tr") && closes) office_end_row(writer);
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
        office_page(&reader.writer, (size_t)i + 1);
        if (slide && xml_read(name.data, office_span(slide), take_slide, &reader, &unreadable))
            reader.in_text = false;
        office_end_paragraph(&reader.writer);
    }
    buffer_free(&name);
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
        for (size_t i = 0; i < chapter.marks.size / sizeof *marks; i++)
            marks_add(&out->marks, (enum mark_kind)marks[i].kind, marks[i].level,
                      out->text.size + marks[i].at, marks[i].value);
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
