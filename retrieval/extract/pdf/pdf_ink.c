/* retrieval/extract/pdf/pdf_ink.c: the page as it looks: lines that are drawn on it, and words that
 * nobody sees. Poppler's C library hands out no paths; a small picture shows them as a reader sees
 * them, whatever they were drawn with: strokes, thin rectangles, shades, pictures. See pdf_words.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/pdf/pdf_words.h"

enum {
    CONTRAST = 14, /* of 255, between a line and what is beside it */
    WORD_CONTRAST = 20,
    SHORTEST = 11,    /* pixels, of a line's edge */
    WIDEST = 4,       /* pixels between the two edges of a line */
    MAX_EDGES = 20000 /* on a page, each way: what has more is a picture */
};

struct pixel_area {
    int left, top, right, bottom; /* pixels; the last ones are not in it */
};

static int clamp_pixel(float at, int most) {
    if (!(at > 0)) return 0;
    return at < (float)most ? (int)at : most;
}

/* The part of a box from `cut` of its height below its top to as much above its bottom. */
static struct pixel_area area_of(const struct pdf_pixels *pixels, const struct page_rect *box,
                                 float cut) {
    float scale = pixels->per_point, inset = cut * (box->bottom - box->top);
    return (struct pixel_area){clamp_pixel(floorf(box->left * scale), pixels->width),
                               clamp_pixel(floorf((box->top + inset) * scale), pixels->height),
                               clamp_pixel(ceilf(box->right * scale), pixels->width),
                               clamp_pixel(ceilf((box->bottom - inset) * scale), pixels->height)};
}

/* Words. */

static bool has_ink(const struct pdf_pixels *pixels, const struct page_rect *box) {
    struct pixel_area area = area_of(pixels, box, 0.1F);
    int least = 255, most = 0;
    for (int y = area.top; y < area.bottom; y++)
        for (int x = area.left; x < area.right; x++) {
            int grey = pixels->grey[(size_t)y * (size_t)pixels->width + (size_t)x];
            least = min_int(least, grey);
            most = max_int(most, grey);
        }
    return most - least >= WORD_CONTRAST;
}

/* A page that draws letters a few times only, under a picture, has its text hidden there. */
static bool has_hidden_layer(const struct pdf_pixels *pixels, const struct page *page) {
    const struct page_picture *pictures = (const void *)page->pictures.data;
    size_t n_words;
    page_words(page, &n_words);
    float area = 0;
    for (size_t i = 0; i < page->pictures.size / sizeof *pictures; i++)
        area = fmaxf(area, rect_width(&pictures[i].box) * rect_height(&pictures[i].box));
    return area > 0.5F * page->width * page->height && (size_t)pixels->n_drawn * 30 < n_words &&
           pdf_draws_letters();
}

/* Hides what nobody sees, and takes it out of the picture: what is left is no text. */
static void judge_words(const struct pdf_pixels *pixels, struct page *page, uint8_t *covered) {
    size_t n;
    struct page_word *words = page_words(page, &n);
    bool layer = has_hidden_layer(pixels, page);
    for (size_t i = 0; i < n; i++) {
        bool seen = has_ink(pixels, &words[i].box) || !pdf_draws_letters();
        words[i].hidden = layer || !seen;
        if (words[i].hidden) continue;
        struct pixel_area area = area_of(pixels, &words[i].box, 0.04F);
        for (int y = area.top; y < area.bottom && area.right > area.left; y++)
            memset(covered + (size_t)y * (size_t)pixels->width + area.left, 1,
                   (size_t)(area.right - area.left));
    }
}

/* Lines. */

/* An edge along which the grey changes, in pixels along and across. */
struct edge {
    int start, end, first, last;
};
struct edge_list {
    struct edge *list;
    int n, capacity;
};

static void add_edge(struct edge_list *edges, int start, int end, int at) {
    if (edges->n >= MAX_EDGES) return;
    for (int i = edges->n - 1; i >= 0 && edges->list[i].first >= at - 3 * WIDEST; i--) {
        struct edge *edge = &edges->list[i];
        int shared = min_int(end, edge->end) - max_int(start, edge->start);
        if (at - edge->last > WIDEST || at - edge->first > WIDEST ||
            10 * shared < 8 * (end - start) || 10 * shared < 8 * (edge->end - edge->start))
            continue;
        edge->last = at;
        edge->start = min_int(edge->start, start);
        edge->end = max_int(edge->end, end);
        return;
    }
    edges->list = xgrow(edges->list, edges->n, &edges->capacity, sizeof *edges->list);
    edges->list[edges->n] = (struct edge){start, end, at, at};
    edges->n++;
}

