/* retrieval/extract/pdf/pdf.c: PDF to text: pages are read by processes of the sandbox
 * (pdf_worker.h), those that need it by OCR, and laid out in another (page_record.h). */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "retrieval/extract/page/page_needs.h"
#include "retrieval/extract/page/page_record.h"
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
    struct buffer records; /* of the pages, in order */
    size_t n_words;
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

/* Pages that are lost for one reason are named in one line. */
struct losses {
    struct document_text *out;
    int first, last; /* pages, from 1; 0: none */
    char reason[1100];
};

static void losses_end(struct losses *losses) {
    if (losses->first == 0) return;
    if (losses->first == losses->last)
        document_text_lose(losses->out, "page %d: %s", losses->first, losses->reason);
    else
        document_text_lose(losses->out, "pages %d to %d: %s", losses->first, losses->last,
                           losses->reason);
    losses->first = 0;
}

static void lose_page(struct losses *losses, int page, const char *reason) {
    bool same =
        losses->first > 0 && losses->last == page - 1 && strcmp(losses->reason, reason) == 0;
    if (!same) losses_end(losses);
    if (!same) losses->first = page;
    losses->last = page;
    memcpy(losses->reason, reason, strnlen(reason, sizeof losses->reason - 1) + 1);
}

/* Reads a page's record for what the page lacks. */
static void judge_page(struct pdf_reading *reading, size_t record, int page,
                       struct losses *losses) {
    struct pages pages = {0};
    struct error ignored;
    struct text_span bytes = {reading->records.data + record, reading->records.size - record};
    if (records_read(bytes, &pages, &ignored) || pages.n != 1) {
        reading->records.size = record;
        lose_page(losses, page, "its reader writes nonsense");
    } else {
        char reason[200];
        enum page_need need = page_needs_ocr(&pages.list[0]);
        snprintf(reason, sizeof reason, "%s; OCR is not installed", page_need_name(need));
        reading->n_words += pages.list[0].words.size / sizeof(struct page_word);
        if (need > PAGE_IS_EMPTY) lose_page(losses, page, reason);
    }
    if (reading->n_words > 0 && reading->reserve > 0) {
        reading->file.limits.until -= reading->reserve;
        reading->reserve = 0;
    }
    pages_free(&pages);
}

static enum status read_pages(struct pdf_reading *reading, struct error *e) {
    struct losses losses = {.out = reading->out};
    enum status status = STATUS_OK;
    for (int i = 0; i < reading->facts.n_pages && status == STATUS_OK; i++) {
        struct pdf_worker *worker = &reading->workers[i % reading->n_workers];
        struct error why = {0};
        enum page_outcome outcome;
        size_t record = reading->records.size;
        status = pdf_worker_page(worker, i, &reading->records, &outcome, &why);
        if (status) *e = why;
        if (status == STATUS_OK && outcome == PAGE_LOST) lose_page(&losses, i + 1, why.text);
        if (outcome == PAGE_LOST) continue;
        judge_page(reading, record, i + 1, &losses);
        char reason[1100];
        snprintf(reason, sizeof reason, "its lines and pictures are not read: %s", why.text);
        if (outcome == PAGE_HALF) lose_page(&losses, i + 1, reason);
    }
    losses_end(&losses);
    return status;
}

/* No text at all: the first reason is the file's. */
static enum status refuse_empty(const struct pdf_reading *reading, const struct extract_file *whole,
                                struct error *e) {
    const struct extract_limits *limits = &whole->limits;
    if (limits->until > 0 && time_now() >= limits->until)
        return error_set(e, STATUS_INVALID, "%s: the time for all of the files is over",
                         whole->name);
    if (time_now() >= reading->file.limits.until)
        return error_set(e, STATUS_INVALID, "%s: reading it takes over %d seconds", whole->name,
                         limits->seconds);
    const struct buffer *losses = &reading->out->losses;
    int first = losses->size > 0 ? (int)strcspn(losses->data, "\n") : 0;
    bool more = losses->size > (size_t)first + 1;
    if (first == 0)
        return error_set(e, STATUS_INVALID, "%s: no text in it: nothing is on its pages",
                         reading->file.name);
    return error_set(e, STATUS_INVALID, "%s: no text in it: %.*s%s", reading->file.name, first,
                     losses->data, more ? ", and more" : "");
}

static enum status lay_out(struct pdf_reading *reading, const struct extract_file *whole,
                           struct error *e) {
    struct buffer records = {0};
    struct document_text laid = {0};
    if (reading->n_words == 0) return refuse_empty(reading, whole, e);
    buffer_append(&records, reading->facts.bookmarks.data, reading->facts.bookmarks.size);
    buffer_append(&records, reading->records.data, reading->records.size);
    enum status status =
        pages_lay_out_in_child(whole, (struct text_span){records.data, records.size}, &laid, e);
    buffer_append(&reading->out->text, laid.text.data, laid.text.size);
    buffer_append(&reading->out->marks, laid.marks.data, laid.marks.size);
    buffer_append(&reading->out->title, reading->facts.title.data, reading->facts.title.size);
    document_text_free(&laid);
    buffer_free(&records);
    return status;
}

enum status extract_pdf(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    struct pdf_reading reading = {.file = *file, .out = out};
    double until = time_now() + file->limits.seconds;
    if (file->limits.until == 0 || until < file->limits.until) reading.file.limits.until = until;
    reading.reserve = (double)file->limits.seconds / LAYOUT_PART;
    enum status status = begin_workers(&reading, e);
    if (status == STATUS_OK) status = read_pages(&reading, e);
    for (int i = 0; i < reading.n_workers; i++) pdf_worker_end(&reading.workers[i]);
    if (status == STATUS_OK) status = lay_out(&reading, file, e);
    buffer_free(&reading.facts.title);
    buffer_free(&reading.facts.bookmarks);
    buffer_free(&reading.records);
    return status;
}
