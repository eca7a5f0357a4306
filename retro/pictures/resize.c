/* retro/pictures/resize.c: which passes a change of size takes, and in which order. */
#include "retro/pictures/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/pictures/decoders.h"
#include "retro/pictures/resize_taps.h"

static const uint8_t *picture_row(const struct picture *picture, int y) {
    return picture->pixels + 3 * (size_t)y * (size_t)picture->width;
}

/* Rows on their way to another width. */
struct row_pass {
    const struct picture *in;
    struct resize_taps taps;
    int width;
    uint8_t *copies; /* of RESIZE_LINES rows and what lies behind them */
};

static enum status row_pass_open(struct row_pass *pass, const struct picture *in, int width,
                                 struct resize_way way, struct error *e) {
    size_t bytes = RESIZE_LINES * (3 * (size_t)in->width + RESIZE_ROW_SLACK);
    *pass = (struct row_pass){.in = in, .width = width};
    if (resize_taps_make(&pass->taps, in->width, width, way, e)) return e->status;
    pass->copies = calloc(1, bytes);
    return pass->copies
               ? STATUS_OK
               : error_set(e, STATUS_NO_MEMORY, "no memory for rows of %d pixels", in->width);
}

static void row_pass_close(struct row_pass *pass) {
    resize_taps_free(&pass->taps);
    free(pass->copies);
}

/* Row y with RESIZE_ROW_SLACK readable bytes behind it: where it is, or copy number `copy`. */
static const uint8_t *row_with_slack(const struct row_pass *pass, int y, int copy) {
    size_t stride = 3 * (size_t)pass->in->width,
           behind = (size_t)(pass->in->height - 1 - y) * stride;
    if (behind >= RESIZE_ROW_SLACK) return picture_row(pass->in, y);
    return memcpy(pass->copies + (size_t)copy * (stride + RESIZE_ROW_SLACK),
                  picture_row(pass->in, y), stride);
}

/* Rows [first, end), one behind the other at `out`. */
static void row_pass_run(const struct row_pass *pass, uint8_t *out, int first, int end) {
    for (int y = first; y < end; y += RESIZE_LINES) {
        struct resize_lines lines;
        for (int i = 0; i < RESIZE_LINES; i++) {
            int row = min_int(y + i, end - 1);
            lines.in[i] = row_with_slack(pass, row, i);
            lines.out[i] = out + 3 * (size_t)(row - first) * (size_t)pass->width;
        }
        resize_rows(&lines, &pass->taps, pass->width);
    }
}

/* All rows to `width` pixels. */
static enum status resize_all_rows(struct picture *out, const struct picture *in, int width,
                                   struct resize_way way, struct error *e) {
    struct row_pass pass;
    enum status status = row_pass_open(&pass, in, width, way, e);
    if (status == STATUS_OK) status = picture_take(out, width, in->height, e);
    if (status == STATUS_OK) row_pass_run(&pass, out->pixels, 0, in->height);
    row_pass_close(&pass);
    return status;
}

/* The rows that some row of the output is made of, at most. */
static int taps_most(const struct resize_taps *taps, int to) {
    int most = 1;
    for (int i = 0; i < to; i++) most = max_int(most, taps->count[i]);
    return most;
}

/* Both passes, rows first. The rows between them are made a band at a time, which stays in cache.
 */
struct resize_bands {
    struct row_pass rows;
    struct resize_taps columns;
    uint8_t *band; /* rows [first, end) of those between the passes, at most `most` */
    int most, first, end;
};

enum { BAND_BYTES = 64 << 10 };

static enum status bands_open(struct resize_bands *bands, const struct picture *in, int width,
                              int height, struct resize_way way, struct error *e) {
    size_t stride = 3 * (size_t)width;
    *bands = (struct resize_bands){0};
    enum status status = row_pass_open(&bands->rows, in, width, way, e);
    if (status == STATUS_OK) status = resize_taps_make(&bands->columns, in->height, height, way, e);
    if (status) return status;
    bands->most = max_int(2 * taps_most(&bands->columns, height), (int)(BAND_BYTES / stride));
    bands->most = min_int(bands->most, in->height);
    status = picture_check_size(width, bands->most, &picture_default_rules, e);
    if (status) return status;
    bands->band = malloc((size_t)bands->most * stride);
    return bands->band ? STATUS_OK
                       : error_set(e, STATUS_NO_MEMORY, "no memory for %d rows of %d pixels",
                                   bands->most, width);
}

static void bands_close(struct resize_bands *bands) {
    row_pass_close(&bands->rows);
    resize_taps_free(&bands->columns);
    free(bands->band);
}

