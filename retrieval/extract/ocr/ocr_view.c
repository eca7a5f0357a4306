/* retrieval/extract/ocr/ocr_view.c: from the picture of a page to one whose lines are level and
 * whose letters are dark on white, of a size that is read well. See ocr_page.h. */
#include <math.h>
#include <stdlib.h>

#include "retrieval/extract/ocr/ink.h"
#include "retrieval/extract/ocr/ocr_page.h"

enum { LONGEST_SIDE = 5000, MOST_PARTS = 400000, NOISE_PARTS = 60000 };

void ocr_view_free(struct ocr_view *view) {
    grey_free(&view->picture);
    buffer_free(&view->letters);
}

static void scale_by(struct ocr_view *view, float factor) {
    int width = (int)lroundf((float)view->picture.width * factor);
    int height = (int)lroundf((float)view->picture.height * factor);
    grey_scale(&view->picture, width > 0 ? width : 1, height > 0 ? height : 1);
    view->scale = (float)view->picture.width / (float)view->width;
}

static void limit_size(struct ocr_view *view) {
    int longer = view->width > view->height ? view->width : view->height;
    if (longer > LONGEST_SIDE) scale_by(view, (float)LONGEST_SIDE / (float)longer);
}

/* Dots are taken out by medians, twice where they are many; grain is blurred. Print without noise
 * is left as it is: both wear thin lines off. */
static void clean_noise(struct grey *picture) {
    const float many_dots = 0.0015F, much_grain = 18;
    struct grey_noise noise = grey_measure_noise(picture);
    for (int i = 0; i < 2 && noise.dots > many_dots; i++) {
        grey_median(picture);
        noise = grey_measure_noise(picture);
    }
    for (int i = 0; i < 2 && noise.grain > much_grain; i++) {
        grey_blur(picture);
        noise = grey_measure_noise(picture);
    }
}

/* White letters on black: most of the page is ink then. */
static void clean_inverse(struct grey *picture) {
    int threshold = grey_threshold(picture);
    size_t n = grey_size(picture), dark = 0;
    for (size_t i = 0; i < n; i++) dark += picture->pixels[i] < threshold;
    if (dark > n / 10 * 7) grey_invert(picture);
}

static void find_letters(struct ocr_view *view) {
    buffer_clear(&view->letters);
    view->threshold = grey_threshold(&view->picture);
    ink_find_parts(&view->picture, view->threshold, MOST_PARTS, &view->letters);
    view->letter = ink_letter(&view->letters, &view->picture);
}

/* Specks: parts that are much smaller than the dot of an i. A page may have a few. */
static void clean_specks(struct ocr_view *view) {
    size_t n = view->letters.size / sizeof(struct ink_box), kept = 0, letters = 0;
    struct ink_box *boxes = (struct ink_box *)(void *)view->letters.data;
    float small = 0.16F * view->letter;
    for (size_t i = 0; i < n; i++) letters += ink_is_letter(&boxes[i], view->letter);
    if (n < 2 * letters) return;
    for (size_t i = 0; i < n; i++) {
        bool speck = (float)ink_width(&boxes[i]) <= small && (float)ink_height(&boxes[i]) <= small;
        if (speck) ink_erase(&view->picture, &boxes[i], 1);
        boxes[kept] = boxes[i];
        kept += !speck;
    }
    view->letters.size = kept * sizeof *boxes;
}

/* An x of 14 to 40 pixels is read as it is. */
static void fit_letters(struct ocr_view *view) {
    const float least = 14, best = 22, most = 40;
    float factor = best / view->letter, longest = (float)LONGEST_SIDE;
    float longer = fmaxf((float)view->picture.width, (float)view->picture.height);
    if (view->letter <= 0 || (view->letter >= least && view->letter <= most)) return;
    if (factor > 3) factor = 3;
    if (longer * factor > longest) factor = longest / longer;
    scale_by(view, factor);
    find_letters(view);
}

/* Parts of any size without any lines among them. */
static bool is_noise(const struct ocr_view *view, const struct ink_lines *lines) {
    enum { MANY = 500 };
    const float in_line = 1.6F;
    size_t n = view->letters.size / sizeof(struct ink_box), letters = 0;
    const struct ink_box *boxes = (const struct ink_box *)(const void *)view->letters.data;
    for (size_t i = 0; i < n; i++) letters += ink_is_letter(&boxes[i], view->letter);
    return n > NOISE_PARTS || (n > MANY && n > 4 * letters && lines->sureness < in_line);
}

static void make_level(struct ocr_view *view) {
    const float level = 0.06F; /* degrees that do no harm */
    struct ink_lines lines = ink_find_lines(&view->letters, view->letter);
    view->is_noise = is_noise(view, &lines);
    view->quarters = lines.quarters;
    if (fabsf(lines.degrees) > level) view->degrees = lines.degrees;
    grey_turn(&view->picture, view->quarters);
    if (view->degrees != 0) grey_rotate(&view->picture, view->degrees);
    if (view->quarters != 0 || view->degrees != 0) find_letters(view);
}

void ocr_view_make(struct ocr_view *view, struct grey *picture) {
    *view = (struct ocr_view){
        .picture = *picture, .width = picture->width, .height = picture->height, .scale = 1};
    *picture = (struct grey){0};
    limit_size(view);
    clean_noise(&view->picture);
    clean_inverse(&view->picture);
    grey_even(&view->picture);
    find_letters(view);
    clean_specks(view);
    fit_letters(view);
    make_level(view);
}

struct page_rect ocr_view_undo(const struct ocr_view *view, const struct page_rect *box) {
    float width = (float)view->width, height = (float)view->height, scale = view->scale;
    struct page_rect r = {box->left / scale, box->top / scale, box->right / scale,
                          box->bottom / scale};
    switch (view->quarters & 3) {
        case 1: return (struct page_rect){r.top, height - r.right, r.bottom, height - r.left};
        case 2:
            return (struct page_rect){width - r.right, height - r.bottom, width - r.left,
                                      height - r.top};
        case 3: return (struct page_rect){width - r.bottom, r.left, width - r.top, r.right};
        default: return r;
    }
}
