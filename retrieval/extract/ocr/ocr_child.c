/* retrieval/extract/ocr/ocr_child.c: reads pages by OCR, in the sandbox. See ocr_child.h. */
#include "retrieval/extract/ocr/ocr_child.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/ocr/ocr_page.h"
#include "retrieval/extract/ocr/scan_file.h"
#include "retrieval/extract/page/page_record.h"

static struct ocr_engine *engine;
static struct error missing; /* why there is none */

void ocr_child_prepare(const struct sandbox_call *call) {
    const struct ocr_child_options *options = call->options;
    struct error e = {0};
    if (options->n == 0) return;
    struct ocr_languages languages;
    enum status status = ocr_languages_parse(&languages, options->languages, &e);
    if (status == STATUS_OK) status = ocr_engine_open(&engine, &languages, NULL, &e);
    if (status == STATUS_OK) status = options->source->prepare(options->name, &e);
    if (status) missing = e;
}

/* Pieces. */

static void write_piece(int fd, enum ocr_piece_kind kind, const void *bytes, size_t size) {
    struct ocr_piece_head head = {.kind = kind, .size = (uint32_t)size};
    sandbox_write(fd, &head, sizeof head);
    sandbox_write(fd, bytes, size);
}

/* Pages. */

static enum status read_page(const struct ocr_child_options *options, void *source, int i,
                             struct page *page, struct error *e) {
    struct grey picture = {0};
    struct ocr_page_job job = {.until = ocr_clock() + options->seconds, .sample = options->sample};
    enum status status =
        options->source->read(source, i, (size_t)options->memory, &picture, &job.dpi, e);
    if (status == STATUS_OK) status = ocr_read_page(engine, &picture, &job, page, e);
    grey_free(&picture);
    if (status == STATUS_TOO_LARGE && ocr_clock() >= job.until)
        return error_set(e, status, "OCR takes over %d seconds", options->seconds);
    if (status == STATUS_OK && page->words.size == 0)
        return error_set(e, STATUS_INVALID, "OCR finds no text in its picture");
    return status;
}

static void hand_over(const struct ocr_child_options *options, void *source, int fd, int i) {
    struct page page = {.number = i + 1};
    struct buffer record = {0};
    struct error e = missing;
    if (e.status == STATUS_OK) read_page(options, source, i, &page, &e);
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
    void *source = NULL;
    struct error e = {0};
    if (options->n == 0) {
        struct ocr_count count = {.n = (uint32_t)scan_count_pages(call->input)};
        write_piece(call->output, OCR_PIECE_COUNT, &count, sizeof count);
        return;
    }
    if (missing.status == STATUS_OK &&
        options->source->open(&source, options->name, call->input, options->passwords, &e))
        missing = e;
    for (int i = 0; i < options->n; i++)
        hand_over(options, source, call->output, options->pages[i]);
    /* The process ends here: what it holds goes with it. */
}
