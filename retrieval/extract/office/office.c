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

static bool is_opendocument(enum document_kind kind) {
    return kind == DOCUMENT_ODT || kind == DOCUMENT_ODS || kind == DOCUMENT_ODP;
}

static enum status check_locked(const struct office_parts *parts, struct error *e) {
    static const char mark[] = "encryption-data";
    const struct buffer *manifest = office_find(parts, "META-INF/manifest.xml");
    if (!is_opendocument(parts->file->kind) || manifest == NULL ||
        memmem(manifest->data, manifest->size, mark, sizeof mark - 1) == NULL)
        return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: it is protected by a password; save it without one to have it read",
                     parts->file->name);
}

static enum status read_parts(const struct office_parts *parts, struct document_text *out,
                              struct error *e) {
    switch (parts->file->kind) {
        case DOCUMENT_DOCX: return office_read_docx(parts, out, e);
        case DOCUMENT_ODP:
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
    static const char open_content[] = "content.xml";
    bool is_flat = file->bytes.size > 0 && file->bytes.text[0] != 'P';
    enum status status = STATUS_OK;
    if (is_flat && is_opendocument(file->kind)) {
        struct buffer bytes = {.data = (char *)(uintptr_t)file->bytes.text,
                               .size = file->bytes.size};
        take_part(&parts, open_content, &bytes, NULL);
    } else {
        status = unpack(&job, e);
    }
    if (status == STATUS_OK) status = check_locked(&parts, e);
    if (status == STATUS_OK) status = read_parts(&parts, out, e);
    for (int i = 0; i < parts.n; i++) {
        free(parts.list[i].name);
        buffer_free(&parts.list[i].bytes);
    }
    free(parts.list);
    return status;
}
