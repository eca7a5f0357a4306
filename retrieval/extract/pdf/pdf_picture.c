/* retrieval/extract/pdf/pdf_picture.c: see pdf_picture.h. The process writes a head, then the
 * picture or the words of an error. */
#include "retrieval/extract/pdf/pdf_picture.h"

#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract.h"
#include "retrieval/extract/pdf/pdf_library.h"
#include "retrieval/picture_document.h"

enum { PICTURE_DPI = 144, MOST_BYTES = 16 << 20 };

struct picture_head {
    uint32_t status; /* enum status */
    uint32_t n_pages;
    uint64_t size; /* bytes that follow */
};

struct picture_options {
    int32_t number; /* of the page, from 1 */
    char password[EXTRACT_PASSWORD_BYTES];
    char name[SANDBOX_OPTIONS_BYTES - sizeof(int32_t) - EXTRACT_PASSWORD_BYTES];
};

/* In the process. */

static struct error missing; /* why the library is not there */

static void prepare(const struct sandbox_call *call) {
    const struct picture_options *options = call->options;
    pdf_open_library(options->name, &missing);
}

static enum status print_page(struct pdf *pdf, const struct picture_options *options,
                              struct buffer *png, struct error *e) {
    struct pdf_page *page;
    struct error why;
    int n = pdf_page_count(pdf), number = options->number;
    if (number > n)
        return error_set(e, STATUS_NOT_FOUND, "%s has %d page%s", options->name, n,
                         n == 1 ? "" : "s");
    enum status status = pdf_page_open(pdf, number - 1, &page, &why);
    if (status == STATUS_OK) {
        status = pdf_page_print(page, PICTURE_DPI / 72.0F, PDF_PICTURE_SIDE, png, &why);
        pdf_page_close(page);
    }
    if (status) error_set(e, status, "%s: page %d: %s", options->name, number, why.text);
    return status;
}

static void work(const struct sandbox_call *call) {
    const struct picture_options *options = call->options;
    struct buffer png = {0};
    struct error e = missing;
    struct pdf *pdf = NULL;
    struct picture_head head = {.status = e.status};
    if (head.status == STATUS_OK)
        head.status = pdf_open(&pdf, options->name, call->input, options->password, &e);
    if (head.status == STATUS_OK) {
        head.n_pages = (uint32_t)pdf_page_count(pdf);
        head.status = print_page(pdf, options, &png, &e);
    }
    head.size = head.status ? strlen(e.text) : png.size;
    sandbox_write(call->output, &head, sizeof head);
    sandbox_write(call->output, head.status ? e.text : png.data, (size_t)head.size);
    /* The process ends here: what it holds goes with it. */
}

/* Outside. */

static enum status refuse_nonsense(const char *name, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: what draws its pages writes nonsense", name);
}

/* The words of the process, where they are words. */
static enum status take_failure(const struct picture_head *head, const struct buffer *words,
                                const char *name, struct error *e) {
    bool sound = head->status <= STATUS_INTERNAL && words->size > 0 &&
                 strlen(words->data) == words->size && utf8_is_valid(words->data, words->size);
    if (!sound) return refuse_nonsense(name, e);
    return error_set(e, (enum status)head->status, "%s", words->data);
}

static enum status take_picture(struct pdf_picture *picture, const struct picture_head *head,
                                const char *name, struct error *e) {
    struct buffer *png = &picture->png;
    const char *type = picture_media_type((struct text_span){png->data, png->size});
    if (head->n_pages > INT32_MAX) return refuse_nonsense(name, e);
    picture->n_pages = (int)head->n_pages;
    if (head->status) {
        enum status status = take_failure(head, png, name, e);
        buffer_clear(png);
        return status;
    }
    bool is_png = type != NULL && strcmp(type, "image/png") == 0;
    return is_png ? STATUS_OK : refuse_nonsense(name, e);
}

static enum status read_answer(struct sandbox_child *child, struct pdf_picture *picture,
                               const char *name, struct error *e) {
    struct picture_head head;
    size_t got;
    bool whole = false;
    if (sandbox_read(child, &head, sizeof head, &got, e)) return e->status;
    if (got == sizeof head && head.size > MOST_BYTES)
        return error_set(e, STATUS_INVALID, "%s: the picture of the page is too large", name);
    if (got == sizeof head && sandbox_append(child, (size_t)head.size, &picture->png, &whole, e))
        return e->status;
    if (whole) return take_picture(picture, &head, name, e);
    return error_set(e, STATUS_INVALID,
                     "%s: the page is damaged, or takes more time or memory than there is", name);
}

enum status pdf_picture_draw(struct pdf_picture *picture, const struct pdf_pictured *file,
                             int number, const struct sandbox_limits *limits, struct error *e) {
    const char *name = file->name, *password = file->password ? file->password : "";
    struct picture_options options = {.number = number};
    struct sandbox_child child;
    struct error end = {0};
    int code;
    memcpy(options.name, name, strnlen(name, sizeof options.name - 1));
    memcpy(options.password, password, strnlen(password, sizeof options.password - 1));
    struct sandbox_job job = {.name = name,
                              .input = file->bytes,
                              .work = work,
                              .prepare = prepare,
                              .opens_files = true,
                              .options = {(const char *)&options, sizeof options},
                              .limits = *limits};
    if (number < 1) return error_set(e, STATUS_NOT_FOUND, "%s: pages are counted from 1", name);
    if (sandbox_begin(&child, &job, e)) return e->status;
    enum status status = read_answer(&child, picture, name, e);
    sandbox_kill(&child);
    sandbox_end(&child, &code, &end);
    explicit_bzero(options.password, sizeof options.password);
    if (status && end.status == STATUS_UNSUPPORTED) *e = end; /* the kernel does not confine it */
    return status ? e->status : STATUS_OK;
}
