/* retrieval/extract/office/pdf.c: PDF, by the program pdftotext of Poppler. It puts a form feed
 * behind each page. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

/* Pages become paragraphs, and a mark each; empty ones count. */
static void take_pages(const struct buffer *printed, struct document_text *out) {
    const char *at = printed->data, *end = printed->data + printed->size;
    for (size_t page = 1; at < end; page++) {
        const char *feed = memchr(at, '\f', (size_t)(end - at)), *next = feed ? feed + 1 : end;
        size_t size = (size_t)((feed ? feed : end) - at);
        while (size > 0 && strchr(" \n", at[size - 1])) size--;
        if (size > 0 && out->text.size > 0) buffer_append(&out->text, "\n", 1);
        if (size > 0) marks_add(&out->marks, MARK_PAGE, 0, out->text.size, page);
        buffer_append(&out->text, at, size);
        if (size > 0) buffer_append(&out->text, "\n", 1);
        at = next;
    }
}

enum status extract_pdf(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    char *argv[] = {(char[]){"pdftotext"}, (char[]){"-enc"}, (char[]){"UTF-8"},
                    (char[]){"-eol"},      (char[]){"unix"}, (char[]){"-q"},
                    (char[]){"-"},         (char[]){"-"},    NULL};
    struct child_program program = {.argv = argv, .package = "poppler-utils", .input = file->bytes};
    struct buffer printed = {0};
    enum status status = child_run_program(file, &program, &printed, e);
    if (status == STATUS_OK && memchr(printed.data ? printed.data : "", '\0', printed.size))
        status = error_set(e, STATUS_INVALID, "%s: pdftotext prints a NUL", file->name);
    if (status == STATUS_OK) {
        if (!utf8_is_valid(printed.data ? printed.data : "", printed.size))
            extract_repair(&printed);
        if (printed.size > 0) take_pages(&printed, out);
        if (out->text.size == 0)
            status = error_set(e, STATUS_INVALID,
                               "%s: no text in it: its pages may be pictures, which need OCR",
                               file->name);
    }
    buffer_free(&printed);
    return status;
}
