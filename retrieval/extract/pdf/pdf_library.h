/* retrieval/extract/pdf/pdf_library.h: a PDF by Poppler's GLib library, which a process of the
 * sandbox opens. All places are in points from the left top corner of a page as a viewer shows it:
 * of its crop box, turned. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/marks.h"

/* STATUS_UNSUPPORTED where a library is not installed: the package is named. */
enum status pdf_open_library(const char *file, struct error *e);

struct pdf;
/* `bytes` are borrowed. Where a password is needed, each line of `passwords` is tried; NULL: none
 * is. STATUS_INVALID: they are no PDF, or no password fits, which is said. */
enum status pdf_open(struct pdf **pdf, const char *file, struct text_span bytes,
                     const char *passwords, struct error *e);
void pdf_close(struct pdf *pdf);
/* Poppler's own handle, for pdf_structure.c. */
void *pdf_document(const struct pdf *pdf);
int pdf_page_count(const struct pdf *pdf);
/* Appends the title that the file gives itself; nothing where there is none. */
void pdf_title(const struct pdf *pdf, struct buffer *title);

typedef void pdf_bookmark_taker(void *context, struct text_span title, int page, int level);
/* Calls the taker for each entry of the file's own contents, level by level from 1. */
void pdf_walk_bookmarks(const struct pdf *pdf, pdf_bookmark_taker *take, void *context);

/* The letters of a page, in the library's order. Zero-initialise; free when done. */
struct pdf_letters {
    struct buffer text;  /* UTF-8 */
    struct buffer boxes; /* struct page_rect, for each character of the text */
    struct buffer runs;  /* struct pdf_run, in order, over all characters */
    struct buffer names; /* of fonts, each with its NUL */
};
struct pdf_run {
    uint32_t first, end; /* characters */
    uint32_t name;       /* of the font: byte of names */
    float size;
};
void pdf_letters_clear(struct pdf_letters *letters);
void pdf_letters_free(struct pdf_letters *letters);

struct pdf_page; /* a page that is open */
/* Page i, from 0. STATUS_INVALID: it is damaged. */
enum status pdf_page_open(struct pdf *pdf, int i, struct pdf_page **page, struct error *e);
void pdf_page_close(struct pdf_page *page);
/* Poppler's own handle, for pdf_fields.c. */
void *pdf_page_handle(const struct pdf_page *page);
void pdf_page_size(const struct pdf_page *page, float *width, float *height);
void pdf_page_letters(const struct pdf_page *page, struct pdf_letters *letters);
/* Appends struct page_rect: where the page's pictures are. */
void pdf_page_pictures(const struct pdf_page *page, struct buffer *boxes);

/* The page as it looks. */
struct pdf_pixels {
    int width, height;
    uint8_t *grey;   /* [height x width], 0 black; to be freed */
    float per_point; /* pixels */
    int n_drawn;     /* times that letters were drawn */
};
/* So many pixels a point, or fewer: at most `most` a side. STATUS_NO_MEMORY, STATUS_INVALID.
 */
enum status pdf_page_draw(const struct pdf_page *page, float per_point, int most,
                          struct pdf_pixels *pixels, struct error *e);
/* The page in colour, of such a size, as a PNG behind what the buffer has. As pdf_page_draw. */
enum status pdf_page_print(const struct pdf_page *page, float per_point, int most,
                           struct buffer *png, struct error *e);
/* Whether letters of a font that a file does not bring are drawn: false where the machine has no
 * fonts, and words that leave no ink may be seen elsewhere. Asked once in a process. */
bool pdf_draws_letters(void);
