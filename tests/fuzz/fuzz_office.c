/* tests/fuzz/fuzz_office.c: bytes as the parts of an office document, as XML or as a notebook. The
 * first byte chooses; the rest, cut at zero bytes, is the document, its styles, numbers of lists
 * and notes. The text that comes out is valid, and its marks lead into it. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/office.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char show[] = "<p:presentation xmlns:r='r'><p:sldId r:id='s'/></p:presentation>";
static const char links[] =
    "<Relationships><Relationship Id='s' Type='x/slide' Target='slide.xml'/></Relationships>";
static const char beside[] =
    "<Relationships><Relationship Id='a' Type='x/notesSlide' Target='notes.xml'/></Relationships>";

static void add_part(struct office_parts *parts, const char *name, const char *text, size_t size) {
    parts->list = xgrow(parts->list, parts->n, &parts->capacity, sizeof *parts->list);
    parts->list[parts->n] = (struct office_part){.name = xstrdup(name)};
    buffer_append(&parts->list[parts->n].bytes, text, size);
    buffer_append(&parts->list[parts->n].bytes, "", 0);
    parts->n++;
}

static void add_parts(struct office_parts *parts, const char *text, size_t size) {
    static const char *const names[] = {"word/document.xml", "word/styles.xml",
                                        "word/numbering.xml", "word/footnotes.xml"};
    add_part(parts, "content.xml", text, strnlen(text, size));
    add_part(parts, "ppt/slide.xml", text, strnlen(text, size));
    add_part(parts, "ppt/notes.xml", text, strnlen(text, size));
    add_part(parts, "ppt/presentation.xml", show, sizeof show - 1);
    add_part(parts, "ppt/_rels/presentation.xml.rels", links, sizeof links - 1);
    add_part(parts, "ppt/_rels/slide.xml.rels", beside, sizeof beside - 1);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        size_t n = strnlen(text, size);
        add_part(parts, names[i], text, n);
        n += n < size;
        text += n;
        size -= n;
    }
}

static enum status read_chosen(uint8_t choice, const struct office_parts *parts,
                               struct document_text *out, struct error *e) {
    switch (choice % 5) {
        case 0: return office_read_docx(parts, out, e);
        case 1: return office_read_odt(parts, out, e);
        case 2: return office_read_pptx(parts, out, e);
        case 3: return extract_xml(parts->file, out, e);
        default: return extract_notebook(parts->file, out, e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    struct extract_file file = {.name = "office",
                                .bytes = {(const char *)data + 1, size - 1},
                                .limits = {.bytes = 1 << 24}};
    struct office_parts parts = {.file = &file};
    struct document_text out = {0};
    struct error e = {0};
    add_parts(&parts, (const char *)data + 1, size - 1);
    enum status status = read_chosen(data[0], &parts, &out, &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    CHECK(out.text.size == 0 || utf8_is_valid(out.text.data, out.text.size));
    CHECK(marks_fault(marks_of(&out.marks), out.text.size) == NULL);
    document_text_free(&out);
    for (int i = 0; i < parts.n; i++) {
        free(parts.list[i].name);
        buffer_free(&parts.list[i].bytes);
    }
    free(parts.list);
    return 0;
}
