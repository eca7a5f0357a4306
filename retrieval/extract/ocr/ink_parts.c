/* retrieval/extract/ocr/ink_parts.c: parts of ink that hang together, and rules. See ink.h. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/ink.h"

/* Runs of ink in a row; runs of two rows that touch have one label. */
struct ink_run {
    int left, right;
    uint32_t label;
};

struct labels {
    uint32_t *parents;     /* [n] */
    struct ink_box *boxes; /* [n] */
    int n, capacity, boxes_capacity;
};

static uint32_t find_root(const struct labels *labels, uint32_t label) {
    while (labels->parents[label] != label) {
        labels->parents[label] = labels->parents[labels->parents[label]];
        label = labels->parents[label];
    }
    return label;
}

static void box_extend(struct ink_box *box, const struct ink_box *by) {
    if (by->left < box->left) box->left = by->left;
    if (by->top < box->top) box->top = by->top;
    if (by->right > box->right) box->right = by->right;
    if (by->bottom > box->bottom) box->bottom = by->bottom;
}

static uint32_t join_labels(struct labels *labels, uint32_t a, uint32_t b) {
    uint32_t first = find_root(labels, a), second = find_root(labels, b);
    uint32_t kept = first < second ? first : second, gone = first < second ? second : first;
    if (kept == gone) return kept;
    labels->parents[gone] = kept;
    box_extend(&labels->boxes[kept], &labels->boxes[gone]);
    return kept;
}

static uint32_t new_label(struct labels *labels, const struct ink_box *box) {
    labels->parents = xgrow(labels->parents, labels->n, &labels->capacity, sizeof *labels->parents);
    labels->boxes = xgrow(labels->boxes, labels->n, &labels->boxes_capacity, sizeof *labels->boxes);
    labels->parents[labels->n] = (uint32_t)labels->n;
    labels->boxes[labels->n] = *box;
    labels->n++;
    return (uint32_t)labels->n - 1;
}

/* The next run of ink in a row from x on; false: there is none. */
static bool find_run(const uint8_t *row, int width, int threshold, int x, struct ink_run *run) {
    while (x < width && row[x] >= threshold) x++;
    *run = (struct ink_run){.left = x, .right = x};
    while (run->right < width && row[run->right] < threshold) run->right++;
    return run->left < run->right;
}

/* Gives a run of row y the label of those that it touches above. */
static void label_run(struct labels *labels, struct ink_run *run, int y,
                      const struct ink_run *above, int n_above, int *first) {
    struct ink_box box = {run->left, y, run->right, y + 1};
    bool found = false;
    while (*first < n_above && above[*first].right < run->left) ++*first;
    for (int i = *first; i < n_above && above[i].left <= run->right; i++) {
        run->label = found ? join_labels(labels, run->label, above[i].label)
                           : find_root(labels, above[i].label);
        found = true;
    }
    if (found)
        box_extend(&labels->boxes[run->label], &box);
    else
        run->label = new_label(labels, &box);
}

static void gather_parts(const struct labels *labels, struct buffer *parts) {
    for (int i = 0; i < labels->n; i++)
        if (labels->parents[i] == (uint32_t)i)
            buffer_append(parts, &labels->boxes[i], sizeof labels->boxes[i]);
}

bool ink_find_parts(const struct grey *picture, int threshold, size_t most, struct buffer *parts) {
    struct labels labels = {0};
    size_t room = ((size_t)picture->width / 2 + 2) * sizeof(struct ink_run);
    struct ink_run *above = xmalloc(room), *here = xmalloc(room);
    int n_above = 0;
    for (int y = 0; y < picture->height && (size_t)labels.n <= most; y++) {
        const uint8_t *row = grey_row(picture, y);
        int n = 0, first = 0;
        for (int x = 0; find_run(row, picture->width, threshold, x, &here[n]); n++) {
            x = here[n].right;
            label_run(&labels, &here[n], y, above, n_above, &first);
        }
        struct ink_run *swapped = above;
        above = here;
        here = swapped;
        n_above = n;
    }
    bool done = (size_t)labels.n <= most;
    gather_parts(&labels, parts);
    free(above);
    free(here);
    free(labels.parents);
    free(labels.boxes);
    return done;
}

/* Rules. */

/* Runs of a row that are as long as a rule, over gaps of a few pixels. The feet of some fonts join
 * two or three letters. */
