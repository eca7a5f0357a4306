/* retrieval/extract/pdf/pdf_scans.c: see pdf_scans.h. */
#include "retrieval/extract/pdf/pdf_scans.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/ocr_pages.h"
#include "retrieval/extract/page/page_record.h"
#include "retrieval/extract/page/vocabulary.h"
#include "retrieval/extract/pdf/pdf_library.h"

/* Of the words that are surely read, so many have to stand in a good layer. */
static const float GOOD_LAYER = 0.5F;
enum { SURE = 75, LEAST_LETTERS = 4, LEAST_WORDS = 8, TRIED_LAYERS = 3 };

struct scans {
    const struct extract_file *file;
    struct pdf_scan *pages; /* [n] */
    int n, n_done;
    int n_bad; /* layers that are not the text of their page */
};

/* Pictures of the pages. */

enum { PAGE_DPI = 300, MOST_PIXELS = 4000 };

static enum status open_pdf(void **self, const char *name, struct text_span bytes,
                            const char *passwords, struct error *e) {
    struct pdf *pdf;
    enum status status = pdf_open(&pdf, name, bytes, passwords, e);
    *self = pdf;
    return status;
}

static enum status draw_page(void *pdf, int i, size_t memory, struct grey *picture, float *dpi,
                             struct error *e) {
    struct pdf_page *page;
    struct pdf_pixels pixels = {0};
    (void)memory;
    if (pdf_page_open(pdf, i, &page, e)) return e->status;
    enum status status = pdf_page_draw(page, PAGE_DPI / 72.0F, MOST_PIXELS, &pixels, e);
    if (status == STATUS_OK) {
        *picture = (struct grey){pixels.width, pixels.height, pixels.grey};
        *dpi = pixels.per_point * 72;
    }
    pdf_page_close(page);
    return status;
}

static const struct ocr_source pdf_source = {
    .opens_files = true, .prepare = pdf_open_library, .open = open_pdf, .read = draw_page};

static void lose(struct pdf_scan *page, const char *why) {
    if (page->loss.size > 0) return;
    buffer_printf(&page->loss, "%s; %s", page_need_name(page->need), why);
}

/* The one page of a record of OCR. */
static bool read_record(struct text_span record, int number, struct pages *pages) {
    struct error ignored;
    return record.size > 0 && records_read(record, pages, &ignored) == STATUS_OK && pages->n == 1 &&
           pages->list[0].number == number && pages->list[0].words.size > 0;
}

/* Pages that need it. */

static enum status take_page(void *context, int page, struct text_span record, const char *why,
                             struct error *e) {
    struct scans *scans = context;
    struct pdf_scan *scan = &scans->pages[page];
    struct pages read = {0};
    (void)e;
    if (read_record(record, page + 1, &read)) {
        buffer_clear(&scan->record);
        buffer_append(&scan->record, record.text, record.size);
        scan->n_words = read.list[0].words.size / sizeof(struct page_word);
    } else {
        lose(scan, record.size > 0 ? "its reader writes nonsense" : why);
    }
    scans->n_done++;
    extract_tell(scans->file, scans->n_done, scans->n);
    pages_free(&read);
    return STATUS_OK;
}

/* Layers. */

/* The share of the sample's words that stand in the layer; 1 where there are too few to tell. */
static float compare_layer(const struct page *layer, const struct page *sample) {
    struct document_words vocabulary = {0};
    size_t n, known = 0, sure = 0;
    const struct page_word *words = page_words(layer, &n);
    for (size_t i = 0; i < n; i++) vocabulary_add(&vocabulary, page_word_text(layer, &words[i]));
    words = page_words(sample, &n);
    for (size_t i = 0; i < n; i++) {
        if (words[i].confidence < SURE || words[i].size < LEAST_LETTERS) continue;
        sure++;
        known += vocabulary_has(&vocabulary, page_word_text(sample, &words[i]));
    }
    vocabulary_free(&vocabulary);
    return sure < LEAST_WORDS ? 1 : (float)known / (float)sure;
}

static enum status take_sample(void *context, int page, struct text_span record, const char *why,
                               struct error *e) {
    struct scans *scans = context;
    struct pdf_scan *scan = &scans->pages[page];
    struct pages sample = {0}, layer = {0};
    struct text_span layer_record = {scan->record.data, scan->record.size};
    (void)why;
    (void)e;
    if (read_record(record, page + 1, &sample) && read_record(layer_record, page + 1, &layer) &&
        compare_layer(&layer.list[0], &sample.list[0]) < GOOD_LAYER) {
        scan->need = scan->is_doubtful ? PAGE_HAS_GIBBERISH : PAGE_HAS_BAD_LAYER;
        scans->n_bad++;
    }
    scan->has_layer = false;
    pages_free(&sample);
    pages_free(&layer);
    return STATUS_OK;
}

static int list_layers(const struct scans *scans, int *list) {
    int n = 0;
    for (int i = 0; i < scans->n; i++) {
        list[n] = i;
        n += scans->pages[i].has_layer;
    }
    return n;
}

/* The first, the middle and the last layer are tried; where one is bad, all are. */
static enum status try_layers(const struct extract_file *file, struct scans *scans, int *list,
                              struct error *e) {
    int n = list_layers(scans, list);
    if (n > TRIED_LAYERS) {
        list[1] = list[n / 2];
        list[2] = list[n - 1];
        n = TRIED_LAYERS;
    }
    struct ocr_wish wish = {.source = &pdf_source, .pages = list, .n = n, .sample = true};
    enum status status = ocr_pages_read(file, &wish, take_sample, scans, e);
    if (status || scans->n_bad == 0) return status;
    wish.n = list_layers(scans, list);
    return ocr_pages_read(file, &wish, take_sample, scans, e);
}

enum status pdf_read_scans(const struct extract_file *file, struct pdf_scan *pages, int n,
                           struct error *e) {
    struct scans scans = {.file = file, .pages = pages, .n = n};
    struct ocr_wish wish = {.source = &pdf_source};
    int *list = xcalloc((size_t)n + 1, sizeof *list);
    bool off = file->limits.ocr.off;
    enum status status = off ? STATUS_OK : try_layers(file, &scans, list, e);
    for (int i = 0; i < n; i++) {
        if (!page_waits(&pages[i])) continue;
        if (off) lose(&pages[i], "OCR is off");
        if (off) continue;
        list[wish.n] = i;
        wish.n++;
    }
    wish.pages = list;
    scans.n_done = n - wish.n;
    if (status == STATUS_OK) status = ocr_pages_read(file, &wish, take_page, &scans, e);
    free(list);
    return status;
}
