/* retrieval/extract/ocr/light.c: where the paper ends and the ink begins. See grey.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/grey.h"

enum { LEVELS = 256 };

static void count_levels(const struct grey *picture, size_t counts[LEVELS]) {
    size_t n = grey_size(picture);
    memset(counts, 0, LEVELS * sizeof *counts);
    for (size_t i = 0; i < n; i++) counts[picture->pixels[i]]++;
}

/* The level that so large a share of the pixels lies below. */
static int find_level(const size_t counts[LEVELS], size_t n, float share) {
    size_t below = 0;
    int level = 0;
    while (level < LEVELS - 1 && (float)(below + counts[level]) < share * (float)n) {
        below += counts[level];
        level++;
    }
    return level;
}

int grey_threshold(const struct grey *picture) {
    size_t counts[LEVELS];
    double n = (double)grey_size(picture), sum = 0, below = 0, below_sum = 0, best = -1;
    int threshold = LEVELS / 2;
    count_levels(picture, counts);
    for (int i = 0; i < LEVELS; i++) sum += (double)i * (double)counts[i];
    for (int i = 0; i + 1 < LEVELS; i++) {
        below += (double)counts[i];
        below_sum += (double)i * (double)counts[i];
        if (below == 0 || below == n) continue;
        double apart = below_sum / below - (sum - below_sum) / (n - below);
        double between = below * (n - below) * apart * apart;
        if (between > best) {
            best = between;
            threshold = i + 1;
        }
    }
    return threshold;
}

/* The paper: a level for each square of the picture. */

struct paper {
    int columns, rows, side; /* side: pixels of a square */
    float *levels;           /* [rows, columns] */
};

/* Letters cover less than a half of a square, so that what is light there is paper. */
static float find_paper(const struct grey *picture, int left, int top, int side) {
    size_t counts[LEVELS] = {0}, n = 0;
    for (int y = top; y < top + side && y < picture->height; y++) {
        const uint8_t *row = grey_row(picture, y);
        for (int x = left; x < left + side && x < picture->width; x++) counts[row[x]]++;
    }
    for (int i = 0; i < LEVELS; i++) n += counts[i];
    return (float)find_level(counts, n, 0.8F);
}

static float paper_at(const struct paper *paper, int column, int row) {
    int x = column < 0 ? 0 : column >= paper->columns ? paper->columns - 1 : column;
    int y = row < 0 ? 0 : row >= paper->rows ? paper->rows - 1 : row;
    return paper->levels[(size_t)y * (size_t)paper->columns + (size_t)x];
}

/* Squares that lie within a picture or a black bar are darker than those beside them: the lightest
 * of the neighbours counts, and the mean of those around smooths it. */
static void paper_filter(struct paper *paper, bool lightest) {
    size_t n = (size_t)paper->columns * (size_t)paper->rows;
    float *out = xmalloc(n * sizeof *out);
    for (int row = 0; row < paper->rows; row++)
        for (int column = 0; column < paper->columns; column++) {
            float sum = 0, top = 0;
            for (int i = 0; i < 9; i++) {
                float level = paper_at(paper, column + i % 3 - 1, row + i / 3 - 1);
                sum += level;
                top = fmaxf(top, level);
            }
            out[(size_t)row * (size_t)paper->columns + (size_t)column] = lightest ? top : sum / 9;
        }
    free(paper->levels);
    paper->levels = out;
}

static void paper_open(struct paper *paper, const struct grey *picture) {
    int shorter = picture->width < picture->height ? picture->width : picture->height;
    paper->side = shorter / 60 < 16 ? 16 : shorter / 60;
    paper->columns = (picture->width + paper->side - 1) / paper->side;
    paper->rows = (picture->height + paper->side - 1) / paper->side;
    paper->levels = xmalloc((size_t)paper->columns * (size_t)paper->rows * sizeof *paper->levels);
    for (int row = 0; row < paper->rows; row++)
        for (int column = 0; column < paper->columns; column++)
            paper->levels[(size_t)row * (size_t)paper->columns + (size_t)column] =
                find_paper(picture, column * paper->side, row * paper->side, paper->side);
    paper_filter(paper, true);
    paper_filter(paper, false);
    paper_filter(paper, false);
}

/* The paper under each pixel of a row, between the middles of the squares. */
static void paper_row(const struct paper *paper, int y, int width, float *out) {
    float down = ((float)y + 0.5F) / (float)paper->side - 0.5F;
    int row = (int)floorf(down);
    float below = down - (float)row;
    for (int column = -1; column < paper->columns; column++) {
        float left =
            paper_at(paper, column, row) * (1 - below) + paper_at(paper, column, row + 1) * below;
        float right = paper_at(paper, column + 1, row) * (1 - below) +
                      paper_at(paper, column + 1, row + 1) * below;
        int from = column * paper->side + paper->side / 2, end = from + paper->side;
        for (int x = from < 0 ? 0 : from; x < end && x < width; x++)
            out[x] = left + (right - left) * (float)(x - from) / (float)paper->side;
    }
}

/* The darkest ink becomes black; a page without any keeps its levels. */
static void stretch_ink(struct grey *picture) {
    enum { LIGHT = 200 };
    size_t counts[LEVELS], n = grey_size(picture);
    uint8_t map[LEVELS];
    count_levels(picture, counts);
    int black = find_level(counts, n, 0.005F);
    if (black == 0 || black > LIGHT) return;
    for (int i = 0; i < LEVELS; i++)
        map[i] = (uint8_t)(i <= black ? 0 : (i - black) * 255 / (255 - black));
    for (size_t i = 0; i < n; i++) picture->pixels[i] = map[picture->pixels[i]];
}

void grey_even(struct grey *picture) {
    struct paper paper;
    float *levels = xmalloc((size_t)picture->width * sizeof *levels);
    paper_open(&paper, picture);
    for (int y = 0; y < picture->height; y++) {
        uint8_t *row = grey_row(picture, y);
        paper_row(&paper, y, picture->width, levels);
        for (int x = 0; x < picture->width; x++) {
            float level = 255 * (float)row[x] / fmaxf(levels[x], 16);
            row[x] = (uint8_t)fminf(level, 255);
        }
    }
    free(paper.levels);
    free(levels);
    stretch_ink(picture);
}