static const float LEAST_RULE = 3.5F; /* in heights of an x */

static int find_long_runs(const uint8_t *row, int width, int threshold, float letter,
                          struct ink_run *runs) {
    struct ink_run run = {0, 0, 0}, open = {0, 0, 0};
    int n = 0, gap = (int)(letter / 8), least = (int)(LEAST_RULE * letter);
    for (int x = 0; find_run(row, width, threshold, x, &run); x = run.right) {
        if (open.right > 0 && run.left - open.right <= gap) {
            open.right = run.right;
            continue;
        }
        if (open.right - open.left >= least) {
            runs[n] = open;
            n++;
        }
        open = run;
    }
    if (open.right - open.left >= least) {
        runs[n] = open;
        n++;
    }
    return n;
}

/* The share of ink in a row of pixels between two columns. */
static float share_of_ink(const struct grey *picture, int threshold, int y,
                          const struct ink_box *box) {
    int n = 0;
    if (y < 0 || y >= picture->height) return 0;
    const uint8_t *row = grey_row(picture, y);
    for (int x = box->left; x < box->right; x++) n += row[x] < threshold;
    return (float)n / (float)ink_width(box);
}

/* The feet of letters that run into each other look like a rule, but there are letters close above
 * or below. */
static bool is_of_letters(const struct grey *picture, int threshold, float letter,
                          const struct ink_box *box) {
    const float share = 0.12F;
    int beside = (int)(letter / 4) + 1;
    return share_of_ink(picture, threshold, box->top - beside, box) > share ||
           share_of_ink(picture, threshold, box->bottom - 1 + beside, box) > share;
}

/* Rules that go across. A thicker bar is none: it is a part of a picture, or a shadow. */
static void find_rules_across(const struct grey *picture, int threshold, float letter,
                              struct buffer *rules) {
    struct labels labels = {0};
    size_t room = ((size_t)picture->width / 2 + 2) * sizeof(struct ink_run);
    struct ink_run *above = xmalloc(room), *here = xmalloc(room);
    int n_above = 0, thick = (int)(0.4F * letter) + 3;
    for (int y = 0; y < picture->height; y++) {
        int first = 0;
        int n = find_long_runs(grey_row(picture, y), picture->width, threshold, letter, here);
        for (int i = 0; i < n; i++) label_run(&labels, &here[i], y, above, n_above, &first);
        struct ink_run *swapped = above;
        above = here;
        here = swapped;
        n_above = n;
    }
    for (int i = 0; i < labels.n; i++)
        if (labels.parents[i] == (uint32_t)i && ink_height(&labels.boxes[i]) <= thick &&
            !is_of_letters(picture, threshold, letter, &labels.boxes[i]))
            buffer_append(rules, &labels.boxes[i], sizeof labels.boxes[i]);
    free(above);
    free(here);
    free(labels.parents);
    free(labels.boxes);
}

void ink_find_rules(const struct grey *picture, int threshold, float letter, struct buffer *rules) {
    struct grey turned;
    find_rules_across(picture, threshold, letter, rules);
    size_t n_across = rules->size / sizeof(struct ink_box);
    grey_make(&turned, picture->width, picture->height);
    memcpy(turned.pixels, picture->pixels, grey_size(picture));
    grey_turn(&turned, 1);
    find_rules_across(&turned, threshold, letter, rules);
    grey_free(&turned);
    struct ink_box *boxes = (struct ink_box *)(void *)rules->data;
    for (size_t i = n_across; i < rules->size / sizeof *boxes; i++)
        boxes[i] = (struct ink_box){.left = boxes[i].top,
                                    .right = boxes[i].bottom,
                                    .top = picture->height - boxes[i].right,
                                    .bottom = picture->height - boxes[i].left};
}

void ink_erase(struct grey *picture, const struct ink_box *boxes, size_t n) {
    enum { EDGE = 1 }; /* the pixels beside a box are its shade */
    for (size_t i = 0; i < n; i++) {
        int left = boxes[i].left > EDGE ? boxes[i].left - EDGE : 0;
        int right = boxes[i].right + EDGE < picture->width ? boxes[i].right + EDGE : picture->width;
        int top = boxes[i].top > EDGE ? boxes[i].top - EDGE : 0;
        for (int y = top; y < boxes[i].bottom + EDGE && y < picture->height; y++)
            memset(grey_row(picture, y) + left, 255, (size_t)(right - left));
    }
}
