/* retro/pictures/preprocessor.c: the steps from a picture to the numbers of a tower. */
#include "retro/pictures/preprocessor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/pictures/preprocessor_sizes.h"

void picture_tiles_free(struct picture_tiles *tiles) {
    free(tiles->pixels);
    *tiles = (struct picture_tiles){0};
}

/* A picture of width x height pixels, all of one colour. */
static enum status picture_fill(struct picture *out, int width, int height, const uint8_t color[3],
                                struct error *e) {
    enum status status = picture_take(out, width, height, e);
    if (status) return status;
    size_t n = (size_t)width * (size_t)height;
    for (size_t i = 0; i < n; i++) memcpy(out->pixels + 3 * i, color, 3);
    return STATUS_OK;
}

/* Lays `in` over *out, its first pixel at (x, y), which may be negative; pixels that fall outside
 * are left out. */
static void picture_lay(struct picture *out, const struct picture *in, int x, int y) {
    int left = max_int(x, 0), right = min_int(x + in->width, out->width);
    int top = max_int(y, 0), bottom = min_int(y + in->height, out->height);
    for (int row = top; row < bottom && left < right; row++) {
        size_t to = 3 * ((size_t)row * (size_t)out->width + (size_t)left);
        size_t from = 3 * ((size_t)(row - y) * (size_t)in->width + (size_t)(left - x));
        memcpy(out->pixels + to, in->pixels + from, 3 * (size_t)(right - left));
    }
}

/* Where the first of `from` pixels lies among `to`, of which it is the middle. Where black is added
 * on both sides and its number is odd, the back ends differ in the side that gets more. */
static int middle(int from, int to, enum resize_library library) {
    if (from >= to) return -((from - to) / 2);
    return library == RESIZE_AS_PILLOW ? (to - from + 1) / 2 : (to - from) / 2;
}

static enum status picture_crop(struct picture *out, const struct picture *in,
                                struct picture_size size, enum resize_library library,
                                struct error *e) {
    static const uint8_t black[3] = {0, 0, 0};
    enum status status = picture_fill(out, size.width, size.height, black, e);
    if (status) return status;
    picture_lay(out, in, middle(in->width, size.width, library),
                middle(in->height, size.height, library));
    return STATUS_OK;
}

/* Around the picture comes the mean's colour. */
static enum status picture_square(struct picture *out, const struct picture *in,
                                  const struct preprocessor *preprocessor, struct error *e) {
    int side = max_int(in->width, in->height);
    uint8_t color[3];
    for (size_t i = 0; i < 3; i++)
        color[i] = (uint8_t)max_int(0, min_int((int)(preprocessor->mean[i] * 255), 255));
    enum status status = picture_fill(out, side, side, color, e);
    if (status) return status;
    picture_lay(out, in, (side - in->width) / 2, (side - in->height) / 2);
    return STATUS_OK;
}

/* Resizes and cuts one picture, which stays the caller's. */
static enum status tile_prepare(struct picture *out, const struct picture *in,
                                const struct preprocessor *preprocessor, struct error *e) {
    struct picture_size given = {in->height, in->width}, size = given;
    struct picture resized;
    enum status status =
        preprocessor->resize ? resized_size(&size, preprocessor, given, e) : STATUS_OK;
    if (status == STATUS_OK)
        status = picture_resize(&resized, in, size.width, size.height, preprocessor->way, e);
    if (status) return status;
    if (preprocessor->crop) {
        status = picture_crop(out, &resized, preprocessor->cut, preprocessor->way.library, e);
        picture_free(&resized);
    } else {
        *out = resized;
    }
    return status;
}

/* The value of each of 256 levels in a channel. The order of roundings is each back end's own. */
static void levels_fill(float levels[256], const struct preprocessor *preprocessor, int channel) {
    bool pillow = preprocessor->way.library == RESIZE_AS_PILLOW,
         fused = !pillow && preprocessor->rescale && preprocessor->normalize;
    float mean = (float)preprocessor->mean[channel],
          deviation = (float)preprocessor->deviation[channel];
    if (fused) {
        float whole = (float)(1.0 / preprocessor->factor);
        mean *= whole;
        deviation *= whole;
    }
    for (int level = 0; level < 256; level++) {
        float value = (float)level;
        if (preprocessor->rescale && !fused)
            value = pillow ? (float)(level * preprocessor->factor)
                           : value * (float)preprocessor->factor;
        if (preprocessor->normalize) value = (value - mean) / deviation;
        levels[level] = value;
    }
}

static void tile_normalize(float *pixels, const struct picture *in,
                           const struct preprocessor *preprocessor) {
    size_t n = (size_t)in->width * (size_t)in->height;
    float levels[3][256], *red = pixels, *green = pixels + n, *blue = pixels + 2 * n;
    for (int channel = 0; channel < 3; channel++)
        levels_fill(levels[channel], preprocessor, channel);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *pixel = in->pixels + 3 * i;
        red[i] = levels[0][pixel[0]];
        green[i] = levels[1][pixel[1]];
        blue[i] = levels[2][pixel[2]];
    }
}

/* The picture as large as fits the grid, with black around it. */
static enum status grid_fill(struct picture *out, const struct picture *in,
                             struct picture_size grid, struct resize_way way, struct error *e) {
    static const uint8_t black[3] = {0, 0, 0};
    double wide = (double)grid.width / in->width, high = (double)grid.height / in->height;
    int width = wide < high ? grid.width : min_int((int)ceil(in->width * high), grid.width);
    int height = wide < high ? min_int((int)ceil(in->height * wide), grid.height) : grid.height;
    struct picture resized;
    enum status status = picture_resize(&resized, in, width, height, way, e);
    if (status == STATUS_OK) status = picture_fill(out, grid.width, grid.height, black, e);
    if (status == STATUS_OK)
        picture_lay(out, &resized, (grid.width - width) / 2, (grid.height - height) / 2);
    picture_free(&resized);
    return status;
}

