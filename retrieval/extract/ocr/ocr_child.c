/* retrieval/extract/ocr/ocr_child.c: reads pages by OCR, in the sandbox. See ocr_child.h. */
#include "retrieval/extract/ocr/ocr_child.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/ocr/ocr_page.h"
#include "retrieval/extract/ocr/scan_file.h"
#include "retrieval/extract/page/page_record.h"
#include "retrieval/extract/pdf/pdf_library.h"

/* Of the picture of a page of a PDF. */
enum { PAGE_DPI = 300, MOST_PIXELS = 4000 };

static struct ocr_engine *engine;
static struct error missing; /* why there is none */

static bool is_pdf(const struct ocr_child_options *options) {
    return options->kind == DOCUMENT_PDF;
}

void ocr_child_prepare(const struct sandbox_call *call) {
    const struct ocr_child_options *options = call->options;
    struct error e = {0};
    if (options->n == 0) return;
    struct ocr_languages languages;
    enum status status = ocr_languages_parse(&languages, options->languages, &e);
    if (status == STATUS_OK) status = ocr_engine_open(&engine, &languages, NULL, &e);
    if (status == STATUS_OK)
        status = is_pdf(options) ? pdf_open_library(options->name, &e) : scan_open_library(&e);
    if (status) missing = e;
}

/* Pieces. */

static void write_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1); /* nobody reads any more */
        at += n;
        size -= (size_t)n;
    }
}

static void write_piece(int fd, enum ocr_piece_kind kind, const void *bytes, size_t size) {
    struct ocr_piece_head head = {.kind = kind, .size = (uint32_t)size};
    write_all(fd, &head, sizeof head);
    write_all(fd, bytes, size);
}

/* Pages. */

struct ocr_source {
    const struct ocr_child_options *options;
    struct text_span file;
    struct pdf *pdf; /* NULL: a file of pictures */
};

static enum status draw_page(const struct ocr_source *source, int i, struct grey *picture,
                             float *dpi, struct error *e) {
    struct pdf_page *page;
    struct pdf_pixels pixels = {0};
    if (pdf_page_open(source->pdf, i, &page, e)) return e->status;
    enum status status = pdf_page_draw(page, PAGE_DPI / 72.0F, MOST_PIXELS, &pixels, e);
    if (status == STATUS_OK) {
        *picture = (struct grey){pixels.width, pixels.height, pixels.grey};
        *dpi = pixels.per_point * 72;
    }
    pdf_page_close(page);
    return status;
}

static enum status read_page(const struct ocr_source *source, int i, struct page *page,
                             struct error *e) {
    const struct ocr_child_options *options = source->options;
    struct grey picture = {0};
    struct ocr_page_job job = {.until = ocr_clock() + options->seconds, .sample = options->sample};
    enum status status = source->pdf ? draw_page(source, i, &picture, &job.dpi, e)
                                     : scan_read_page(source->file, i, (size_t)options->memory,
                                                      &picture, &job.dpi, e);
    if (status == STATUS_OK) status = ocr_read_page(engine, &picture, &job, page, e);
    grey_free(&picture);
    if (status == STATUS_TOO_LARGE && ocr_clock() >= job.until)
        return error_set(e, status, "OCR takes over %d seconds", options->seconds);
    if (status == STATUS_OK && page->words.size == 0)
        return error_set(e, STATUS_INVALID, "OCR finds no text in its picture");
    return status;
}

static void hand_over(const struct ocr_source *source, int fd, int i) {
    struct page page = {.number = i + 1};
    struct buffer record = {0};
    struct error e = missing;
    if (e.status == STATUS_OK) read_page(source, i, &page, &e);
    if (e.status == STATUS_OK) record_add_page(&record, &page);
    if (e.status == STATUS_OK)
        write_piece(fd, OCR_PIECE_PAGE, record.data, record.size);
    else
        write_piece(fd, OCR_PIECE_LOST, e.text, strlen(e.text));
    page_free(&page);
    buffer_free(&record);
}

void ocr_child_work(const struct sandbox_call *call) {
    const struct ocr_child_options *options = call->options;
    struct ocr_source source = {.options = options, .file = call->input};
    if (options->n == 0) {
        struct ocr_count count = {.n = (uint32_t)scan_count_pages(call->input)};
        write_piece(call->output, OCR_PIECE_COUNT, &count, sizeof count);
        return;
    }
    if (missing.status == STATUS_OK && is_pdf(options)) {
        struct error e = {0};
        if (pdf_open(&source.pdf, options->name, call->input, &e)) missing = e;
    }
    for (int i = 0; i < options->n; i++) hand_over(&source, call->output, options->pages[i]);
    /* The process ends here: what it holds goes with it. */
}
