/* retrieval/extract/pdf/pdf_library.c: the door to Poppler's GLib library and to cairo, with
 * pdf_structure.c for its tags and pdf_fields.c for its forms: no other file includes them. See
 * pdf_library.h.
 *
 * The process of a parser alone opens them, with dlopen, before its files are out of reach;
 * programs run without them. */
#include "retrieval/extract/pdf/pdf_library.h"

#include <dlfcn.h>
#include <iconv.h>
#include <math.h>
#include <poppler.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/pdf/pdf_fields.h"
#include "retrieval/extract/pdf/pdf_structure.h"

#define POPPLER_FUNCTIONS(X) \
    X(poppler_document_new_from_bytes) \
    X(poppler_document_get_n_pages) \
    X(poppler_document_get_page) \
    X(poppler_document_get_title) \
    X(poppler_index_iter_new) \
    X(poppler_index_iter_get_child) \
    X(poppler_index_iter_get_action) \
    X(poppler_index_iter_next) \
    X(poppler_index_iter_free) \
    X(poppler_action_free) \
    X(poppler_dest_free) \
    X(poppler_document_find_dest) \
    X(poppler_error_quark) \
    X(poppler_page_get_size) \
    X(poppler_page_get_text) \
    X(poppler_page_get_text_layout) \
    X(poppler_page_get_text_attributes) \
    X(poppler_page_free_text_attributes) \
    X(poppler_page_get_image_mapping) \
    X(poppler_page_free_image_mapping) \
    X(poppler_page_render) \
    X(g_bytes_new_static) \
    X(g_bytes_unref) \
    X(g_error_free) \
    X(g_object_unref) \
    X(g_free) \
    X(g_log_set_default_handler)

#define CAIRO_FUNCTIONS(X) \
    X(cairo_image_surface_create) \
    X(cairo_image_surface_get_data) \
    X(cairo_image_surface_get_stride) \
    X(cairo_surface_create_observer) \
    X(cairo_surface_observer_add_glyphs_callback) \
    X(cairo_surface_status) \
    X(cairo_surface_flush) \
    X(cairo_surface_destroy) \
    X(cairo_create) \
    X(cairo_destroy) \
    X(cairo_status) \
    X(cairo_scale) \
    X(cairo_set_source_rgb) \
    X(cairo_paint) \
    X(cairo_surface_write_to_png_stream)

#define AS_FIELD(name) __typeof__(&name) name;
static struct {
    void *poppler, *cairo; /* NULL: not open */
    POPPLER_FUNCTIONS(AS_FIELD)
    CAIRO_FUNCTIONS(AS_FIELD)
} lib;

static bool find_functions(void) {
#define FIND_IN(library, function) \
    *(void **)&lib.function = dlsym(lib.library, #function); \
    if (lib.function == NULL) return false;
#define FIND_POPPLER(name) FIND_IN(poppler, name)
#define FIND_CAIRO(name) FIND_IN(cairo, name)
    POPPLER_FUNCTIONS(FIND_POPPLER)
    CAIRO_FUNCTIONS(FIND_CAIRO)
    return true;
}

/* Nobody reads what the libraries say of damaged files. */
static void ignore_log(const char *domain, GLogLevelFlags level, const char *message, void *data) {
    (void)domain;
    (void)level;
    (void)message;
    (void)data;
}

/* The library opens the converter of passwords with its first one, which the process could not do
 * later. */
static void warm_passwords(void) {
    GError *why = NULL;
    GBytes *held = lib.g_bytes_new_static("%PDF-1.4\n", 9);
    PopplerDocument *document = lib.poppler_document_new_from_bytes(held, "x", &why);
    if (document) lib.g_object_unref(document);
    if (why) lib.g_error_free(why);
    lib.g_bytes_unref(held);
}

enum status pdf_open_library(const char *file, struct error *e) {
    if (lib.poppler) return STATUS_OK;
    lib.poppler = dlopen("libpoppler-glib.so.8", RTLD_NOW | RTLD_LOCAL);
    lib.cairo = lib.poppler ? dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (lib.cairo == NULL || !find_functions()) {
        const char *reason = dlerror();
        lib.poppler = NULL;
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s: it needs the library Poppler; install the package libpoppler-glib8 (%s)", file,
            reason ? reason : "");
    }
    lib.g_log_set_default_handler(ignore_log, NULL);
    /* Titles are UTF-16, whose table glibc opens with its first use. */
    iconv_t table = iconv_open("UTF-8", "UTF-16BE");
    if (table != (iconv_t)-1) iconv_close(table);
    warm_passwords();
    pdf_structure_prepare(lib.poppler);
    pdf_fields_prepare(lib.poppler);
    return STATUS_OK;
}