/* Adds one picture, prepared, to the tiles, of which there will be out->tiles. */
static enum status tiles_add(struct picture_tiles *out, int tile, const struct picture *in,
                             const struct preprocessor *preprocessor, struct error *e) {
    struct picture prepared = {0};
    enum status status = tile_prepare(&prepared, in, preprocessor, e);
    if (status) return status;
    size_t n = 3 * (size_t)prepared.width * (size_t)prepared.height;
    if (tile == 0) {
        out->width = prepared.width;
        out->height = prepared.height;
        out->pixels = malloc((size_t)out->tiles * n * sizeof *out->pixels);
    }

    if (out->pixels == NULL)
        status = error_set(e, STATUS_NO_MEMORY, "no memory for %d tiles of %d x %d pixels",
                           out->tiles, prepared.width, prepared.height);
    else if (prepared.width != out->width || prepared.height != out->height)
        status = error_set(
            e, STATUS_INVALID,
            "the tiles become %d x %d pixels and the whole picture %d x %d: the sizes in the "
            "processor's file do not fit together",
            prepared.width, prepared.height, out->width, out->height);
    else
        tile_normalize(out->pixels + (size_t)tile * n, &prepared, preprocessor);
    picture_free(&prepared);
    return status;
}

static enum status tiles_whole(struct picture_tiles *out, const struct preprocessor *preprocessor,
                               const struct picture *in, struct error *e) {
    out->tiles = 1;
    if (preprocessor->kind != PREPROCESSOR_LLAVA || !preprocessor->pad)
        return tiles_add(out, 0, in, preprocessor, e);
    struct picture square = {0};
    enum status status = picture_square(&square, in, preprocessor, e);
    if (status == STATUS_OK) status = tiles_add(out, 0, &square, preprocessor, e);
    picture_free(&square);
    return status;
}

/* Adds the squares of a picture that fills the grid, from tile `first` on. */
static enum status tiles_cut(struct picture_tiles *out, int first, const struct picture *large,
                             const struct preprocessor *preprocessor, struct error *e) {
    int width = large->width / out->columns, height = large->height / out->rows;
    struct picture tile = {0};
    enum status status = picture_take(&tile, width, height, e);
    for (int i = 0; status == STATUS_OK && i < out->rows * out->columns; i++) {
        picture_lay(&tile, large, -(i % out->columns) * width, -(i / out->columns) * height);
        status = tiles_add(out, first + i, &tile, preprocessor, e);
    }
    picture_free(&tile);
    return status;
}

/* The whole picture as a square, then the tiles of the grid. */
static enum status tiles_next(struct picture_tiles *out, const struct preprocessor *preprocessor,
                              const struct picture *in, struct error *e) {
    struct picture_size grid =
                            grid_choose(preprocessor, (struct picture_size){in->height, in->width}),
                        whole = preprocessor->size;
    struct picture small = {0}, large = {0};
    if (preprocessor->shortest_edge > 0)
        whole = (struct picture_size){preprocessor->shortest_edge, preprocessor->shortest_edge};
    out->rows = grid.height / preprocessor->cut.height;
    out->columns = grid.width / preprocessor->cut.height;
    out->tiles = 1 + out->rows * out->columns;

    enum status status =
        picture_resize(&small, in, whole.width, whole.height, preprocessor->way, e);
    if (status == STATUS_OK) status = tiles_add(out, 0, &small, preprocessor, e);
    if (status == STATUS_OK) status = grid_fill(&large, in, grid, preprocessor->way, e);
    if (status == STATUS_OK) status = tiles_cut(out, 1, &large, preprocessor, e);
    picture_free(&small);
    picture_free(&large);
    return status;
}

/* Tiles of the stretched picture, then the whole picture. */
static enum status tiles_stretched(struct picture_tiles *out,
                                   const struct preprocessor *preprocessor,
                                   const struct picture *in, struct error *e) {
    struct picture_size tiles =
        tiles_choose(preprocessor, (struct picture_size){in->height, in->width});
    struct picture large = {0};
    if (tiles.height * tiles.width == 1) return tiles_whole(out, preprocessor, in, e);
    out->rows = tiles.height;
    out->columns = tiles.width;
    out->whole = out->rows * out->columns;
    out->tiles = out->whole + 1;

    enum status status =
        picture_resize(&large, in, tiles.width * preprocessor->size.width,
                       tiles.height * preprocessor->size.height, preprocessor->way, e);
    if (status == STATUS_OK) status = tiles_cut(out, 0, &large, preprocessor, e);
    if (status == STATUS_OK) status = tiles_add(out, out->whole, in, preprocessor, e);
    picture_free(&large);
    return status;
}

enum status preprocessor_run(struct picture_tiles *out, const struct preprocessor *preprocessor,
                             const struct picture *picture, struct error *e) {
    enum status status;
    *out = (struct picture_tiles){.original = {picture->height, picture->width}};
    if (preprocessor->kind == PREPROCESSOR_LLAVA_NEXT)
        status = tiles_next(out, preprocessor, picture, e);
    else if (preprocessor->kind == PREPROCESSOR_TILES && preprocessor->tile)
        status = tiles_stretched(out, preprocessor, picture, e);
    else
        status = tiles_whole(out, preprocessor, picture, e);
    if (status) picture_tiles_free(out);
    return status;
}
