/* retro/run/tower/tower_layout.c: patches, positions and kept rows of packed pictures. See
 * tower_layout.h. */
#include "retro/run/tower/tower_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int tower_patch_columns(const struct model *model) { return tower_spec_values(&model->spec.tower); }

static enum status read_conditioning(struct tower_layout *layout, const struct model *model,
                                     struct error *e) {
    for (int c = 0; c < 3; c++) {
        layout->mean[c] = model->spec.tower.centered ? 0.5f : 0;
        layout->deviation[c] = model->spec.tower.centered ? 0.5f : 1;
    }
    if (!model->spec.tower.conditioned) return STATUS_OK;
    backend_download(model->backend, layout->mean, model->tower.mean.data, sizeof layout->mean);
    backend_download(model->backend, layout->deviation, model->tower.deviation.data,
                     sizeof layout->deviation);
    return backend_sync(model->backend, e);
}

size_t tower_layout_row_bytes(const struct model *model) {
    /* row_of, places, first, patch_of, class_of; averaged, no_rows, first_row, minus */
    int ints = model->spec.tower.averaged > 0 ? 10 : 6;
    const struct tower_layout *layout = NULL;
    size_t corner = sizeof *layout->corners[0].rows + sizeof *layout->corners[0].weights +
                    sizeof *layout->kept[0];
    return (size_t)tower_patch_columns(model) * sizeof *layout->patches + sizeof *layout->spans +
           sizeof *layout->windows + (size_t)ints * sizeof *layout->row_of + TOWER_CORNERS * corner;
}

static void open_means(struct tower_layout *layout, int side, int max_rows) {
    size_t n = (size_t)side * (size_t)side;
    layout->most_means = (int)(((size_t)max_rows + n - 1) / n);
    layout->averaged = xcalloc(n * (size_t)layout->most_means, sizeof *layout->averaged);
    layout->no_rows = xmalloc((size_t)layout->most_means * sizeof *layout->no_rows);
    layout->first_row = xcalloc((size_t)layout->most_means, sizeof *layout->first_row);
    layout->minus = xmalloc((size_t)layout->most_means * sizeof *layout->minus);
    for (int i = 0; i < layout->most_means; i++) {
        layout->no_rows[i] = -1;
        layout->minus[i] = -1;
    }
}

enum status tower_layout_open(struct tower_layout *layout, const struct model *model, int max_rows,
                              struct error *e) {
    size_t rows = (size_t)max_rows;
    layout->patches = xmalloc(rows * (size_t)tower_patch_columns(model) * sizeof *layout->patches);
    layout->spans = xmalloc(rows * sizeof *layout->spans);
    layout->windows = xmalloc(rows * sizeof *layout->windows);
    layout->row_of = xmalloc(rows * sizeof *layout->row_of);
    layout->places = xcalloc(2 * rows, sizeof *layout->places);
    layout->first = xmalloc(rows * sizeof *layout->first);
    layout->patch_of = xmalloc(rows * sizeof *layout->patch_of);
    layout->class_of = xmalloc(rows * sizeof *layout->class_of);
    for (int i = 0; i < TOWER_CORNERS; i++) {
        layout->corners[i].rows = xmalloc(rows * sizeof *layout->corners[i].rows);
        layout->corners[i].weights = xmalloc(rows * sizeof *layout->corners[i].weights);
        layout->kept[i] = xmalloc(rows * sizeof *layout->kept[i]);
    }
    if (model->spec.tower.averaged > 0) open_means(layout, model->spec.tower.averaged, max_rows);
    return read_conditioning(layout, model, e);
}

void tower_layout_close(struct tower_layout *layout) {
    free(layout->patches);
    free(layout->spans);
    free(layout->windows);
    free(layout->row_of);
    free(layout->places);
    free(layout->first);
    free(layout->patch_of);
    free(layout->class_of);
    free(layout->averaged);
    free(layout->no_rows);
    free(layout->first_row);
    free(layout->minus);
    for (int i = 0; i < TOWER_CORNERS; i++) {
        free(layout->corners[i].rows);
        free(layout->corners[i].weights);
        free(layout->kept[i]);
    }
}

/* One line of a patch of channel c. */
static void cut_line(const struct tower_layout *layout, float *to, const float *from, int n,
                     int c) {
    for (int i = 0; i < n; i++) to[i] = (from[i] - layout->mean[c]) / layout->deviation[c];
}

/* Channel c of the patch at (y, x): `from` is its first pixel. Returns what follows it. */
static float *cut_channel(const struct tower_layout *layout, float *to, const float *from,
                          int width, int side, int c) {
    for (int i = 0; i < side; i++) {
        cut_line(layout, to, from + (size_t)i * (size_t)width, side, c);
        to += side;
    }
    return to;
}