/* The document. */

struct pdf {
    PopplerDocument *document;
    GBytes *bytes;
};

static bool is_locked(const GError *why) {
    return why && why->domain == lib.poppler_error_quark() && why->code == POPPLER_ERROR_ENCRYPTED;
}

static enum status explain(const GError *why, const char *file, const char *passwords,
                           struct error *e) {
    if (is_locked(why))
        return error_set(
            e, STATUS_INVALID,
            "%s: it needs a password%s: retro-index --password-file FILE reads it with "
            "those in FILE",
            file, passwords && passwords[0] ? ", and none of those given fits" : "");
    return error_set(e, STATUS_INVALID, "%s: it is no PDF, or damaged (%s)", file,
                     why && why->message ? why->message : "no reason is known");
}

/* Without a password, then with each. */
static PopplerDocument *open_with(GBytes *bytes, const char *passwords, GError **why) {
    PopplerDocument *document = lib.poppler_document_new_from_bytes(bytes, NULL, why);
    const char *line = passwords ? passwords : "";
    while (document == NULL && is_locked(*why) && line[0] != '\0') {
        size_t size = strcspn(line, "\n");
        char *password = xstrndup(line, size);
        lib.g_error_free(*why);
        *why = NULL;
        document = lib.poppler_document_new_from_bytes(bytes, password, why);
        explicit_bzero(password, size);
        free(password);
        line += size + (line[size] == '\n');
    }
    return document;
}

enum status pdf_open(struct pdf **pdf, const char *file, struct text_span bytes,
                     const char *passwords, struct error *e) {
    GError *why = NULL;
    *pdf = NULL;
    GBytes *held = lib.g_bytes_new_static(bytes.text, bytes.size);
    PopplerDocument *document = open_with(held, passwords, &why);
    if (document == NULL) {
        enum status status = explain(why, file, passwords, e);
        if (why) lib.g_error_free(why);
        lib.g_bytes_unref(held);
        return status;
    }
    *pdf = xcalloc(1, sizeof **pdf);
    **pdf = (struct pdf){.document = document, .bytes = held};
    return STATUS_OK;
}

void pdf_close(struct pdf *pdf) {
    lib.g_object_unref(pdf->document);
    lib.g_bytes_unref(pdf->bytes);
    free(pdf);
}

void *pdf_document(const struct pdf *pdf) { return pdf->document; }

int pdf_page_count(const struct pdf *pdf) {
    int n = lib.poppler_document_get_n_pages(pdf->document);
    return n > 0 ? n : 0;
}

void pdf_title(const struct pdf *pdf, struct buffer *title) {
    char *text = lib.poppler_document_get_title(pdf->document);
    size_t size = text ? strlen(text) : 0;
    if (size > 0 && utf8_is_valid(text, size)) buffer_append(title, text, size);
    lib.g_free(text);
}

/* Bookmarks. */

enum { MAX_BOOKMARKS = 20000, MAX_LEVELS = 6 };

struct bookmark_walk {
    const struct pdf *pdf;
    pdf_bookmark_taker *take;
    void *context;
    int n;
};

