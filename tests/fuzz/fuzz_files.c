/* tests/fuzz/fuzz_files.c: any bytes as the parts of office documents, as tables, lines of JSON,
 * e-mail, and texts with headings: the marks of what comes out are sound, and a place can be looked
 * up at every byte. Parts of one document lie behind each other, a byte 0xff between them. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/office/office.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef enum status office_reader(const struct office_parts *parts, struct document_text *out,
                                  struct error *e);

static void check_marks(const struct document_text *d) {
    struct text_span text = {d->text.data, d->text.size};
    struct mark_span marks = marks_of(&d->marks);
    CHECK(marks_fault(marks, text.size) == NULL);
    for (size_t at = 0; at <= text.size; at += 1 + text.size / 64) {
        struct document_place place = place_find(marks, text, at);
        for (int i = 0; i < place.n_headings; i++)
            CHECK(place.headings[i].text + place.headings[i].size <= text.text + text.size);
    }
}

static void read_office(office_reader *read, const char *const *names, int n,
                        struct text_span input) {
    struct extract_file file = {.name = "file"};
    struct office_part list[4] = {{0}};
    struct office_parts parts = {.file = &file, .list = list};
    struct document_text d = {0};
    struct error e = {0};
    while (parts.n < n) {
        const char *end = memchr(input.text, 0xff, input.size);
        size_t size = end && parts.n + 1 < n ? (size_t)(end - input.text) : input.size;
        list[parts.n].name = xstrdup(names[parts.n]);
        buffer_append(&list[parts.n].bytes, input.text, size);
        parts.n++;
        size_t skip = size < input.size ? size + 1 : size;
        input = (struct text_span){input.text + skip, input.size - skip};
    }
    enum status status = read(&parts, &d, &e);
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    check_marks(&d);
    document_text_free(&d);
    for (int i = 0; i < n; i++) {
        free(list[i].name);
        buffer_free(&list[i].bytes);
    }
}

/* The documents go nowhere. */
static void read_records(enum document_kind kind, struct text_span input) {
    static struct child_writer writer = {.fd = -1};
    struct error e = {0};
    if (writer.fd < 0) writer.fd = open("/dev/null", O_WRONLY);
    struct extract_file f = {
        .name = "file", .bytes = input, .kind = kind, .limits = extract_limits_of((size_t)1 << 20)};
    bool is_mail = kind == DOCUMENT_EML || kind == DOCUMENT_MBOX;
    enum status status = is_mail ? extract_mail(&f, &writer, &e) : extract_records(&f, &writer, &e);
    CHECK(status == STATUS_OK || e.text[0] != '\0');
}

static void read_headings(enum document_kind kind, struct text_span input) {
    struct document_text d = {0};
    buffer_append(&d.text, input.text, input.size);
    document_mark(kind, input, &d.marks);
    check_marks(&d);
    document_text_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const docx[] = {"word/document.xml", "word/styles.xml", "docProps/core.xml"};
    static const char *const odt[] = {"content.xml", "meta.xml"};
    static const char *const pptx[] = {"ppt/presentation.xml", "ppt/_rels/presentation.xml.rels",
                                       "ppt/slides/slide1.xml"};
    static const char *const epub[] = {"META-INF/container.xml", "a/b.opf", "a/c.xhtml"};
    if (size < 1) return 0;
    struct text_span input = {(const char *)data + 1, size - 1};
    switch (data[0] % 11) {
        case 0: read_office(office_read_docx, docx, 3, input); break;
        case 1: read_office(office_read_odt, odt, 2, input); break;
        case 2: read_office(office_read_pptx, pptx, 3, input); break;
        case 3: read_office(office_read_epub, epub, 3, input); break;
        case 4: read_records(DOCUMENT_CSV, input); break;
        case 5: read_records(DOCUMENT_TSV, input); break;
        case 6: read_records(DOCUMENT_JSONL, input); break;
        case 7: read_headings(DOCUMENT_MARKDOWN, input); break;
        case 8: read_headings(DOCUMENT_RST, input); break;
        case 9: read_records(DOCUMENT_EML, input); break;
        case 10: read_records(DOCUMENT_MBOX, input); break;
        default: break;
    }
    return 0;
}
