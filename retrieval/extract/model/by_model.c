/* retrieval/extract/model/by_model.c: a model with pictures reads the pages of a file, one by one.
 * Its Markdown is read as a file of Markdown is: headings, items, tables, code. A page that it
 * fails at is named, and read as it would be without the model. */
#include <stdlib.h>
#include <string.h>

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/model/model_page.h"
#include "retrieval/extract/page/page_losses.h"
#include "retrieval/extract/pdf/pdf_password.h"
#include "retrieval/extract/pdf/pdf_picture.h"
#include "retrieval/picture_document.h"

enum {
    DRAW_SECONDS = 20, /* that drawing a page may take */
    MOST_FAILURES = 3, /* in a row, before the model is asked no more */
    MOST_PAGES = 100000
};
/* Of the time that there is for a file, so much is the model's; the rest is left for the pages that
 * it does not read. */
static const double MODEL_SHARE = 0.66;

/* A page as the model read it. */
struct seen_page {
    struct buffer markdown; /* empty: it did not */
    char *why;              /* then: the reason, owned */
};

struct model_reading {
    const struct extract_file *file;
    struct seen_page *pages; /* [n] */
    int n, n_failed, in_a_row;
    double until; /* of the model; 0: no such time */
};

/* The failure is the page's own where it says nothing of the file or of who waits. */
static enum status fail_page(struct model_reading *reading, int i, const char *why) {
    reading->pages[i].why = xstrdup(why);
    reading->n_failed++;
    reading->in_a_row++;
    return STATUS_OK;
}

static enum status ask_page(struct model_reading *reading, int i, struct text_span picture,
                            struct error *e) {
    struct model_page page = {
        .picture = picture, .type = picture_media_type(picture), .until = reading->until};
    struct error why = {0};
    enum status status =
        model_page_read(&page, &reading->file->limits, &reading->pages[i].markdown, &why);
    if (status == STATUS_CANCELLED || status == STATUS_UNSUPPORTED)
        return error_set(e, status, "%s: %s", reading->file->name, why.text);
    if (status) return fail_page(reading, i, why.text);
    reading->in_a_row = 0;
    return STATUS_OK;
}

/* Pages of a PDF. */

static enum status draw_page(const struct extract_file *file, int i, struct pdf_picture *picture,
                             struct error *e) {
    const struct extract_limits *limits = &file->limits;
    const struct pdf_pictured pictured = {
        .name = file->name, .password = limits->passwords, .bytes = file->bytes};
    struct sandbox_limits sandbox = {.memory = limits->memory,
                                     .seconds = DRAW_SECONDS,
                                     .until = limits->until,
                                     .cancelled = limits->cancelled,
                                     .stopped = limits->stopped};
    buffer_clear(&picture->png);
    return pdf_picture_draw(picture, &pictured, i + 1, &sandbox, e);
}

/* A model that failed at the pages before is asked no more: its server may be away. */
static enum status read_page(struct model_reading *reading, int i, struct pdf_picture *picture,
                             struct error *e) {
    struct error why = {0};
    if (reading->in_a_row >= MOST_FAILURES) return fail_page(reading, i, reading->pages[i - 1].why);
    if (reading->until > 0 && time_now() >= reading->until)
        return fail_page(reading, i, "its part of the file's time is over");
    enum status status = draw_page(reading->file, i, picture, &why);
    if (status == STATUS_CANCELLED) return *e = why, status;
    if (status) return fail_page(reading, i, "its picture is not drawn");
    struct text_span png = {picture->png.data, picture->png.size};
    return ask_page(reading, i, png, e);
}

static enum status read_pages(struct model_reading *reading, struct pdf_picture *picture,
                              struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < reading->n && status == STATUS_OK; i++) {
        status = read_page(reading, i, picture, e);
        extract_tell(reading->file, i + 1, reading->n);
    }
    return status;
}

/* Putting together. */

static void add_mark(struct document_text *out, struct mark mark, size_t base) {
    mark.at += (uint32_t)base;
    buffer_append(&out->marks, &mark, sizeof mark);
}

static void begin_page(struct document_text *out) {
    if (out->text.size > 0) buffer_append(&out->text, "\n", 1);
}

/* Lines are the Markdown's and not the file's: their marks are left out. */
static void add_markdown(struct document_text *out, int number, const struct buffer *markdown) {
    struct text_span text = {markdown->data, markdown->size};
    struct buffer marks = {0};
    begin_page(out);
    size_t base = out->text.size;
    buffer_append(&out->text, text.text, text.size);
    buffer_append(&out->text, "\n", 1);
    marks_add(&out->marks, MARK_PAGE, 0, base, (size_t)number);
    document_mark(DOCUMENT_MARKDOWN, text, &marks);
    struct mark_span span = marks_of(&marks);
    for (uint32_t i = 0; i < span.n; i++) {
        struct mark mark = mark_read(span, i);
        if (mark.kind == MARK_HEADING && out->title.size == 0 && mark.level == 1)
            buffer_append(&out->title, text.text + mark.at, mark.value);
        if (mark.kind != MARK_LINE && mark.kind != MARK_NO_LINE) add_mark(out, mark, base);
    }
    buffer_free(&marks);
}

