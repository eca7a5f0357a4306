/* retrieval/extract/ocr/ocr_pages.c: the processes that read pages by OCR. See ocr_pages.h. */
#include "retrieval/extract/ocr/ocr_pages.h"

#include <sched.h>
#include <string.h>

#include "retrieval/extract/ocr/ocr_child.h"
#include "retrieval/extract/ocr/ocr_presence.h"
#include "retrieval/extract/ocr/ocr_worker.h"
#include "retrieval/extract/page/page_losses.h"
#include "retrieval/extract/page/page_record.h"

enum { MAX_WORKERS = 2 };

static int count_workers(int n_pages) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (n > MAX_WORKERS) n = MAX_WORKERS;
    return n < n_pages ? n : n_pages;
}

/* Why no page is read any more, once pages that came to nothing took all of the time of a file
 * that hands nothing over. */
static bool is_over(const struct extract_file *file, double lost, struct error *why) {
    const struct extract_limits *limits = &file->limits;
    if (limits->until > 0 && time_now() >= limits->until) {
        error_set(why, STATUS_INVALID, "the time for all of the files is over");
        return true;
    }
    if (lost < limits->seconds) return false;
    error_set(why, STATUS_INVALID,
              "pages before it that could not be read took the %d seconds of a file",
              limits->seconds);
    return true;
}

enum status ocr_pages_read(const struct extract_file *file, const struct ocr_wish *wish,
                           ocr_taker *take, void *context, struct error *e) {
    struct ocr_worker workers[MAX_WORKERS];
    int n = count_workers(wish->n);
    double lost = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < n; i++) {
        struct error why;
        ocr_worker_open(&workers[i], file, wish, n);
        ocr_worker_begin(&workers[i], i, &why); /* fails again where its page is asked for */
    }
    for (int i = 0; i < wish->n && status == STATUS_OK; i++) {
        struct ocr_worker *worker = &workers[i % n];
        struct text_span record = {0};
        struct error why = {0};
        double began = time_now();
        if (!is_over(file, lost, &why)) status = ocr_worker_page(worker, i, &record, &why);
        if (status == STATUS_CANCELLED) *e = why;
        if (status == STATUS_OK && record.size == 0) lost += time_now() - began;
        if (status == STATUS_OK) status = take(context, wish->pages[i], record, why.text, e);
    }
    for (int i = 0; i < n; i++) ocr_worker_close(&workers[i]);
    return status;
}

/* Files of pictures. */

struct scan_reading {
    const struct extract_file *file;
    int n, n_done; /* pages */
    struct buffer records;
    struct losses losses;
    size_t n_words;
};

static enum status take_scan(void *context, int page, struct text_span record, const char *why,
                             struct error *e) {
    struct scan_reading *reading = context;
    struct pages pages = {0};
    struct error ignored;
    (void)e;
    if (record.size == 0) {
        losses_add(&reading->losses, page + 1, why);
    } else if (records_read(record, &pages, &ignored) || pages.n != 1) {
        losses_add(&reading->losses, page + 1, "its reader writes nonsense");
    } else {
        reading->n_words += pages.list[0].words.size / sizeof(struct page_word);
        buffer_append(&reading->records, record.text, record.size);
    }
    reading->n_done++;
    extract_tell(reading->file, reading->n_done, reading->n);
    pages_free(&pages);
    return STATUS_OK;
}

static enum status list_pages(const struct extract_file *file, struct buffer *list,
                              struct error *e) {
    int n = 1;
    bool tiff = file->bytes.size >= 4 &&
                (memcmp(file->bytes.text, "II", 2) == 0 || memcmp(file->bytes.text, "MM", 2) == 0);
    if (tiff && ocr_count_pages(file, &n, e)) return e->status;
    for (int i = 0; i < n; i++) buffer_append(list, &i, sizeof i);
    return STATUS_OK;
}

enum status extract_scan(const struct extract_file *file, struct document_text *out,
                         struct error *e) {
    struct scan_reading reading = {.file = file, .losses = {.out = out}};
    struct buffer list = {0};
    if (file->limits.ocr.off)
        return error_set(e, STATUS_UNSUPPORTED, "%s: a picture, and OCR is off", file->name);
    enum status status = list_pages(file, &list, e);
    struct ocr_wish wish = {.source = &scan_source,
                            .pages = (const int *)(const void *)list.data,
                            .n = (int)(list.size / sizeof(int))};
    reading.n = wish.n;
    if (status == STATUS_OK) status = ocr_pages_read(file, &wish, take_scan, &reading, e);
    losses_end(&reading.losses);
    if (status == STATUS_OK && reading.n_words == 0)
        status = losses_refuse(file->name, &out->losses, e);
    if (status == STATUS_OK)
        status = pages_lay_out_in_child(
            file, (struct text_span){reading.records.data, reading.records.size}, out, e);
    out->n_languages = (uint8_t)ocr_count_ready(&file->limits.ocr);
    buffer_free(&reading.records);
    buffer_free(&list);
    return status;
}
