/* retro/run/tower/tile_order.c: see tile_order.h. */
#include "retro/run/tower/tile_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/model/model_private.h"

/* The lines and columns of rows that are kept of the tiles put together. */
struct kept_part {
    int top, height, left, width;
};

bool model_arranges(const struct model *model) { return model->spec.picture.arranged; }

static int tile_count(const struct model *model, const struct picture_cut *cut) {
    return tower_count(model, TOWER_PROJECTED, cut->height, cut->width);
}

/* One side that was filled up: `side` rows, of which a picture that was scaled by `scale` has
 * original * scale. */
static int count_filled(int side, int original, double scale) {
    int used = (int)(nearbyint((double)original * scale * 1e7) / 1e7);
    return max_int(0, (side - used) / 2);
}

static struct kept_part find_part(const struct model *model, const struct picture_cut *cut) {
    int patch = model->spec.tower.patch;
    struct kept_part part = {.height = cut->rows * (cut->height / patch),
                             .width = cut->columns * (cut->width / patch)};
    double original = (double)cut->original_width / cut->original_height,
           now = (double)part.width / part.height;
    if (original > now) {
        part.top = count_filled(part.height, cut->original_height,
                                (double)part.width / cut->original_width);
        part.height -= 2 * part.top;
    } else {
        part.left = count_filled(part.width, cut->original_width,
                                 (double)part.height / cut->original_height);
        part.width -= 2 * part.left;
    }
    return part;
}

int tile_order_count(const struct model *model, const struct picture_cut *cut) {
    int tile = tile_count(model, cut);
    if (!model_arranges(model)) return cut->tiles * tile;
    if (cut->rows == 0) return tile + 1;
    struct kept_part part = find_part(model, cut);
    return tile + part.height * (part.width + 1);
}

/* The row of the tiles put together at a line and a column, among the rows of all tiles. */
static size_t find_row(const struct model *model, const struct picture_cut *cut, int line,
                       int column) {
    int patch = model->spec.tower.patch, h = cut->height / patch, w = cut->width / patch;
    int tile = 1 + line / h * cut->columns + column / w;
    return (size_t)tile * (size_t)tile_count(model, cut) + (size_t)(line % h * w + column % w);
}

static enum status read_newline(float *to, const struct model *model, struct error *e) {
    backend_download(model->backend, to, model->newline.data,
                     (size_t)model->newline.cols * sizeof *to);
    return backend_sync(model->backend, e);
}

/* The lines of the tiles, each with the newline's row behind it. */
static void put_lines(float *to, const float *from, const float *newline, const struct model *model,
                      const struct picture_cut *cut) {
    struct kept_part part = find_part(model, cut);
    size_t d = (size_t)model->newline.cols, bytes = d * sizeof *to;
    for (int line = part.top; line < part.top + part.height; line++) {
        for (int column = part.left; column < part.left + part.width; column++, to += d)
            memcpy(to, from + find_row(model, cut, line, column) * d, bytes);
        memcpy(to, newline, bytes);
        to += d;
    }
}

enum status tile_order_rows(float *to, const float *from, const struct model *model,
                            const struct picture_cut *cut, struct error *e) {
    size_t d = (size_t)tower_columns(model, TOWER_PROJECTED),
           tile = (size_t)tile_count(model, cut) * d;
    bool arranges = model_arranges(model);
    memcpy(to, from, (arranges ? 1 : (size_t)cut->tiles) * tile * sizeof *to);
    if (!arranges) return STATUS_OK;

    float *newline = xmalloc(d * sizeof *newline);
    enum status status = read_newline(newline, model, e);
    if (status == STATUS_OK && cut->rows == 0) memcpy(to + tile, newline, d * sizeof *newline);
    if (status == STATUS_OK && cut->rows > 0) put_lines(to + tile, from, newline, model, cut);
    free(newline);
    return status;
}