/* The page as it is read without the model; nothing where it has no text. */
static void add_plain(struct document_text *out, int number, const struct document_text *plain) {
    struct mark_span marks = marks_of(&plain->marks);
    struct text_range range;
    if (!marks_find_page(marks, plain->text.size, (uint32_t)number, &range)) return;
    begin_page(out);
    size_t base = out->text.size - range.start;
    buffer_append(&out->text, plain->text.data + range.start, range.end - range.start);
    for (uint32_t i = marks_seek(marks, range.start); i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.at >= range.end) break;
        if (mark.kind != MARK_READER) add_mark(out, mark, base);
    }
}

static void put_together(const struct model_reading *reading, const struct document_text *plain,
                         struct document_text *out) {
    struct losses losses = {.out = out};
    struct buffer line = {0};
    for (int i = 0; i < reading->n; i++) {
        const struct seen_page *page = &reading->pages[i];
        if (page->why == NULL) {
            add_markdown(out, i + 1, &page->markdown);
            continue;
        }
        buffer_clear(&line);
        buffer_printf(&line, "the model did not read it (%s); it is read without one", page->why);
        losses_add(&losses, i + 1, line.data);
        add_plain(out, i + 1, plain);
    }
    losses_end(&losses);
    buffer_append(&out->losses, plain->losses.data, plain->losses.size);
    if (plain->title.size > 0) {
        buffer_clear(&out->title);
        buffer_append(&out->title, plain->title.data, plain->title.size);
    }
    out->wants_ocr = plain->wants_ocr;
    out->n_languages = plain->n_languages;
    buffer_free(&line);
}

/* The pages that the model failed at. A file of which it read some has text whatever they hold. */
static enum status read_rest(const struct model_reading *reading, struct document_text *plain,
                             struct error *e) {
    struct extract_file rest = *reading->file;
    bool *wanted = xcalloc((size_t)reading->n + 1, sizeof *wanted);
    for (int i = 0; i < reading->n; i++) wanted[i] = reading->pages[i].why != NULL;
    rest.limits.model = NULL;
    rest.wanted = wanted;
    enum status status = document_form_of(rest.kind)->read(&rest, plain, e);
    free(wanted);
    return status == STATUS_INVALID && reading->n_failed < reading->n ? STATUS_OK : status;
}

static enum status finish(const struct model_reading *reading, struct document_text *out,
                          struct error *e) {
    struct document_text plain = {0};
    enum status status = reading->n_failed > 0 ? read_rest(reading, &plain, e) : STATUS_OK;
    if (status == STATUS_OK) put_together(reading, &plain, out);
    document_text_free(&plain);
    return status;
}

static void begin_reading(struct model_reading *reading, const struct extract_file *file, int n) {
    double now = time_now(), until = file->limits.until;
    *reading = (struct model_reading){.file = file, .n = n};
    reading->pages = xcalloc((size_t)n, sizeof *reading->pages);
    if (until > 0) reading->until = now + MODEL_SHARE * (until - now);
}

static void end_reading(struct model_reading *reading) {
    for (int i = 0; i < reading->n; i++) {
        buffer_free(&reading->pages[i].markdown);
        free(reading->pages[i].why);
    }
    free(reading->pages);
}

/* The first page's picture tells how many there are. */
static enum status read_pdf(const struct extract_file *file, struct document_text *out,
                            struct error *e) {
    struct pdf_picture picture = {0};
    struct model_reading reading;
    enum status status = draw_page(file, 0, &picture, e);
    int n = picture.n_pages;
    if (n == 0 || n > MOST_PAGES || status == STATUS_CANCELLED) {
        struct extract_file plain = *file;
        buffer_free(&picture.png);
        if (status == STATUS_CANCELLED) return status;
        plain.limits.model = NULL;
        return extract_pdf(&plain, out, e);
    }
    begin_reading(&reading, file, n);
    status = read_pages(&reading, &picture, e);
    if (status == STATUS_OK) status = finish(&reading, out, e);
    end_reading(&reading);
    buffer_free(&picture.png);
    return status;
}

/* A picture is sent as it is. Of a TIFF models know nothing. */
static enum status read_picture(const struct extract_file *file, struct document_text *out,
                                struct error *e) {
    struct model_reading reading;
    begin_reading(&reading, file, 1);
    enum status status = ask_page(&reading, 0, file->bytes, e);
    if (status == STATUS_OK) status = finish(&reading, out, e);
    end_reading(&reading);
    return status;
}

enum status extract_by_model(const struct extract_file *file, struct document_text *out,
                             struct error *e) {
    if (file->kind == DOCUMENT_PDF) return pdf_read_unlocked(file, read_pdf, out, e);
    if (picture_media_type(file->bytes)) return read_picture(file, out, e);
    struct extract_file plain = *file;
    plain.limits.model = NULL;
    return document_form_of(file->kind)->read(&plain, out, e);
}