static int page_of_action(const struct pdf *pdf, const PopplerAction *action) {
    const PopplerDest *dest =
        action->any.type == POPPLER_ACTION_GOTO_DEST ? action->goto_dest.dest : NULL;
    int page = dest ? dest->page_num : 0;
    if (dest && dest->type == POPPLER_DEST_NAMED && dest->named_dest) {
        PopplerDest *found = lib.poppler_document_find_dest(pdf->document, dest->named_dest);
        page = found ? found->page_num : 0;
        if (found) lib.poppler_dest_free(found);
    }
    return page;
}

static void walk_level(struct bookmark_walk *walk, PopplerIndexIter *iter, int level) {
    do {
        PopplerAction *action = lib.poppler_index_iter_get_action(iter);
        const char *title = action ? action->any.title : NULL;
        size_t size = title ? strlen(title) : 0;
        if (size > 0 && utf8_is_valid(title, size))
            walk->take(walk->context, (struct text_span){title, size},
                       page_of_action(walk->pdf, action), level);
        walk->n++;
        if (action) lib.poppler_action_free(action);
        PopplerIndexIter *child = level < MAX_LEVELS && walk->n < MAX_BOOKMARKS
                                      ? lib.poppler_index_iter_get_child(iter)
                                      : NULL;
        if (child == NULL) continue;
        walk_level(walk, child, level + 1);
        lib.poppler_index_iter_free(child);
    } while (walk->n < MAX_BOOKMARKS && lib.poppler_index_iter_next(iter));
}

void pdf_walk_bookmarks(const struct pdf *pdf, pdf_bookmark_taker *take, void *context) {
    struct bookmark_walk walk = {.pdf = pdf, .take = take, .context = context};
    PopplerIndexIter *iter = lib.poppler_index_iter_new(pdf->document);
    if (iter == NULL) return;
    walk_level(&walk, iter, 1);
    lib.poppler_index_iter_free(iter);
}

/* Pages. */

struct pdf_page {
    PopplerPage *page;
};

enum status pdf_page_open(struct pdf *pdf, int i, struct pdf_page **page, struct error *e) {
    PopplerPage *opened = lib.poppler_document_get_page(pdf->document, i);
    *page = NULL;
    if (opened == NULL) return error_set(e, STATUS_INVALID, "it is damaged");
    *page = xcalloc(1, sizeof **page);
    (*page)->page = opened;
    return STATUS_OK;
}

void pdf_page_close(struct pdf_page *page) {
    lib.g_object_unref(page->page);
    free(page);
}

void *pdf_page_handle(const struct pdf_page *page) { return page->page; }

void pdf_page_size(const struct pdf_page *page, float *width, float *height) {
    double w = 0, h = 0;
    lib.poppler_page_get_size(page->page, &w, &h);
    *width = (float)w;
    *height = (float)h;
}

void pdf_letters_clear(struct pdf_letters *letters) {
    buffer_clear(&letters->text);
    buffer_clear(&letters->boxes);
    buffer_clear(&letters->runs);
    buffer_clear(&letters->names);
}

void pdf_letters_free(struct pdf_letters *letters) {
    buffer_free(&letters->text);
    buffer_free(&letters->boxes);
    buffer_free(&letters->runs);
    buffer_free(&letters->names);
}

static void take_runs(const struct pdf_page *page, struct pdf_letters *letters) {
    GList *list = lib.poppler_page_get_text_attributes(page->page);
    for (const GList *at = list; at; at = at->next) {
        const PopplerTextAttributes *attributes = at->data;
        const char *name = attributes->font_name ? attributes->font_name : "";
        struct pdf_run run = {.first = (uint32_t)attributes->start_index,
                              .end = (uint32_t)attributes->end_index + 1,
                              .name = (uint32_t)letters->names.size,
                              .size = (float)attributes->font_size};
        buffer_append(&letters->names, name, strlen(name) + 1);
        buffer_append(&letters->runs, &run, sizeof run);
    }
    lib.poppler_page_free_text_attributes(list);
}

