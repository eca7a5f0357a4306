/* retrieval/extract/ocr/ink_lines.c: the size of letters and the angle of their lines. See ink.h.
 *
 * The feet of letters stand on lines. Seen along the right angle they fall into few places, and
 * along any other they are spread: the sum of the squares of how many fall into each place is
 * largest at the right angle (Postl 1986; here of the letters' feet in place of all pixels, which
 * neither pictures nor noise disturb). The same is asked of all four sides of the letters: feet are
 * in line better than heads, since more letters rise above the x than hang below the line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/ink.h"

enum { LEAST_HEIGHT = 5, LEAST_LETTERS = 12 };
static const float WIDEST = 15, COARSE = 0.2F, FINE = 0.02F; /* degrees */

static const struct ink_box *boxes_of(const struct buffer *parts, size_t *n) {
    *n = parts->size / sizeof(struct ink_box);
    return (const struct ink_box *)(const void *)parts->data;
}

/* The median of heights, in which a part counts as much as it is high: specks are many and low. */
float ink_letter(const struct buffer *parts, const struct grey *picture) {
    size_t n, heights[512] = {0}, sum = 0, below = 0;
    const struct ink_box *boxes = boxes_of(parts, &n);
    int highest = picture->height / 8 < 511 ? picture->height / 8 : 511;
    for (size_t i = 0; i < n; i++) {
        int height = ink_height(&boxes[i]), width = ink_width(&boxes[i]);
        if (height < LEAST_HEIGHT || height > highest || width > 4 * height || height > 8 * width)
            continue;
        heights[height] += (size_t)height;
        sum += (size_t)height;
    }
    for (int height = LEAST_HEIGHT; height <= highest; height++) {
        below += heights[height];
        if (sum > 0 && 2 * below >= sum) return (float)height;
    }
    return 0;
}

bool ink_is_letter(const struct ink_box *part, float letter) {
    float height = (float)ink_height(part), width = (float)ink_width(part);
    float larger = fmaxf(height, width);
    return larger >= 0.6F * letter && larger <= 2.2F * letter &&
           fminf(height, width) >= 0.1F * letter;
}

/* A side of the letters: where each stands along its line and across it. */
struct feet {
    const float *along, *across; /* [n] */
    size_t n;
    float bin;
};

/* How much the letters fall into line when the lines rise by this angle: 1 for chance. */
static float measure_angle(const struct feet *feet, float degrees, float *bins, size_t n_bins) {
    float slope = tanf(degrees * (float)M_PI / 180), scale = 1 / feet->bin;
    double sum = 0;
    memset(bins, 0, n_bins * sizeof *bins);
    for (size_t i = 0; i < feet->n; i++) {
        float at = (feet->across[i] - slope * feet->along[i]) * scale + (float)n_bins / 4;
        if (at < 0 || at >= (float)(n_bins - 1)) continue;
        size_t bin = (size_t)at;
        float rest = at - (float)bin;
        bins[bin] += 1 - rest;
        bins[bin + 1] += rest;
    }
    for (size_t i = 0; i < n_bins; i++) sum += (double)bins[i] * (double)bins[i];
    return (float)(sum / (double)feet->n);
}

/* The best angle of one side. */
static float find_angle(const struct feet *feet, float *bins, size_t n_bins, float *score) {
    float best = 0, center;
    *score = 0;
    for (float degrees = -WIDEST; degrees <= WIDEST; degrees += COARSE) {
        float found = measure_angle(feet, degrees, bins, n_bins);
        if (found > *score) {
            *score = found;
            best = degrees;
        }
    }
    center = best;
    for (float degrees = center - COARSE; degrees <= center + COARSE; degrees += FINE) {
        float found = measure_angle(feet, degrees, bins, n_bins);
        if (found > *score) {
            *score = found;
            best = degrees;
        }
    }
    return best;
}

/* Feet, right sides, heads, left sides: the side that is down after so many quarter turns. */
static float side_of(const struct ink_box *box, int quarters) {
    switch (quarters) {
        case 0: return (float)box->bottom;
        case 1: return (float)box->right;
        case 2: return (float)box->top;
        default: return (float)box->left;
    }
}

static size_t gather_side(const struct ink_box *boxes, size_t n, float letter, int quarters,
                          float *along, float *across) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ink_is_letter(&boxes[i], letter)) continue;
        bool level = quarters % 2 == 0;
        float x = (float)(boxes[i].left + boxes[i].right) / 2;
        float y = (float)(boxes[i].top + boxes[i].bottom) / 2;
        along[used] = level ? x : y;
        across[used] = side_of(&boxes[i], quarters);
        used++;
    }
    return used;
}

struct ink_lines ink_find_lines(const struct buffer *parts, float letter) {
    size_t n, n_bins, used = 0;
    const struct ink_box *boxes = boxes_of(parts, &n);
    struct ink_lines lines = {0};
    float scores[4] = {0}, angles[4] = {0}, far = 0;
    if (letter <= 0 || n == 0) return lines;
    for (size_t i = 0; i < n; i++)
        far = fmaxf(far, fmaxf((float)boxes[i].right, (float)boxes[i].bottom));
    struct feet feet = {.bin = fmaxf(1, letter / 8)};
    n_bins = (size_t)(2 * far / feet.bin) + 2;
    float *along = xmalloc(2 * n * sizeof *along), *across = along + n;
    float *bins = xmalloc(n_bins * sizeof *bins);
    for (int side = 0; side < 4; side++) {
        used = gather_side(boxes, n, letter, side, along, across);
        feet = (struct feet){along, across, used, feet.bin};
        if (used >= LEAST_LETTERS) angles[side] = find_angle(&feet, bins, n_bins, &scores[side]);
    }
    free(along);
    free(bins);
    for (int side = 1; side < 4; side++)
        if (scores[side] > scores[lines.quarters]) lines.quarters = side;
    float other = fmaxf(scores[(lines.quarters + 1) & 3], scores[(lines.quarters + 3) & 3]);
    lines.sureness = other > 0 ? scores[lines.quarters] / other : 1;
    /* A line that runs down and leans has the slope of the other sign once it is level. */
    lines.degrees = lines.quarters % 2 == 0 ? -angles[lines.quarters] : angles[lines.quarters];
    return lines;
}
