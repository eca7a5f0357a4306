/* retrieval/extract/ocr/grey.c: sizes, turns and noise. See grey.h. */
#include "retrieval/extract/ocr/grey.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void grey_make(struct grey *picture, int width, int height) {
    CHECK(width > 0 && height > 0);
    *picture = (struct grey){.width = width, .height = height};
    picture->pixels = xmalloc(grey_size(picture));
}

void grey_free(struct grey *picture) {
    free(picture->pixels);
    *picture = (struct grey){0};
}

static void grey_replace(struct grey *picture, struct grey *made) {
    grey_free(picture);
    *picture = *made;
    *made = (struct grey){0};
}

/* Neighbours. */

static inline uint8_t least(uint8_t a, uint8_t b) { return a < b ? a : b; }
static inline uint8_t most(uint8_t a, uint8_t b) { return a > b ? a : b; }
static inline uint8_t middle(uint8_t a, uint8_t b, uint8_t c) {
    return most(least(a, b), least(most(a, b), c));
}

/* The rows above, at and below y; those of the edges stand for what is beyond. */
static void find_rows(const struct grey *picture, int y, const uint8_t *rows[3]) {
    rows[0] = grey_row(picture, y > 0 ? y - 1 : 0);
    rows[1] = grey_row(picture, y);
    rows[2] = grey_row(picture, y + 1 < picture->height ? y + 1 : y);
}

/* Each column of three in order; then the median of nine is the middle of the largest of the least,
 * the middle of the middle ones, and the least of the largest. */
static void median_row(const uint8_t *const rows[3], uint8_t *const sorted[3], int width,
                       uint8_t *out) {
    for (int x = 0; x < width; x++) {
        uint8_t a = rows[0][x], b = rows[1][x], c = rows[2][x];
        sorted[0][x] = least(least(a, b), c);
        sorted[1][x] = middle(a, b, c);
        sorted[2][x] = most(most(a, b), c);
    }
    out[0] = sorted[1][0];
    out[width - 1] = sorted[1][width - 1];
    for (int x = 1; x + 1 < width; x++) {
        uint8_t low = most(most(sorted[0][x - 1], sorted[0][x]), sorted[0][x + 1]);
        uint8_t mid = middle(sorted[1][x - 1], sorted[1][x], sorted[1][x + 1]);
        uint8_t high = least(least(sorted[2][x - 1], sorted[2][x]), sorted[2][x + 1]);
        out[x] = middle(low, mid, high);
    }
}

void grey_median(struct grey *picture) {
    struct grey out;
    size_t width = (size_t)picture->width;
    uint8_t *columns = xmalloc(3 * width);
    uint8_t *const sorted[3] = {columns, columns + width, columns + 2 * width};
    const uint8_t *rows[3];
    grey_make(&out, picture->width, picture->height);
    for (int y = 0; y < picture->height; y++) {
        find_rows(picture, y, rows);
        median_row(rows, sorted, picture->width, grey_row(&out, y));
    }
    free(columns);
    grey_replace(picture, &out);
}

void grey_blur(struct grey *picture) {
    struct grey out;
    const uint8_t *rows[3];
    uint16_t *sums = xmalloc((size_t)picture->width * sizeof *sums);
    grey_make(&out, picture->width, picture->height);
    for (int y = 0; y < picture->height; y++) {
        uint8_t *to = grey_row(&out, y);
        find_rows(picture, y, rows);
        for (int x = 0; x < picture->width; x++)
            sums[x] = (uint16_t)(rows[0][x] + 2 * rows[1][x] + rows[2][x]);
        to[0] = (uint8_t)(sums[0] / 4);
        to[picture->width - 1] = (uint8_t)(sums[picture->width - 1] / 4);
        for (int x = 1; x + 1 < picture->width; x++)
            to[x] = (uint8_t)((sums[x - 1] + 2 * sums[x] + sums[x + 1] + 8) / 16);
    }
    free(sums);
    grey_replace(picture, &out);
}