void pdf_page_letters(const struct pdf_page *page, struct pdf_letters *letters) {
    PopplerRectangle *boxes = NULL;
    guint n = 0;
    pdf_letters_clear(letters);
    char *text = lib.poppler_page_get_text(page->page);
    if (text && lib.poppler_page_get_text_layout(page->page, &boxes, &n)) {
        buffer_append(&letters->text, text, strlen(text));
        for (guint i = 0; i < n; i++) {
            struct page_rect box = {
                (float)fmin(boxes[i].x1, boxes[i].x2), (float)fmin(boxes[i].y1, boxes[i].y2),
                (float)fmax(boxes[i].x1, boxes[i].x2), (float)fmax(boxes[i].y1, boxes[i].y2)};
            buffer_append(&letters->boxes, &box, sizeof box);
        }
        take_runs(page, letters);
    }
    lib.g_free(boxes);
    lib.g_free(text);
}

void pdf_page_pictures(const struct pdf_page *page, struct buffer *boxes) {
    GList *list = lib.poppler_page_get_image_mapping(page->page);
    for (const GList *at = list; at; at = at->next) {
        const PopplerRectangle *area = &((const PopplerImageMapping *)at->data)->area;
        struct page_rect box = {(float)fmin(area->x1, area->x2), (float)fmin(area->y1, area->y2),
                                (float)fmax(area->x1, area->x2), (float)fmax(area->y1, area->y2)};
        buffer_append(boxes, &box, sizeof box);
    }
    lib.poppler_page_free_image_mapping(list);
}

/* Pixels. */

static void count_letters(cairo_surface_t *observer, cairo_surface_t *target, void *data) {
    (void)observer;
    (void)target;
    (*(int *)data)++;
}

static void take_grey(cairo_surface_t *image, struct pdf_pixels *pixels) {
    const uint8_t *rows = lib.cairo_image_surface_get_data(image);
    size_t stride = (size_t)lib.cairo_image_surface_get_stride(image);
    for (int y = 0; y < pixels->height; y++) {
        const uint8_t *row = rows + (size_t)y * stride;
        uint8_t *grey = pixels->grey + (size_t)y * (size_t)pixels->width;
        for (int x = 0; x < pixels->width; x++) {
            uint32_t rgb;
            memcpy(&rgb, row + (size_t)x * sizeof rgb, sizeof rgb);
            uint32_t red = rgb >> 16 & 0xff, green = rgb >> 8 & 0xff, blue = rgb & 0xff;
            grey[x] = (uint8_t)((red * 77 + green * 151 + blue * 28) >> 8);
        }
    }
}

static enum status draw(const struct pdf_page *page, cairo_surface_t *image,
                        struct pdf_pixels *pixels, struct error *e) {
    cairo_surface_t *observer =
        lib.cairo_surface_create_observer(image, CAIRO_SURFACE_OBSERVER_NORMAL);
    lib.cairo_surface_observer_add_glyphs_callback(observer, count_letters, &pixels->n_drawn);
    cairo_t *cairo = lib.cairo_create(observer);
    lib.cairo_set_source_rgb(cairo, 1, 1, 1);
    lib.cairo_paint(cairo);
    lib.cairo_scale(cairo, (double)pixels->per_point, (double)pixels->per_point);
    lib.poppler_page_render(page->page, cairo);
    bool drawn = lib.cairo_status(cairo) == CAIRO_STATUS_SUCCESS;
    lib.cairo_destroy(cairo);
    lib.cairo_surface_destroy(observer);
    lib.cairo_surface_flush(image);
    return drawn ? STATUS_OK : error_set(e, STATUS_INVALID, "it cannot be drawn");
}

