/* retro/pictures/resize.c: which passes a change of size takes, and in which order. */
#include "retro/pictures/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/pictures/decoders.h"
#include "retro/pictures/resize_taps.h"

static const uint8_t *picture_row(const struct picture *p, int y) {
    return p->pixels + 3 * (size_t)y * (size_t)p->width;
}

/* All rows to `width` pixels. */
static enum status resize_rows(struct picture *out, const struct picture *in, int width, struct resize_way way,
                               struct error *e) {
    size_t stride = 3 * (size_t)in->width;
    struct resize_taps taps;
    uint8_t *row = calloc(1, stride + RESIZE_ROW_SLACK);
    if (row == NULL) return error_set(e, STATUS_NO_MEMORY, "no memory for a row of %d pixels", in->width);
    enum status status = resize_taps_make(&taps, in->width, width, way, e);
    if (status == STATUS_OK) status = picture_take(out, width, in->height, e);

    for (int y = 0; status == STATUS_OK && y < in->height; y++) {
        memcpy(row, picture_row(in, y), stride);
        resize_row(out->pixels + 3 * (size_t)y * (size_t)width, row, &taps, width);
    }
    resize_taps_free(&taps);
    free(row);
    return status;
}

/* All columns to `height` pixels. */
static enum status resize_columns(struct picture *out, const struct picture *in, int height, struct resize_way way,
                                  struct error *e) {
    struct resize_taps taps;
    enum status status = resize_taps_make(&taps, in->height, height, way, e);
    if (status == STATUS_OK) status = picture_take(out, in->width, height, e);
    for (int y = 0; status == STATUS_OK && y < height; y++)
        resize_column(out->pixels + 3 * (size_t)y * (size_t)in->width, in->pixels, in->width, &taps, y);
    resize_taps_free(&taps);
    return status;
}

static enum status resize_passes(struct picture *out, const struct picture *in, int width, int height,
                                 struct resize_way way, struct error *e) {
    bool columns_first = way.library == RESIZE_AS_PILLOW && in->height > height &&
                         in->height - height > 2 * (int64_t)(in->width - width);
    struct picture between = {0};
    enum status status;
    if (width == in->width) return resize_columns(out, in, height, way, e);
    if (height == in->height) return resize_rows(out, in, width, way, e);

    status = columns_first ? resize_columns(&between, in, height, way, e) : resize_rows(&between, in, width, way, e);
    if (status == STATUS_OK)
        status =
            columns_first ? resize_rows(out, &between, width, way, e) : resize_columns(out, &between, height, way, e);
    picture_free(&between);
    return status;
}

/* The input pixel under the middle of output pixel i. Pillow adds steps of doubles up; torchvision (NEAREST_EXACT)
 * multiplies floats. */
static void nearest_places(int *places, int from, int to, enum resize_library library) {
    double step = (double)from / to, at = step * 0.5;
    float scale = (float)from / (float)to;
    for (int i = 0; i < to; i++) {
        int place = library == RESIZE_AS_PILLOW ? (int)at : (int)floorf(((float)i + 0.5f) * scale);
        places[i] = min_int(place, from - 1);
        at += step;
    }
}

static enum status resize_nearest(struct picture *out, const struct picture *in, int width, int height,
                                  enum resize_library library, struct error *e) {
    enum status status = picture_take(out, width, height, e);
    if (status) return status;
    int *columns = malloc((size_t)width * sizeof *columns), *rows = malloc((size_t)height * sizeof *rows);
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
    return taken ? STATUS_OK : error_set(e, STATUS_NO_MEMORY, "no memory to resize to %d x %d", width, height);
}

static enum status resize_copy(struct picture *out, const struct picture *in, struct error *e) {
    enum status status = picture_take(out, in->width, in->height, e);
    if (status) return status;
    memcpy(out->pixels, in->pixels, 3 * (size_t)in->width * (size_t)in->height);
    return STATUS_OK;
}

enum status picture_resize(struct picture *out, const struct picture *in, int width, int height, struct resize_way way,
                           struct error *e) {
    *out = (struct picture){0};
    enum status status = picture_check_size(width, height, &picture_default_rules, e);
    if (status) return error_prefix(e, "a picture of %d x %d pixels, resized", in->width, in->height);

    if (width == in->width && height == in->height)
        status = resize_copy(out, in, e);
    else if (way.filter == RESIZE_NEAREST)
        status = resize_nearest(out, in, width, height, way.library, e);
    else
        status = resize_passes(out, in, width, height, way, e);
    if (status) picture_free(out);
    return status;
}
