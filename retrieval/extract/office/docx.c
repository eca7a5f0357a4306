/* retrieval/extract/office/docx.c: Word's DOCX and OpenDocument's ODT: paragraphs, headings, tables as rows with tabs,
 * and the pages where the program that wrote the file noted its page breaks. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"

/* Styles of DOCX: which of them are headings. Their ids are of the writer's language, their names are English. */

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
    struct docx_reader *r = context;
    if (xml_is(event, "style") && event->kind == XML_EVENT_OPEN) {
        r->style = (struct docx_style){.level = 0};
        if (xml_attribute(event, "styleId", &r->value) && r->value.size < sizeof r->style.id)
            memcpy(r->style.id, r->value.data, r->value.size + 1);
    } else if (xml_is(event, "style") && r->style.level > 0 && r->style.id[0]) {
        r->styles = xgrow(r->styles, r->n_styles, &r->styles_capacity, sizeof *r->styles);
        r->styles[r->n_styles] = r->style;
        r->n_styles++;
    } else if (xml_is(event, "name") && xml_attribute(event, "val", &r->value)) {
        const char *name = r->value.data;
        if (strncasecmp(name, "heading ", 8) == 0 && name[8] >= '1' && name[8] <= '9') r->style.level = name[8] - '0';
        if (strcasecmp(name, "title") == 0) r->style.level = 1;
    } else if (xml_is(event, "outlineLvl") && xml_attribute(event, "val", &r->value)) {
        if (r->value.data[0] >= '0' && r->value.data[0] <= '8') r->style.level = r->value.data[0] - '0' + 1;
    }
}

static int style_level(const struct docx_reader *r) {
    for (int i = 0; i < r->n_styles; i++)
        if (strcmp(r->styles[i].id, r->value.data) == 0) return r->styles[i].level;
    return 0;
}

static void take_docx_open(struct docx_reader *r, const struct xml_event *event) {
    struct office_writer *w = &r->writer;
    if (xml_is(event, "t")) r->in_text = true;
    if (xml_is(event, "tab")) office_text(w, "\t");
    if (xml_is(event, "noBreakHyphen")) office_text(w, "-");
    if (xml_is(event, "tc")) r->cells++;
    if (xml_is(event, "pStyle") && xml_attribute(event, "val", &r->value)) w->level = style_level(r);
    if (xml_is(event, "outlineLvl") && xml_attribute(event, "val", &r->value) && r->value.data[0] >= '0' &&
        r->value.data[0] <= '8')
        w->level = r->value.data[0] - '0' + 1;
    if (xml_is(event, "lastRenderedPageBreak")) {
        r->page++;
        office_page(w, r->page);
    }
    if (xml_is(event, "br")) office_text(w, "\n");
    w->cell_open = r->cells > 0;
}

static void take_docx_close(struct docx_reader *r, const struct xml_event *event) {
    struct office_writer *w = &r->writer;
    if (xml_is(event, "t")) r->in_text = false;
    if (xml_is(event, "p")) office_end_paragraph(w);
    if (xml_is(event, "tc")) {
        r->cells--;
        office_end_cell(w);
    }
    if (xml_is(event, "tr")) office_end_row(w);
    w->cell_open = r->cells > 0;
}

static void take_docx(void *context, const struct xml_event *event) {
    struct docx_reader *r = context;
    if (event->kind == XML_EVENT_TEXT && r->in_text) office_text(&r->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_docx_open(r, event);
    if (event->kind == XML_EVENT_CLOSE) take_docx_close(r, event);
}

enum status office_read_docx(const struct office_parts *parts, struct document_text *out, struct error *e) {
    static const char break_name[] = "lastRenderedPageBreak";
    const struct buffer *document, *styles = office_find(parts, "word/styles.xml");
    struct docx_reader r = {.writer = {.out = out}};
    struct error unreadable;
    if (office_require(parts, "word/document.xml", &document, e)) return e->status;
    if (styles) xml_read("word/styles.xml", office_span(styles), take_style, &r, &unreadable);
    /* A file in which no break is noted has pages that nobody knows. */
    if (memmem(document->data, document->size, break_name, sizeof break_name - 1)) {
        r.page = 1;
        office_page(&r.writer, 1);
    }
    enum status status = xml_read(parts->file->name, office_span(document), take_docx, &r, e);
    office_end_paragraph(&r.writer);
    office_title(parts, "docProps/core.xml", &out->title);
    free(r.styles);
    buffer_free(&r.value);
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

static bool is_paragraph(const struct xml_event *event) { return xml_is(event, "p") || xml_is(event, "h"); }

static int read_count(const struct xml_event *event, const char *name, struct buffer *value, int most) {
    int n = xml_attribute(event, name, value) ? atoi(value->data) : 1;
    return max_int(1, min_int(n, most));
}

static void take_odt_open(struct odt_reader *r, const struct xml_event *event) {
    struct office_writer *w = &r->writer;
    r->hidden += is_hidden(event);
    if (r->hidden) return;
    r->paragraphs += is_paragraph(event);
    if (xml_is(event, "h")) w->level = read_count(event, "outline-level", &r->value, MARK_LEVELS);
    if (xml_is(event, "tab")) office_text(w, "\t");
    if (xml_is(event, "line-break")) office_text(w, "\n");
    if (xml_is(event, "s"))
        for (int i = read_count(event, "c", &r->value, 100); i > 0; i--) office_text(w, " ");
    if (xml_is(event, "soft-page-break")) {
        r->page++;
        office_page(w, r->page);
    }
    if (xml_is(event, "table-cell")) r->cells++;
    w->cell_open = r->cells > 0;
}

static void take_odt_close(struct odt_reader *r, const struct xml_event *event) {
    struct office_writer *w = &r->writer;
    r->hidden -= is_hidden(event);
    if (r->hidden) return;
    r->paragraphs -= is_paragraph(event);
    if (is_paragraph(event)) office_end_paragraph(w);
    if (xml_is(event, "table-cell")) {
        r->cells--;
        office_end_cell(w);
    }
    if (xml_is(event, "table-row")) office_end_row(w);
    w->cell_open = r->cells > 0;
}

static void take_odt(void *context, const struct xml_event *event) {
    struct odt_reader *r = context;
    if (event->kind == XML_EVENT_TEXT && r->paragraphs > 0 && r->hidden == 0) office_text(&r->writer, event->text);
    if (event->kind == XML_EVENT_OPEN) take_odt_open(r, event);
    if (event->kind == XML_EVENT_CLOSE) take_odt_close(r, event);
}

enum status office_read_odt(const struct office_parts *parts, struct document_text *out, struct error *e) {
    static const char break_name[] = "soft-page-break";
    const struct buffer *content;
    struct odt_reader r = {.writer = {.out = out}};
    if (office_require(parts, "content.xml", &content, e)) return e->status;
    if (memmem(content->data, content->size, break_name, sizeof break_name - 1)) {
        r.page = 1;
        office_page(&r.writer, 1);
    }
    enum status status = xml_read(parts->file->name, office_span(content), take_odt, &r, e);
    office_end_paragraph(&r.writer);
    office_title(parts, "meta.xml", &out->title);
    buffer_free(&r.value);
    return status;
}
