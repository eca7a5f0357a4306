/* retrieval/extract/pdf/pdf.c: PDF to text: pages are read by processes of the sandbox
 * (pdf_worker.h), those that need it by OCR, and laid out in another (page_record.h). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/ocr_presence.h"
#include "retrieval/extract/page/page_losses.h"
#include "retrieval/extract/page/page_record.h"
#include "retrieval/extract/pdf/pdf_password.h"
#include "retrieval/extract/pdf/pdf_scans.h"
#include "retrieval/extract/pdf/pdf_worker.h"

enum {
    MAX_WORKERS = 4,
    PAGES_PER_WORKER = 12, /* fewer are not worth another process */
    LAYOUT_PART = 12,      /* of the file's time one part is left for the layout */
};

struct pdf_reading {
    struct extract_file file; /* with the time by which its pages are read */
    double reserve;           /* seconds of it that are kept for the layout, once there are words */
    struct pdf_worker workers[MAX_WORKERS];
    int n_workers;
    struct pdf_facts facts;
    struct pdf_scan *pages; /* [facts.n_pages] */
    int n_done;             /* pages that wait for nothing */
    size_t n_words;
    bool is_late; /* the time for the file was over before its last page */
    struct document_text *out;
};

static int count_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The first worker tells how many pages there are; the others share them with it. */
static enum status begin_workers(struct pdf_reading *reading, struct error *e) {
    struct pdf_facts other = {0};
    size_t memory = reading->file.limits.memory;
    const int all[2] = {0, 1};
    if (pdf_worker_begin(&reading->workers[0], &reading->file, all, memory, e)) return e->status;
    reading->n_workers = 1;
    if (pdf_worker_facts(&reading->workers[0], &reading->facts, e)) return e->status;
    int n = min_int(min_int(count_processors(), MAX_WORKERS),
                    1 + reading->facts.n_pages / PAGES_PER_WORKER);
    if (n < 2) return STATUS_OK;
    pdf_worker_end(&reading->workers[0]);
    for (int i = 0; i < n; i++) {
        const int pages[2] = {i, n};
        reading->n_workers = i;
        if (pdf_worker_begin(&reading->workers[i], &reading->file, pages, memory / (size_t)n, e))
            return e->status;
        reading->n_workers = i + 1;
    }
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        status = pdf_worker_facts(&reading->workers[i], &other, e);
        buffer_clear(&other.title);
        buffer_clear(&other.bookmarks);
    }
    buffer_free(&other.title);
    buffer_free(&other.bookmarks);
    return status;
}

/* Reads a page's record for what the page lacks. */
static void judge_page(struct pdf_scan *page, int number) {
    struct pages pages = {0};
    struct error ignored;
    struct text_span bytes = {page->record.data, page->record.size};
    if (records_read(bytes, &pages, &ignored) || pages.n != 1 || pages.list[0].number != number) {
        buffer_clear(&page->record);
        buffer_append_string(&page->loss, "its reader writes nonsense");
    } else {
        struct page_verdict verdict = page_judge(&pages.list[0]);
        page->need = verdict.need;
        page->is_doubtful = !verdict.has_layer && verdict.is_doubtful;
        page->has_layer =
            page->need == PAGE_NEEDS_NOTHING && (verdict.has_layer || page->is_doubtful);
        page->n_words = pages.list[0].words.size / sizeof(struct page_word);
    }
    pages_free(&pages);
}

/* Pages that wait for OCR are done later (pdf_read_scans). */
static void tell_page(struct pdf_reading *reading, const struct pdf_scan *page) {
    bool waits = page_waits(page) && !reading->file.limits.ocr.off;
    reading->n_done += !waits;
    if (!waits) extract_tell(&reading->file, reading->n_done, reading->facts.n_pages);
}

static void take_page(struct pdf_reading *reading, int i, enum page_outcome outcome,
                      const struct error *why) {
    struct pdf_scan *page = &reading->pages[i];
    const struct extract_file *file = &reading->file;
    if (file->wanted && !file->wanted[i]) {
        buffer_clear(&page->record);
        buffer_clear(&page->loss);
        return;
    }
    if (outcome == PAGE_LOST) return;
    judge_page(page, i + 1);
    if (page->n_words > 0 && reading->reserve > 0) {
        reading->file.limits.until -= reading->reserve;
        reading->reserve = 0;
    }
    if (outcome == PAGE_HALF)
        buffer_printf(&page->loss, "its lines and pictures are not read: %s", why->text);
}