static bool is_dot(const uint8_t *const rows[3], int x) {
    enum { FAR = 60 };
    int level = rows[1][x], nearest = 255;
    for (int i = 0; i < 3; i++)
        for (int j = -1; j <= 1; j++) {
            int distance = abs(level - rows[i][x + j]);
            if ((i != 1 || j != 0) && distance < nearest) nearest = distance;
        }
    return nearest > FAR;
}

struct grey_noise grey_measure_noise(const struct grey *picture) {
    const uint8_t *rows[3];
    size_t dots = 0, n = 0;
    double sum = 0;
    /* Immerkaer 1996: what is left of the picture behind a filter that lines and edges pass.
     * Every other row is enough. */
    for (int y = 1; y + 1 < picture->height; y += 2) {
        int32_t row = 0;
        find_rows(picture, y, rows);
        for (int x = 1; x + 1 < picture->width; x++) {
            int corners = rows[0][x - 1] + rows[0][x + 1] + rows[2][x - 1] + rows[2][x + 1];
            int sides = rows[0][x] + rows[2][x] + rows[1][x - 1] + rows[1][x + 1];
            int rest = corners - 2 * sides + 4 * rows[1][x];
            row += abs(rest);
            if (abs(rest) > 120) dots += is_dot(rows, x);
        }
        sum += row;
        n += (size_t)(picture->width > 2 ? picture->width - 2 : 0);
    }
    if (n == 0) return (struct grey_noise){0};
    return (struct grey_noise){.dots = (float)dots / (float)n,
                               .grain = (float)(sqrt(M_PI / 2) * sum / (6.0 * (double)n))};
}

/* Turns. */

void grey_mirror(struct grey *picture) {
    for (int y = 0; y < picture->height; y++) {
        uint8_t *row = grey_row(picture, y);
        for (int left = 0, right = picture->width - 1; left < right; left++, right--) {
            uint8_t pixel = row[left];
            row[left] = row[right];
            row[right] = pixel;
        }
    }
}

void grey_turn(struct grey *picture, int quarters) {
    enum { TILE = 32 }; /* both pictures stay in the cache */
    struct grey out;
    bool upright = quarters % 2 == 0;
    int width = picture->width, height = picture->height;
    if ((quarters & 3) == 0) return;
    grey_make(&out, upright ? width : height, upright ? height : width);
    for (int top = 0; top < height; top += TILE)
        for (int left = 0; left < width; left += TILE)
            for (int y = top; y < height && y < top + TILE; y++) {
                const uint8_t *row = grey_row(picture, y);
                for (int x = left; x < width && x < left + TILE; x++) {
                    if (upright)
                        grey_row(&out, height - 1 - y)[width - 1 - x] = row[x];
                    else if ((quarters & 3) == 1)
                        grey_row(&out, x)[height - 1 - y] = row[x];
                    else
                        grey_row(&out, width - 1 - x)[y] = row[x];
                }
            }
    grey_replace(picture, &out);
}

/* A place between four pixels, in parts of 256. */
static uint8_t sample(const struct grey *picture, int32_t x, int32_t y) {
    int left = x >> 8, top = y >> 8, along = x & 255, down = y & 255;
    if (left < 0 || top < 0 || left + 1 >= picture->width || top + 1 >= picture->height) return 255;
    const uint8_t *row = grey_row(picture, top) + left, *next = row + picture->width;
    int above = row[0] * (256 - along) + row[1] * along;
    int below = next[0] * (256 - along) + next[1] * along;
    return (uint8_t)((above * (256 - down) + below * down + 32768) >> 16);
}

void grey_rotate(struct grey *picture, float degrees) {
    struct grey out;
    double angle = (double)degrees * M_PI / 180, across = cos(angle), along = sin(angle);
    double middle_x = picture->width / 2.0, middle_y = picture->height / 2.0;
    grey_make(&out, picture->width, picture->height);
    for (int y = 0; y < picture->height; y++) {
        uint8_t *row = grey_row(&out, y);
        double down = y - middle_y;
        double from_x = along * down - across * middle_x + middle_x;
        double from_y = across * down + along * middle_x + middle_y;
        for (int x = 0; x < picture->width; x++)
            row[x] = sample(picture, (int32_t)((from_x + across * x) * 256),
                            (int32_t)((from_y - along * x) * 256));
    }
    grey_replace(picture, &out);
}

