/* retro/run/tower/tower_layout.c: patches, positions and kept rows of packed pictures. See tower_layout.h. */
#include "retro/run/tower/tower_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int tower_patch_columns(const struct model *m) { return tower_spec_values(&m->spec.tower); }

static enum status read_conditioning(struct tower_layout *l, const struct model *m, struct error *e) {
    for (int c = 0; c < 3; c++) {
        l->mean[c] = 0;
        l->deviation[c] = 1;
    }
    if (!m->spec.tower.conditioned) return STATUS_OK;
    backend_download(m->backend, l->mean, m->tower.mean.data, sizeof l->mean);
    backend_download(m->backend, l->deviation, m->tower.deviation.data, sizeof l->deviation);
    return backend_sync(m->backend, e);
}

size_t tower_layout_row_bytes(const struct model *m) {
    enum { INTS = 6 }; /* row_of, places, first, patch_of, class_of */
    const struct tower_layout *l = NULL;
    size_t corner = sizeof *l->corners[0].rows + sizeof *l->corners[0].weights + sizeof *l->kept[0];
    return (size_t)tower_patch_columns(m) * sizeof *l->patches + sizeof *l->spans + sizeof *l->windows +
           INTS * sizeof *l->row_of + TOWER_CORNERS * corner;
}

enum status tower_layout_open(struct tower_layout *l, const struct model *m, int max_rows, struct error *e) {
    size_t rows = (size_t)max_rows;
    l->patches = xmalloc(rows * (size_t)tower_patch_columns(m) * sizeof *l->patches);
    l->spans = xmalloc(rows * sizeof *l->spans);
    l->windows = xmalloc(rows * sizeof *l->windows);
    l->row_of = xmalloc(rows * sizeof *l->row_of);
    l->places = xcalloc(2 * rows, sizeof *l->places);
    l->first = xmalloc(rows * sizeof *l->first);
    l->patch_of = xmalloc(rows * sizeof *l->patch_of);
    l->class_of = xmalloc(rows * sizeof *l->class_of);
    for (int i = 0; i < TOWER_CORNERS; i++) {
        l->corners[i].rows = xmalloc(rows * sizeof *l->corners[i].rows);
        l->corners[i].weights = xmalloc(rows * sizeof *l->corners[i].weights);
        l->kept[i] = xmalloc(rows * sizeof *l->kept[i]);
    }
    return read_conditioning(l, m, e);
}

void tower_layout_close(struct tower_layout *l) {
    free(l->patches);
    free(l->spans);
    free(l->windows);
    free(l->row_of);
    free(l->places);
    free(l->first);
    free(l->patch_of);
    free(l->class_of);
    for (int i = 0; i < TOWER_CORNERS; i++) {
        free(l->corners[i].rows);
        free(l->corners[i].weights);
        free(l->kept[i]);
    }
}

/* One line of a patch of channel c. */
static void cut_line(const struct tower_layout *l, float *to, const float *from, int n, int c) {
    for (int i = 0; i < n; i++) to[i] = (from[i] - l->mean[c]) / l->deviation[c];
}

/* Channel c of the patch at (y, x): `from` is its first pixel. Returns what follows it. */
static float *cut_channel(const struct tower_layout *l, float *to, const float *from, int width, int side, int c) {
    for (int i = 0; i < side; i++) {
        cut_line(l, to, from + (size_t)i * (size_t)width, side, c);
        to += side;
    }
    return to;
}

/* Patches, row-major (docs/spec/vision-model.md 2 step 1). A picture stands still: its frames are the same. */
static void cut_patches(const struct tower_layout *l, float *to, const struct tower_picture *p,
                        const struct tower_spec *s) {
    int side = s->patch, frames = max_int(1, s->frames);
    size_t plane = (size_t)p->height * (size_t)p->width;
    for (int y = 0; y < p->height; y += side)
        for (int x = 0; x < p->width; x += side)
            for (int i = 0; i < 3 * frames; i++) {
                int c = i / frames;
                const float *from = p->pixels + (size_t)c * plane + (size_t)y * (size_t)p->width + (size_t)x;
                to = cut_channel(l, to, from, p->width, side, c);
            }
}

/* One side of a resized table: entry i of `out` lies between entries `low` and `low` + 1 of `in`. */
struct between {
    int low, high;
    float weight; /* of high */
};

/* As torch's bilinear interpolation, in f32. */
static struct between find_between(int i, int in, int out, bool corners) {
    float at = 0;
    if (corners)
        at = out > 1 ? (float)i * ((float)(in - 1) / (float)(out - 1)) : 0;
    else
        at = fmaxf(0, ((float)i + 0.5f) * ((float)in / (float)out) - 0.5f);
    int low = min_int((int)at, in - 1);
    return (struct between){low, min_int(low + 1, in - 1), at - (float)low};
}

/* How a grid reads the table (docs/spec/vision-model.md 2): `in` entries of a side are resized to `out`. */
struct resize {
    int in_h, in_w, out_h, out_w;
};

static struct resize find_resize(const struct tower_spec *s, int grid_h, int grid_w) {
    struct resize r = {s->table_h, s->table_w, s->table_h, s->table_w};
    if (grid_h == s->table_h && grid_w == s->table_w) return r;
    if (s->windows) {
        r.out_h = r.out_w = max_int(grid_h, grid_w);
        return r;
    }
    r.in_h = min_int(grid_h, s->table_h);
    r.in_w = min_int(grid_w, s->table_w);
    r.out_h = grid_h;
    r.out_w = grid_w;
    return r;
}

