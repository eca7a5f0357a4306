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

bool model_arranges(const struct model *m) { return m->spec.picture.arranged; }

static int tile_count(const struct model *m, const struct picture_cut *cut) {
    return tower_count(m, TOWER_PROJECTED, cut->height, cut->width);
}

/* One side that was filled up: `side` rows, of which a picture that was scaled by `scale` has original * scale. */
static int count_filled(int side, int original, double scale) {
    int used = (int)(nearbyint((double)original * scale * 1e7) / 1e7);
    return max_int(0, (side - used) / 2);
}

static struct kept_part find_part(const struct model *m, const struct picture_cut *cut) {
    int patch = m->spec.tower.patch;
    struct kept_part p = {.height = cut->rows * (cut->height / patch), .width = cut->columns * (cut->width / patch)};
    double original = (double)cut->original_width / cut->original_height, now = (double)p.width / p.height;
    if (original > now) {
        p.top = count_filled(p.height, cut->original_height, (double)p.width / cut->original_width);
        p.height -= 2 * p.top;
    } else {
        p.left = count_filled(p.width, cut->original_width, (double)p.height / cut->original_height);
        p.width -= 2 * p.left;
    }
    return p;
}

int tile_order_count(const struct model *m, const struct picture_cut *cut) {
    int tile = tile_count(m, cut);
    if (!model_arranges(m)) return cut->tiles * tile;
    if (cut->rows == 0) return tile + 1;
    struct kept_part p = find_part(m, cut);
    return tile + p.height * (p.width + 1);
}

/* The row of the tiles put together at a line and a column, among the rows of all tiles. */
static size_t find_row(const struct model *m, const struct picture_cut *cut, int line, int column) {
    int patch = m->spec.tower.patch, h = cut->height / patch, w = cut->width / patch;
    int tile = 1 + line / h * cut->columns + column / w;
    return (size_t)tile * (size_t)tile_count(m, cut) + (size_t)(line % h * w + column % w);
}

static enum status read_newline(float *to, const struct model *m, struct error *e) {
    backend_download(m->backend, to, m->newline.data, (size_t)m->newline.cols * sizeof *to);
    return backend_sync(m->backend, e);
}

/* The lines of the tiles, each with the newline's row behind it. */
static void put_lines(float *to, const float *from, const float *newline, const struct model *m,
                      const struct picture_cut *cut) {
    struct kept_part p = find_part(m, cut);
    size_t d = (size_t)m->newline.cols, bytes = d * sizeof *to;
    for (int line = p.top; line < p.top + p.height; line++) {
        for (int column = p.left; column < p.left + p.width; column++, to += d)
            memcpy(to, from + find_row(m, cut, line, column) * d, bytes);
        memcpy(to, newline, bytes);
        to += d;
    }
}

enum status tile_order_rows(float *to, const float *from, const struct model *m, const struct picture_cut *cut,
                            struct error *e) {
    size_t d = (size_t)tower_columns(m, TOWER_PROJECTED), tile = (size_t)tile_count(m, cut) * d;
    bool arranges = model_arranges(m);
    memcpy(to, from, (arranges ? 1 : (size_t)cut->tiles) * tile * sizeof *to);
    if (!arranges) return STATUS_OK;

    float *newline = xmalloc(d * sizeof *newline);
    enum status status = read_newline(newline, m, e);
    if (status == STATUS_OK && cut->rows == 0) memcpy(to + tile, newline, d * sizeof *newline);
    if (status == STATUS_OK && cut->rows > 0) put_lines(to + tile, from, newline, m, cut);
    free(newline);
    return status;
}