/* The patch whose first pixel is `from`, as y, x, channel. */
static void cut_pixels(const struct tower_layout *layout, float *to, const float *from, int width,
                       size_t plane, int side) {
    for (int i = 0; i < 3 * side * side; i++) {
        int c = i % 3, y = i / 3 / side, x = i / 3 % side;
        float value = from[(size_t)c * plane + (size_t)y * (size_t)width + (size_t)x];
        to[i] = (value - layout->mean[c]) / layout->deviation[c];
    }
}

/* Likewise the patch as channel, frame, y, x. */
static void cut_planes(const struct tower_layout *layout, float *to, const float *from, int width,
                       size_t plane, const struct tower_spec *tower) {
    int frames = max_int(1, tower->frames);
    for (int i = 0; i < 3 * frames; i++) {
        int c = i / frames;
        to = cut_channel(layout, to, from + (size_t)c * plane, width, tower->patch, c);
    }
}

/* Patches, row-major (docs/spec/vision-model.md 2 step 1). A picture stands still: its frames are
 * the same. */
static void cut_patches(const struct tower_layout *layout, float *to,
                        const struct tower_picture *picture, const struct tower_spec *tower) {
    int side = tower->patch, width = picture->width;
    size_t plane = (size_t)picture->height * (size_t)width;
    for (int y = 0; y < picture->height; y += side)
        for (int x = 0; x < width; x += side) {
            const float *from = picture->pixels + (size_t)y * (size_t)width + (size_t)x;
            if (tower->by_pixel)
                cut_pixels(layout, to, from, width, plane, side);
            else
                cut_planes(layout, to, from, width, plane, tower);
            to += tower_spec_values(tower);
        }
}

/* One side of a resized table: entry i of `out` lies between entries `low` and `low` + 1 of `in`.
 */
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

/* How a grid reads the table (docs/spec/vision-model.md 2): `in` entries of a side are resized to
 * `out`. */
struct resize {
    int in_h, in_w, out_h, out_w;
};

static struct resize find_resize(const struct tower_spec *tower, int grid_h, int grid_w) {
    struct resize resize = {tower->table_h, tower->table_w, tower->table_h, tower->table_w};
    if (tower->sums_sides || (grid_h == tower->table_h && grid_w == tower->table_w)) return resize;
    if (tower->windows) {
        resize.out_h = resize.out_w = max_int(grid_h, grid_w);
        return resize;
    }
    if (!tower->stretches) {
        resize.in_h = min_int(grid_h, tower->table_h);
        resize.in_w = min_int(grid_w, tower->table_w);
    }
    resize.out_h = grid_h;
    resize.out_w = grid_w;
    return resize;
}

/* Row `row` has the sum of the positions of column x and of line y. */
static void place_sides(struct tower_layout *layout, const struct tower_spec *tower, int row, int y,
                        int x) {
    layout->corners[0].rows[row] = x;
    layout->corners[1].rows[row] = tower->table_w + y;
    for (int i = 0; i < 2; i++) layout->corners[i].weights[row] = 1;
}

/* Row `row` has the position of the patch at (y, x). */
static void place_patch(struct tower_layout *layout, const struct tower_spec *tower,
                        const struct resize *resize, int row, int y, int x) {
    layout->places[2 * row] = y;
    layout->places[2 * row + 1] = x;
    if (tower->sums_sides) place_sides(layout, tower, row, y, x);
    if (tower->table_h == 0 || tower->sums_sides) return;
    int first = tower->class_positions ? tower->class_tokens : 0;
    struct between between = find_between(y, resize->in_h, resize->out_h, tower->corners);
    struct between the_between = find_between(x, resize->in_w, resize->out_w, tower->corners);
    const int lines[TOWER_CORNERS] = {between.low, between.low, between.high, between.high};
    const int columns[TOWER_CORNERS] = {the_between.low, the_between.high, the_between.low,
                                        the_between.high};
    const float weights[TOWER_CORNERS] = {
        (1 - between.weight) * (1 - the_between.weight), (1 - between.weight) * the_between.weight,
        between.weight * (1 - the_between.weight), between.weight * the_between.weight};
    for (int i = 0; i < TOWER_CORNERS; i++) {
        layout->corners[i].rows[row] = first + lines[i] * tower->table_w + columns[i];
        layout->corners[i].weights[row] = weights[i];
    }
}

/* A class token has one of the table's first positions, or none: a row of zeros. */
static void place_class(struct tower_layout *layout, const struct tower_spec *tower, int row,
                        int i) {
    layout->patch_of[row] = -1;
    layout->class_of[row] = i;
    for (int k = 0; k < TOWER_CORNERS; k++) {
        layout->corners[k].rows[row] = tower->class_positions && k == 0 ? i : -1;
        layout->corners[k].weights[row] = k == 0;
    }
}

/* Patches of a picture, by lines and columns: those at (y, x) with top <= y < bottom and left <= x
 * < right. */
struct patch_area {
    int top, left, bottom, right;
};

/* Gives the patches of an area rows from `row` on, 2 x 2 after 2 x 2. Returns the row behind them.
 */