static enum status read_pages(struct pdf_reading *reading, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < reading->facts.n_pages && status == STATUS_OK; i++) {
        struct pdf_worker *worker = &reading->workers[i % reading->n_workers];
        struct pdf_scan *page = &reading->pages[i];
        struct error why = {0};
        enum page_outcome outcome;
        status = pdf_worker_page(worker, i, &page->record, &outcome, &why);
        if (status) *e = why;
        if (status == STATUS_OK && outcome == PAGE_LOST)
            buffer_append_string(&page->loss, why.text);
        take_page(reading, i, outcome, &why);
        tell_page(reading, page);
    }
    return status;
}

/* The pages' records one behind the other, and what is lost of them. */
static void gather_pages(struct pdf_reading *reading, struct buffer *records) {
    struct losses losses = {.out = reading->out};
    for (int i = 0; i < reading->facts.n_pages; i++) {
        struct pdf_scan *page = &reading->pages[i];
        buffer_append(records, page->record.data, page->record.size);
        if (page->loss.size > 0) losses_add(&losses, i + 1, page->loss.data);
        reading->n_words += page->n_words;
        buffer_free(&page->record);
        buffer_free(&page->loss);
    }
    losses_end(&losses);
}

/* No text at all: the first reason is the file's. */
static enum status refuse_empty(const struct pdf_reading *reading, const struct extract_file *whole,
                                struct error *e) {
    const struct extract_limits *limits = &whole->limits;
    if (limits->until > 0 && time_now() >= limits->until)
        return error_set(e, STATUS_INVALID, "%s: the time for all of the files is over",
                         whole->name);
    if (reading->is_late)
        return error_set(e, STATUS_INVALID, "%s: reading it takes over %d seconds", whole->name,
                         limits->seconds);
    return losses_refuse(whole->name, &reading->out->losses, e);
}

static enum status lay_out(struct pdf_reading *reading, const struct extract_file *whole,
                           struct error *e) {
    struct buffer records = {0};
    struct document_text laid = {0};
    buffer_append(&records, reading->facts.bookmarks.data, reading->facts.bookmarks.size);
    gather_pages(reading, &records);
    enum status status = reading->n_words == 0
                             ? refuse_empty(reading, whole, e)
                             : pages_lay_out_in_child(
                                   whole, (struct text_span){records.data, records.size}, &laid, e);
    buffer_append(&reading->out->text, laid.text.data, laid.text.size);
    buffer_append(&reading->out->marks, laid.marks.data, laid.marks.size);
    buffer_append(&reading->out->title, reading->facts.title.data, reading->facts.title.size);
    document_text_free(&laid);
    buffer_free(&records);
    return status;
}

static enum status read_pdf(const struct extract_file *file, struct document_text *out,
                            struct error *e) {
    struct pdf_reading reading = {.file = *file, .out = out};
    double until = time_now() + file->limits.seconds;
    if (file->limits.until == 0 || until < file->limits.until) reading.file.limits.until = until;
    reading.reserve = (double)file->limits.seconds / LAYOUT_PART;
    enum status status = begin_workers(&reading, e);
    if (status == STATUS_OK)
        reading.pages = xcalloc((size_t)reading.facts.n_pages + 1, sizeof *reading.pages);
    if (status == STATUS_OK) status = read_pages(&reading, e);
    reading.is_late = time_now() >= reading.file.limits.until;
    for (int i = 0; i < reading.n_workers; i++) pdf_worker_end(&reading.workers[i]);
    for (int i = 0; status == STATUS_OK && i < reading.facts.n_pages; i++)
        out->wants_ocr |= reading.pages[i].has_layer || page_waits(&reading.pages[i]);
    if (out->wants_ocr) out->n_languages = (uint8_t)ocr_count_ready(&file->limits.ocr);
    if (status == STATUS_OK) status = pdf_read_scans(file, reading.pages, reading.facts.n_pages, e);
    if (status == STATUS_OK) status = lay_out(&reading, file, e);
    for (int i = 0; reading.pages && i < reading.facts.n_pages; i++) {
        buffer_free(&reading.pages[i].record);
        buffer_free(&reading.pages[i].loss);
    }
    free(reading.pages);
    buffer_free(&reading.facts.title);
    buffer_free(&reading.facts.bookmarks);
    return status;
}

enum status extract_pdf(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    return pdf_read_unlocked(file, read_pdf, out, e);
}