/* Pixels along one line of the picture and along the one before it. */
struct pixel_walk {
    const uint8_t *grey, *covered;
    size_t step, before; /* from one pixel to the next, and to the line before */
    int n;
};

/* +1, -1: it is lighter, or darker, than the pixel before it, across the line; 0: it is not. */
static int contrast_at(const struct pixel_walk *walk, const uint8_t *grey, const uint8_t *covered) {
    int difference = (int)*grey - (int)*(grey - walk->before);
    if (difference < CONTRAST && difference > -CONTRAST) return 0;
    if (*covered || *(covered - walk->before)) return 0;
    return difference > 0 ? 1 : -1;
}

/* Runs of one sign; dashes with gaps no longer than themselves are one. */
static void find_edges(const struct pixel_walk *walk, int at, struct edge_list *edges) {
    enum { GAP = 4 };
    int start = 0, end = 0, seen = 0, sign = 0;
    const uint8_t *grey = walk->grey, *covered = walk->covered;
    for (int i = 0; i <= walk->n; i++) {
        int here = i < walk->n ? contrast_at(walk, grey, covered) : 0;
        grey += walk->step;
        covered += walk->step;
        bool goes_on = sign != 0 && here == sign && i - end <= GAP;
        if (sign != 0 && !goes_on && (here != 0 || i - end > GAP || i == walk->n)) {
            if (end - start >= SHORTEST && 5 * seen >= 2 * (end - start))
                add_edge(edges, start, end, at);
            sign = 0;
        }
        if (here == 0) continue;
        if (sign == 0) {
            start = i;
            seen = 0;
            sign = here;
        }
        seen++;
        end = i + 1;
    }
}

static void find_rules(const struct pdf_pixels *pixels, const uint8_t *covered, struct page *page) {
    struct edge_list across = {0}, down = {0};
    float scale = pixels->per_point;
    for (int y = 1; y < pixels->height; y++) {
        size_t at = (size_t)y * (size_t)pixels->width;
        struct pixel_walk walk = {pixels->grey + at, covered + at, 1, (size_t)pixels->width,
                                  pixels->width};
        find_edges(&walk, y, &across);
    }
    for (int x = 1; x < pixels->width; x++) {
        struct pixel_walk walk = {pixels->grey + x, covered + x, (size_t)pixels->width, 1,
                                  pixels->height};
        find_edges(&walk, x, &down);
    }
    for (int i = 0; i < across.n; i++) {
        const struct edge *edge = &across.list[i];
        page_add_rule(page,
                      &(struct page_rect){(float)edge->start / scale, (float)edge->first / scale,
                                          (float)edge->end / scale, (float)edge->last / scale});
    }
    for (int i = 0; i < down.n; i++) {
        const struct edge *edge = &down.list[i];
        page_add_rule(page,
                      &(struct page_rect){(float)edge->first / scale, (float)edge->start / scale,
                                          (float)edge->last / scale, (float)edge->end / scale});
    }
    free(across.list);
    free(down.list);
}

/* A page without words whose letters are drawn as shapes: what is drawn on. */
static void find_drawing(const struct pdf_pixels *pixels, struct page *page) {
    struct pixel_area area = {pixels->width, pixels->height, 0, 0};
    int paper = pixels->grey[0];
    for (int y = 0; y < pixels->height; y++)
        for (int x = 0; x < pixels->width; x++) {
            int grey = pixels->grey[(size_t)y * (size_t)pixels->width + (size_t)x];
            if (abs(grey - paper) < WORD_CONTRAST) continue;
            area.left = min_int(area.left, x);
            area.top = min_int(area.top, y);
            area.right = max_int(area.right, x + 1);
            area.bottom = max_int(area.bottom, y + 1);
        }
    float scale = pixels->per_point;
    if (area.right > area.left)
        page_add_picture(
            page, &(struct page_rect){(float)area.left / scale, (float)area.top / scale,
                                      (float)area.right / scale, (float)area.bottom / scale});
}

void pdf_ink_add(const struct pdf_pixels *pixels, struct page *page) {
    uint8_t *covered = xcalloc((size_t)pixels->width * (size_t)pixels->height + 1, 1);
    judge_words(pixels, page, covered);
    if (page->words.size > 0)
        find_rules(pixels, covered, page);
    else if (page->pictures.size == 0 && pixels->width > 0 && pixels->height > 0)
        find_drawing(pixels, page);
    free(covered);
}