/* Row `row` has the position of the patch at (y, x). */
static void place_patch(struct tower_layout *l, const struct tower_spec *s, const struct resize *r, int row, int y,
                        int x) {
    l->places[2 * row] = y;
    l->places[2 * row + 1] = x;
    if (s->table_h == 0) return;
    int first = s->class_positions ? s->class_tokens : 0;
    struct between v = find_between(y, r->in_h, r->out_h, s->corners);
    struct between h = find_between(x, r->in_w, r->out_w, s->corners);
    const int lines[TOWER_CORNERS] = {v.low, v.low, v.high, v.high};
    const int columns[TOWER_CORNERS] = {h.low, h.high, h.low, h.high};
    const float weights[TOWER_CORNERS] = {(1 - v.weight) * (1 - h.weight), (1 - v.weight) * h.weight,
                                          v.weight * (1 - h.weight), v.weight * h.weight};
    for (int i = 0; i < TOWER_CORNERS; i++) {
        l->corners[i].rows[row] = first + lines[i] * s->table_w + columns[i];
        l->corners[i].weights[row] = weights[i];
    }
}

/* A class token has one of the table's first positions, or none: a row of zeros. */
static void place_class(struct tower_layout *l, const struct tower_spec *s, int row, int i) {
    l->patch_of[row] = -1;
    l->class_of[row] = i;
    for (int k = 0; k < TOWER_CORNERS; k++) {
        l->corners[k].rows[row] = s->class_positions && k == 0 ? i : -1;
        l->corners[k].weights[row] = k == 0;
    }
}

/* Patches of a picture, by lines and columns: those at (y, x) with top <= y < bottom and left <= x < right. */
struct patch_area {
    int top, left, bottom, right;
};

/* Gives the patches of an area rows from `row` on, 2 x 2 after 2 x 2. Returns the row behind them. */
static int order_area(struct tower_layout *l, const struct patch_area *a, int grid_w, int row) {
    for (int y = a->top; y < a->bottom; y += 2)
        for (int x = a->left; x < a->right; x += 2)
            for (int i = 0; i < TOWER_CORNERS; i++) {
                l->row_of[(y + i / 2) * grid_w + x + i % 2] = row;
                row++;
            }
    return row;
}

/* The same for the windows of a picture, line by line; each is a span. Those at the right and at the bottom may be
 * smaller. */
static void order_windows(struct tower_layout *l, int side, int grid_h, int grid_w, int row) {
    for (int y = 0; y < grid_h; y += side)
        for (int x = 0; x < grid_w; x += side) {
            struct patch_area area = {y, x, min_int(y + side, grid_h), min_int(x + side, grid_w)};
            int end = order_area(l, &area, grid_w, row), n = end - row;
            l->windows[l->n_windows] = (struct attention_span){row, n, row, n};
            l->n_windows++;
            row = end;
        }
}

/* l->row_of, of a picture whose rows of patches begin at `first`. */
static void order_patches(struct tower_layout *l, const struct tower_spec *s, int first, int grid_h, int grid_w) {
    if (s->attended > 0) {
        order_windows(l, s->attended, grid_h, grid_w, first);
    } else if (s->oblong) {
        order_area(l, &(struct patch_area){0, 0, grid_h, grid_w}, grid_w, first);
    } else {
        for (int i = 0; i < grid_h * grid_w; i++) l->row_of[i] = first + i;
    }
}

/* The rows that the projector reads of a picture whose rows begin at `first`. */
static void keep_rows(struct tower_layout *l, const struct tower_spec *s, int first, int grid_h, int grid_w) {
    int patches = first + s->class_tokens;
    if (s->shuffle == 2) {
        for (int y = 0; y < grid_h; y += 2)
            for (int x = 0; x < grid_w; x += 2) {
                for (int i = 0; i < TOWER_CORNERS; i++)
                    l->kept[i][l->n_kept] = l->row_of[(y + i / 2) * grid_w + x + i % 2];
                l->n_kept++;
            }
        return;
    }
    for (int row = s->drops_class ? patches : first; row < patches + grid_h * grid_w; row++) {
        l->kept[0][l->n_kept] = row;
        l->n_kept++;
    }
}

static void add_picture(struct tower_layout *l, const struct model *m, const struct tower_picture *p) {
    const struct tower_spec *s = &m->spec.tower;
    int grid_h = p->height / s->patch, grid_w = p->width / s->patch, first = l->n_rows;
    struct resize r = find_resize(s, grid_h, grid_w);
    cut_patches(l, l->patches + (size_t)l->n_patches * (size_t)tower_patch_columns(m), p, s);
    order_patches(l, s, first + s->class_tokens, grid_h, grid_w);
    for (int i = 0; i < s->class_tokens; i++) place_class(l, s, first + i, i);
    for (int i = 0; i < grid_h * grid_w; i++) {
        int row = l->row_of[i];
        l->patch_of[row] = l->n_patches + i;
        l->class_of[row] = -1;
        place_patch(l, s, &r, row, i / grid_w, i % grid_w);
    }
    keep_rows(l, s, first, grid_h, grid_w);

    l->resized = l->resized || r.in_h != r.out_h || r.in_w != r.out_w;
    l->n_patches += grid_h * grid_w;
    l->n_rows += s->class_tokens + grid_h * grid_w;
    l->first[l->n_pictures] = first;
    l->spans[l->n_pictures] = (struct attention_span){first, l->n_rows - first, first, l->n_rows - first};
    l->n_pictures++;
}

void tower_layout_fill(struct tower_layout *l, const struct model *m, const struct tower_picture *pictures, int n) {
    l->n_pictures = l->n_windows = l->n_patches = l->n_rows = l->n_kept = 0;
    l->resized = false;
    for (int i = 0; i < n; i++) add_picture(l, m, &pictures[i]);
}
