/* retrieval/extract/office/pdf_pages.c: the pages of a PDF as pictures, by the program pdftoppm of
 * Poppler, which prints one PNG behind the other. */
#include <string.h>

#include "retrieval/extract/extract_private.h"
#include "retrieval/picture_document.h"

/* A PNG is its signature, then chunks: four bytes of length, four of type, the data, four of
 * checksum. */
enum { PNG_SIGNATURE = 8, PNG_CHUNK = 12 };

static uint32_t read_length(const char *bytes) {
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Bytes of the PNG that begins the span; 0: none does. */
static size_t measure_png(struct text_span bytes) {
    size_t at = PNG_SIGNATURE;
    const char *type = picture_media_type(bytes);
    if (type == NULL || strcmp(type, "image/png") != 0) return 0;
    while (at + PNG_CHUNK <= bytes.size) {
        size_t length = read_length(bytes.text + at);
        bool ends = memcmp(bytes.text + at + 4, "IEND", 4) == 0;
        if (length > bytes.size - at - PNG_CHUNK) return 0;
        at += PNG_CHUNK + length;
        if (ends) return at;
    }
    return 0;
}

static enum status take_page(const struct extract_file *file, struct text_span png, size_t page,
                             const struct document_taker *taker, struct error *e) {
    struct document_text text = {0};
    struct buffer part = {0};
    extract_caption(&text.title, file->name);
    buffer_printf(&text.title, ", page %zu", page);
    buffer_printf(&part, "#page=%zu", page);
    enum status status = picture_document_write(
        &text.text, png, (struct text_span){text.title.data, text.title.size}, e);
    marks_add(&text.marks, MARK_PAGE, 0, 0, page);
    reader_sign_as(&text, READER_PICTURE);
    if (status == STATUS_OK) status = taker->take(taker->context, part.data, &text, e);
    buffer_free(&part);
    document_text_free(&text);
    return status;
}

static enum status take_pages(const struct extract_file *file, struct text_span printed,
                              const struct document_taker *taker, struct error *e) {
    for (size_t page = 1; printed.size > 0; page++) {
        size_t size = measure_png(printed);
        if (size == 0)
            return error_set(e, STATUS_INVALID, "%s: pdftoppm prints no PNG for page %zu",
                             file->name, page);
        if (take_page(file, (struct text_span){printed.text, size}, page, taker, e))
            return e->status;
        printed.text += size;
        printed.size -= size;
    }
    return STATUS_OK;
}

enum status extract_pdf_pages(const struct extract_file *file, const struct document_taker *taker,
                              struct error *e) {
    char *argv[] = {(char[]){"pdftoppm"},
                    (char[]){"-png"},
                    (char[]){"-scale-to"},
                    (char[]){"1024"},
                    (char[]){"-q"},
                    (char[]){"-"},
                    NULL};
    struct child_program program = {.argv = argv, .package = "poppler-utils", .input = file->bytes};
    struct buffer printed = {0};
    enum status status = child_run_program(file, &program, &printed, e);
    if (status == STATUS_OK)
        status = take_pages(file, (struct text_span){printed.data, printed.size}, taker, e);
    buffer_free(&printed);
    return status;
}