void grey_invert(struct grey *picture) {
    size_t n = grey_size(picture);
    for (size_t i = 0; i < n; i++) picture->pixels[i] = (uint8_t)(255 - picture->pixels[i]);
}

/* Sizes. */

/* A row of the picture to `width` numbers; what is left of a pixel goes to the next one. */
static void shrink_row(const uint8_t *row, int from, float *out, int width) {
    float step = (float)from / (float)width, start = 0;
    for (int x = 0; x < width; x++) {
        float end = x + 1 < width ? start + step : (float)from, sum = 0;
        for (int i = (int)start; i < from && (float)i < end; i++) {
            float left = fmaxf(start, (float)i), right = fminf(end, (float)(i + 1));
            sum += (right - left) * (float)row[i];
        }
        out[x] = sum / (end - start);
        start = end;
    }
}

static void stretch_row(const uint8_t *row, int from, float *out, int width) {
    float step = (float)from / (float)width;
    for (int x = 0; x < width; x++) {
        float at = fmaxf(((float)x + 0.5F) * step - 0.5F, 0);
        int i = (int)at, next = i + 1 < from ? i + 1 : i;
        out[x] = (float)row[i] + (at - (float)i) * (float)(row[next] - row[i]);
    }
}

static void scale_row(const struct grey *picture, int y, float *out, int width) {
    const uint8_t *row = grey_row(picture, y);
    if (width < picture->width)
        shrink_row(row, picture->width, out, width);
    else
        stretch_row(row, picture->width, out, width);
}

static void add_row(float *sum, const float *row, float share, int width) {
    for (int x = 0; x < width; x++) sum[x] += share * row[x];
}

static void store_row(uint8_t *to, const float *row, int width) {
    for (int x = 0; x < width; x++) to[x] = (uint8_t)(fminf(row[x], 255) + 0.5F);
}

/* The rows that become row y, and the share of each. */
static void gather_rows(const struct grey *picture, int y, const struct grey *out, float *row,
                        float *sum) {
    float step = (float)picture->height / (float)out->height;
    float start = (float)y * step, end = fminf(start + step, (float)picture->height);
    if (out->height >= picture->height) {
        float at = fmaxf(((float)y + 0.5F) * step - 0.5F, 0);
        start = fminf(at, (float)(picture->height - 1));
        end = start + 1;
    }
    for (int i = (int)start; (float)i < end; i++) {
        float share = fminf(end, (float)(i + 1)) - fmaxf(start, (float)i);
        if (share <= 0) continue;
        scale_row(picture, i < picture->height ? i : picture->height - 1, row, out->width);
        add_row(sum, row, share / (end - start), out->width);
    }
}

void grey_scale(struct grey *picture, int width, int height) {
    struct grey out;
    if (width == picture->width && height == picture->height) return;
    grey_make(&out, width, height);
    float *row = xmalloc((size_t)width * sizeof *row), *sum = xmalloc((size_t)width * sizeof *sum);
    for (int y = 0; y < height; y++) {
        memset(sum, 0, (size_t)width * sizeof *sum);
        gather_rows(picture, y, &out, row, sum);
        store_row(grey_row(&out, y), sum, width);
    }
    free(row);
    free(sum);
    grey_replace(picture, &out);
}

void grey_cut(const struct grey *picture, int left, int top, int width, int height,
              struct grey *out) {
    CHECK(left >= 0 && top >= 0 && left + width <= picture->width &&
          top + height <= picture->height);
    grey_make(out, width, height);
    for (int y = 0; y < height; y++)
        memcpy(grey_row(out, y), grey_row(picture, top + y) + left, (size_t)width);
}