/* The band begins at row `first`, and holds as many rows as there is room for. */
static void bands_move(struct resize_bands *bands, int first) {
    size_t stride = 3 * (size_t)bands->rows.width, kept = (size_t)max_int(0, bands->end - first);
    if (kept > 0)
        memmove(bands->band, bands->band + (size_t)(first - bands->first) * stride, kept * stride);
    bands->first = first;
    bands->end = min_int(bands->rows.in->height, first + bands->most);
    row_pass_run(&bands->rows, bands->band + kept * stride, first + (int)kept, bands->end);
}

static enum status resize_in_bands(struct picture *out, const struct picture *in, int width,
                                   int height, struct resize_way way, struct error *e) {
    struct resize_bands bands;
    enum status status = bands_open(&bands, in, width, height, way, e);
    if (status == STATUS_OK) status = picture_take(out, width, height, e);
    for (int y = 0; status == STATUS_OK && y < height; y++) {
        int first = bands.columns.first[y];
        if (first + bands.columns.count[y] > bands.end) bands_move(&bands, first);
        resize_column(out->pixels + 3 * (size_t)y * (size_t)width, bands.band, width,
                      &bands.columns, y, bands.first);
    }
    bands_close(&bands);
    return status;
}

/* All columns to `height` pixels. */
static enum status resize_columns(struct picture *out, const struct picture *in, int height,
                                  struct resize_way way, struct error *e) {
    struct resize_taps taps;
    enum status status = resize_taps_make(&taps, in->height, height, way, e);
    if (status == STATUS_OK) status = picture_take(out, in->width, height, e);
    for (int y = 0; status == STATUS_OK && y < height; y++)
        resize_column(out->pixels + 3 * (size_t)y * (size_t)in->width, in->pixels, in->width, &taps,
                      y, 0);
    resize_taps_free(&taps);
    return status;
}

static enum status resize_passes(struct picture *out, const struct picture *in, int width,
                                 int height, struct resize_way way, struct error *e) {
    bool columns_first = way.library == RESIZE_AS_PILLOW && in->height > height &&
                         in->height - height > 2 * (int64_t)(in->width - width);
    struct picture between = {0};
    if (width == in->width) return resize_columns(out, in, height, way, e);
    if (height == in->height) return resize_all_rows(out, in, width, way, e);
    if (!columns_first) return resize_in_bands(out, in, width, height, way, e);

    enum status status = resize_columns(&between, in, height, way, e);
    if (status == STATUS_OK) status = resize_all_rows(out, &between, width, way, e);
    picture_free(&between);
    return status;
}

/* The input pixel under the middle of output pixel i. Pillow adds steps of doubles up; torchvision
 * (NEAREST_EXACT) multiplies floats. */
static void nearest_places(int *places, int from, int to, enum resize_library library) {
    double step = (double)from / to, at = step * 0.5;
    float scale = (float)from / (float)to;
    for (int i = 0; i < to; i++) {
        int place = library == RESIZE_AS_PILLOW ? (int)at : (int)floorf(((float)i + 0.5f) * scale);
        places[i] = min_int(place, from - 1);
        at += step;
    }
}

static enum status resize_nearest(struct picture *out, const struct picture *in, int width,
                                  int height, enum resize_library library, struct error *e) {
    enum status status = picture_take(out, width, height, e);
    if (status) return status;
    int *columns = malloc((size_t)width * sizeof *columns),
        *rows = malloc((size_t)height * sizeof *rows);
    bool taken = columns && rows;
    if (taken) {
        nearest_places(columns, in->width, width, library);
        nearest_places(rows, in->height, height, library);
    }

    uint8_t *to = out->pixels;
    for (int y = 0; taken && y < height; y++) {
        const uint8_t *row = picture_row(in, rows[y]);
        for (int x = 0; x < width; x++, to += 3) memcpy(to, row + 3 * (size_t)columns[x], 3);
    }
    free(columns);
    free(rows);
    return taken ? STATUS_OK
                 : error_set(e, STATUS_NO_MEMORY, "no memory to resize to %d x %d", width, height);
}

static enum status resize_copy(struct picture *out, const struct picture *in, struct error *e) {
    enum status status = picture_take(out, in->width, in->height, e);
    if (status) return status;
    memcpy(out->pixels, in->pixels, 3 * (size_t)in->width * (size_t)in->height);
    return STATUS_OK;
}

enum status picture_resize(struct picture *out, const struct picture *in, int width, int height,
                           struct resize_way way, struct error *e) {
    *out = (struct picture){0};
    enum status status = picture_check_size(width, height, &picture_default_rules, e);
    if (status)
        return error_prefix(e, "a picture of %d x %d pixels, resized", in->width, in->height);

    if (width == in->width && height == in->height)
        status = resize_copy(out, in, e);
    else if (way.filter == RESIZE_NEAREST)
        status = resize_nearest(out, in, width, height, way.library, e);
    else
        status = resize_passes(out, in, width, height, way, e);
    if (status) picture_free(out);
    return status;
}
