/* retro/pictures/resize_taps.h: the weights of one pass of resizing. */
#pragma once

#include "retro/pictures/resize.h"

/* Output pixel i is the sum of weight(i, j) times input pixel first[i] + j over j < count[i], over
 * 2^bits, rounded. A weight is high 2^15 + low with 0 <= low < 2^15, so that products with pixels
 * fit 16-bit multiplication. The weights of one pixel are `stride` apart from the next one's, a
 * multiple of RESIZE_TAPS; those behind its count are zero. */
struct resize_taps {
    int *first, *count;
    int16_t *low, *high;
    int stride, bits;
};

enum { RESIZE_LOW_BITS = 15, RESIZE_TAPS = 4 };

/* From `from` to `to` pixels. */
enum status resize_taps_make(struct resize_taps *taps, int from, int to, struct resize_way way,
                             struct error *e);
void resize_taps_free(struct resize_taps *taps);

/* Rows that are made side by side, for a pixel's weights serve all of them. An input row has
 * RESIZE_ROW_SLACK readable bytes behind its pixels. A line may be there more than once. */
enum { RESIZE_LINES = 4, RESIZE_ROW_SLACK = 16 };
struct resize_lines {
    const uint8_t *in[RESIZE_LINES];
    uint8_t *out[RESIZE_LINES];
};

/* Makes `to` pixels of each line. */
void resize_rows(const struct resize_lines *lines, const struct resize_taps *taps, int to);
/* Row y of the output from rows of `width` pixels at `pixels`, of which the first is number `above`
 * of the input. */
void resize_column(uint8_t *out, const uint8_t *pixels, int width, const struct resize_taps *taps,
                   int y, int above);