static enum status choose_size(const struct pdf_page *page, float per_point, int most,
                               struct pdf_pixels *pixels, struct error *e) {
    float width, height;
    *pixels = (struct pdf_pixels){.per_point = per_point};
    pdf_page_size(page, &width, &height);
    if (!(width > 0 && height > 0)) return error_set(e, STATUS_INVALID, "it has no size");
    float longest = fmaxf(width, height);
    if (longest * per_point > (float)most) pixels->per_point = (float)most / longest;
    pixels->width = min_int((int)ceilf(width * pixels->per_point), most);
    pixels->height = min_int((int)ceilf(height * pixels->per_point), most);
    return STATUS_OK;
}

/* A picture of the size that was chosen, to be destroyed whatever the status is. */
static enum status draw_picture(const struct pdf_page *page, struct pdf_pixels *pixels,
                                cairo_surface_t **image, struct error *e) {
    *image = lib.cairo_image_surface_create(CAIRO_FORMAT_RGB24, pixels->width, pixels->height);
    if (lib.cairo_surface_status(*image) != CAIRO_STATUS_SUCCESS)
        return error_set(e, STATUS_NO_MEMORY, "it takes too much memory to be drawn");
    return draw(page, *image, pixels, e);
}

enum status pdf_page_draw(const struct pdf_page *page, float per_point, int most,
                          struct pdf_pixels *pixels, struct error *e) {
    cairo_surface_t *image;
    if (choose_size(page, per_point, most, pixels, e)) return e->status;
    enum status status = draw_picture(page, pixels, &image, e);
    if (status == STATUS_OK) pixels->grey = calloc((size_t)pixels->width, (size_t)pixels->height);
    if (status == STATUS_OK && pixels->grey == NULL)
        status = error_set(e, STATUS_NO_MEMORY, "it takes too much memory to be drawn");
    if (status == STATUS_OK) take_grey(image, pixels);
    lib.cairo_surface_destroy(image);
    return status;
}

static cairo_status_t append_bytes(void *png, const unsigned char *bytes, unsigned size) {
    buffer_append(png, bytes, size);
    return CAIRO_STATUS_SUCCESS;
}

enum status pdf_page_print(const struct pdf_page *page, float per_point, int most,
                           struct buffer *png, struct error *e) {
    struct pdf_pixels size;
    cairo_surface_t *image;
    if (choose_size(page, per_point, most, &size, e)) return e->status;
    enum status status = draw_picture(page, &size, &image, e);
    if (status == STATUS_OK &&
        lib.cairo_surface_write_to_png_stream(image, append_bytes, png) != CAIRO_STATUS_SUCCESS)
        status = error_set(e, STATUS_INVALID, "it cannot be written as a picture");
    lib.cairo_surface_destroy(image);
    return status;
}

/* A page of letters in a standard font, whose table of objects the library makes itself. */
static const char letters_page[] =
    "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 60 20]/Contents 4 0 R/Resources<</Font<</F"
    "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
    "4 0 obj<</Length 30>>stream\nBT /F 12 Tf 2 4 Td (HHH) Tj ET\nendstream endobj\n"
    "trailer<</Root 1 0 R/Size 5>>\n%%EOF\n";

static bool try_letters(void) {
    struct pdf *pdf;
    struct pdf_page *page;
    struct pdf_pixels pixels = {0};
    struct error e;
    bool dark = false;
    if (pdf_open(&pdf, "", (struct text_span){letters_page, sizeof letters_page - 1}, NULL, &e))
        return false;
    if (pdf_page_open(pdf, 0, &page, &e) == STATUS_OK) {
        if (pdf_page_draw(page, 1, 100, &pixels, &e) == STATUS_OK)
            for (int i = 0; i < pixels.width * pixels.height; i++) dark |= pixels.grey[i] < 128;
        free(pixels.grey);
        pdf_page_close(page);
    }
    pdf_close(pdf);
    return dark;
}

bool pdf_draws_letters(void) {
    static int known; /* 1: true, -1: false */
    if (known == 0) known = try_letters() ? 1 : -1;
    return known > 0;
}