static int order_area(struct tower_layout *layout, const struct patch_area *area, int grid_w,
                      int row) {
    for (int y = area->top; y < area->bottom; y += 2)
        for (int x = area->left; x < area->right; x += 2)
            for (int i = 0; i < TOWER_CORNERS; i++) {
                layout->row_of[(y + i / 2) * grid_w + x + i % 2] = row;
                row++;
            }
    return row;
}

/* The same for the windows of a picture, line by line; each is a span. Those at the right and at
 * the bottom may be smaller. */
static void order_windows(struct tower_layout *layout, int side, int grid_h, int grid_w, int row) {
    for (int y = 0; y < grid_h; y += side)
        for (int x = 0; x < grid_w; x += side) {
            struct patch_area area = {y, x, min_int(y + side, grid_h), min_int(x + side, grid_w)};
            int end = order_area(layout, &area, grid_w, row), n = end - row;
            layout->windows[layout->n_windows] = (struct attention_span){row, n, row, n, 0};
            layout->n_windows++;
            row = end;
        }
}

/* layout->row_of, of a picture whose rows of patches begin at `first`. */
static void order_patches(struct tower_layout *layout, const struct tower_spec *tower, int first,
                          int grid_h, int grid_w) {
    if (tower->attended > 0) {
        order_windows(layout, tower->attended, grid_h, grid_w, first);
    } else if (tower->oblong && tower->shuffle == 2) {
        order_area(layout, &(struct patch_area){0, 0, grid_h, grid_w}, grid_w, first);
    } else {
        for (int i = 0; i < grid_h * grid_w; i++) layout->row_of[i] = first + i;
    }
}

/* The square of patches whose first is at (y, x) is the projector's next row. */
static void keep_mean(struct tower_layout *layout, int side, int grid_w, int y, int x) {
    for (int i = 0; i < side * side; i++)
        layout->averaged[(size_t)i * (size_t)layout->most_means + (size_t)layout->n_kept] =
            layout->row_of[(y + i / side) * grid_w + x + i % side];
    layout->n_kept++;
}

/* The rows that the projector reads of a picture whose rows begin at `first`. */
static void keep_rows(struct tower_layout *layout, const struct tower_spec *tower, int first,
                      int grid_h, int grid_w) {
    int patches = first + tower->class_tokens, side = tower->averaged;
    if (side > 0) {
        for (int y = 0; y < grid_h; y += side)
            for (int x = 0; x < grid_w; x += side) keep_mean(layout, side, grid_w, y, x);
        return;
    }
    if (tower->shuffle == 2) {
        for (int y = 0; y < grid_h; y += 2)
            for (int x = 0; x < grid_w; x += 2) {
                for (int i = 0; i < TOWER_CORNERS; i++)
                    layout->kept[i][layout->n_kept] =
                        layout->row_of[(y + i / 2) * grid_w + x + i % 2];
                layout->n_kept++;
            }
        return;
    }
    for (int row = tower->drops_class ? patches : first; row < patches + grid_h * grid_w; row++) {
        layout->kept[0][layout->n_kept] = row;
        layout->n_kept++;
    }
}

static void add_picture(struct tower_layout *layout, const struct model *model,
                        const struct tower_picture *picture) {
    const struct tower_spec *tower = &model->spec.tower;
    int grid_h = picture->height / tower->patch, grid_w = picture->width / tower->patch,
        first = layout->n_rows;
    struct resize resize = find_resize(tower, grid_h, grid_w);
    cut_patches(layout,
                layout->patches + (size_t)layout->n_patches * (size_t)tower_patch_columns(model),
                picture, tower);
    order_patches(layout, tower, first + tower->class_tokens, grid_h, grid_w);
    for (int i = 0; i < tower->class_tokens; i++) place_class(layout, tower, first + i, i);
    for (int i = 0; i < grid_h * grid_w; i++) {
        int row = layout->row_of[i];
        layout->patch_of[row] = layout->n_patches + i;
        layout->class_of[row] = -1;
        place_patch(layout, tower, &resize, row, i / grid_w, i % grid_w);
    }
    keep_rows(layout, tower, first, grid_h, grid_w);

    layout->resized = layout->resized || resize.in_h != resize.out_h || resize.in_w != resize.out_w;
    layout->n_patches += grid_h * grid_w;
    layout->n_rows += tower->class_tokens + grid_h * grid_w;
    layout->first[layout->n_pictures] = first;
    layout->spans[layout->n_pictures] =
        (struct attention_span){first, layout->n_rows - first, first, layout->n_rows - first, 0};
    layout->n_pictures++;
}

void tower_layout_fill(struct tower_layout *layout, const struct model *model,
                       const struct tower_picture *pictures, int n) {
    layout->n_pictures = layout->n_windows = layout->n_patches = layout->n_rows = layout->n_kept =
        0;
    layout->resized = false;
    for (int i = 0; i < n; i++) add_picture(layout, model, &pictures[i]);
}
