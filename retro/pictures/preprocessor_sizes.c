/* retro/pictures/preprocessor_sizes.c: the sizes that processors choose, in the arithmetic of
 * transformers: real numbers are doubles. */
#include "retro/pictures/preprocessor_sizes.h"

#include <math.h>

static int64_t area_of(struct picture_size size) { return (int64_t)size.height * size.width; }

/* get_resize_output_image_size: the shorter side is given. */
static struct picture_size shortest_edge_size(int edge, struct picture_size given) {
    int shorter = min_int(given.width, given.height), longer = max_int(given.width, given.height);
    double stretched = (double)((int64_t)edge * longer) / shorter;
    int length = stretched > INT32_MAX ? INT32_MAX : (int)stretched;
    return given.width <= given.height ? (struct picture_size){length, edge}
                                       : (struct picture_size){edge, length};
}

/* A number of whole factors, in pixels. */
static int factors_length(double count, int factor) { return (int)count * factor; }

/* smart_resize: the sides become multiples of a merged patch, and their product stays within the
 * limits. */
static enum status qwen_size(struct picture_size *out, const struct preprocessor *preprocessor,
                             struct picture_size given, struct error *e) {
    enum { MOST_RATIO = 200 };
    int factor = preprocessor->patch * preprocessor->merge;
    int shorter = min_int(given.width, given.height), longer = max_int(given.width, given.height);
    if (longer > (int64_t)MOST_RATIO * shorter)
        return error_set(e, STATUS_INVALID,
                         "the picture is %d x %d pixels: this model takes no side more than %d "
                         "times as long as the other",
                         given.width, given.height, MOST_RATIO);

    struct picture_size near = {factors_length(rint((double)given.height / factor), factor),
                                factors_length(rint((double)given.width / factor), factor)};
    double area = (double)area_of(given);
    if (area_of(near) > preprocessor->most_pixels) {
        double shrink = sqrt(area / (double)preprocessor->most_pixels);
        near.height =
            max_int(factor, factors_length(floor(given.height / shrink / factor), factor));
        near.width = max_int(factor, factors_length(floor(given.width / shrink / factor), factor));
    } else if (area_of(near) < preprocessor->least_pixels) {
        double grow = sqrt((double)preprocessor->least_pixels / area);
        near.height = factors_length(ceil(given.height * grow / factor), factor);
        near.width = factors_length(ceil(given.width * grow / factor), factor);
    }
    *out = near;
    return STATUS_OK;
}

static int merged_length(int length, int factor) { return (length - 1) / factor * factor + factor; }

int64_t preprocessor_most_pixels(const struct preprocessor *preprocessor) {
    int factor = preprocessor->patch * preprocessor->merge;
    bool limited = preprocessor->kind != PREPROCESSOR_PIXTRAL || preprocessor->most_pixels > 0;
    if (limited) return preprocessor->most_pixels;
    return area_of((struct picture_size){merged_length(preprocessor->size.height, factor),
                                         merged_length(preprocessor->size.width, factor)});
}

/* get_resize_output_image_size of Pixtral: a picture that is too large becomes as large as fits,
 * and the sides are filled up to multiples of a merged patch. Where that has too many pixels, the
 * sides become smaller multiples. */
static enum status pixtral_size(struct picture_size *out, const struct preprocessor *preprocessor,
                                struct picture_size given, struct error *e) {
    int factor = preprocessor->patch * preprocessor->merge;
    double ratio = fmax((double)given.height / preprocessor->size.height,
                        (double)given.width / preprocessor->size.width);
    struct picture_size fit = given;
    if (ratio > 1) {
        fit.height = (int)floor(given.height / ratio);
        fit.width = (int)floor(given.width / ratio);
    }
    if (fit.height < 1 || fit.width < 1)
        return error_set(e, STATUS_INVALID,
                         "the picture is %d x %d pixels: made to fit %d x %d, it has no pixel left",
                         given.width, given.height, preprocessor->size.width,
                         preprocessor->size.height);

    *out =
        (struct picture_size){merged_length(fit.height, factor), merged_length(fit.width, factor)};
    if (preprocessor->most_pixels == 0 || area_of(*out) <= preprocessor->most_pixels)
        return STATUS_OK;
    double shrink = fmax(1, sqrt((double)area_of(fit) / (double)preprocessor->most_pixels));
    out->height = max_int(factor, factors_length(floor(fit.height / shrink / factor), factor));
    out->width = max_int(factor, factors_length(floor(fit.width / shrink / factor), factor));
    return STATUS_OK;
}

void preprocessor_limit_tokens(struct preprocessor *preprocessor, int most) {
    int side = preprocessor->patch * preprocessor->merge;
    preprocessor->most_tokens = most;
    preprocessor->most_pixels = (int64_t)most * side * side;
}

/* One side of merged patches, and as many of them along the other as the picture is longer there.
 */
static int narrow_length(int longer, int shorter, int side, int most) {
    int times = longer / shorter;
    return min_int(times, most) * side;
}

/* get_aspect_ratio_preserving_size: the picture is as large as its tokens allow, in its own shape
 * as far as whole merged patches keep it. */
static enum status gemma4_size(struct picture_size *out, const struct preprocessor *preprocessor,
                               struct picture_size given, struct error *e) {
    int side = preprocessor->patch * preprocessor->merge, most = preprocessor->most_tokens;
    double factor = sqrt((double)preprocessor->most_pixels / (double)area_of(given));
    struct picture_size size = {factors_length(floor(factor * given.height / side), side),
                                factors_length(floor(factor * given.width / side), side)};
    if (size.height == 0 && size.width == 0)
        return error_set(e, STATUS_INVALID,
                         "a picture of %d x %d pixels does not fill a square of %d pixels",
                         given.width, given.height, side);
    if (size.height == 0)
        size = (struct picture_size){side, narrow_length(given.width, given.height, side, most)};
    else if (size.width == 0)
        size = (struct picture_size){narrow_length(given.height, given.width, side, most), side};
    *out = size;
    return STATUS_OK;
}

enum status resized_size(struct picture_size *out, const struct preprocessor *preprocessor,
                         struct picture_size given, struct error *e) {
    if (preprocessor->kind == PREPROCESSOR_QWEN) return qwen_size(out, preprocessor, given, e);
    if (preprocessor->kind == PREPROCESSOR_PIXTRAL)
        return pixtral_size(out, preprocessor, given, e);
    if (preprocessor->kind == PREPROCESSOR_GEMMA4) return gemma4_size(out, preprocessor, given, e);
    *out = preprocessor->shortest_edge > 0 ? shortest_edge_size(preprocessor->shortest_edge, given)
                                           : preprocessor->size;
    return STATUS_OK;
}

struct picture_size grid_choose(const struct preprocessor *preprocessor,
                                struct picture_size given) {
    struct picture_size best = preprocessor->grids[0];
    int64_t most_used = 0, least_wasted = INT64_MAX;
    for (int i = 0; i < preprocessor->grid_count; i++) {
        struct picture_size grid = preprocessor->grids[i];
        double scale = fmin((double)grid.width / given.width, (double)grid.height / given.height);
        int64_t shown = (int64_t)(given.width * scale) * (int64_t)(given.height * scale);
        int64_t used = shown < area_of(given) ? shown : area_of(given),
                wasted = area_of(grid) - used;
        if (used > most_used || (used == most_used && wasted < least_wasted)) {
            best = grid;
            most_used = used;
            least_wasted = wasted;
        }
    }
    return best;
}

struct picture_size tiles_choose(const struct preprocessor *preprocessor,
                                 struct picture_size given) {
    double ratio = (double)given.width / given.height, least = INFINITY;
    struct picture_size best = {1, 1};
    for (int tiles = preprocessor->least_tiles; tiles <= preprocessor->most_tiles; tiles++) {
        for (int width = 1; width <= tiles; width++) {
            if (tiles % width != 0) continue;
            struct picture_size grid = {tiles / width, width};
            double difference = fabs(ratio - (double)grid.width / grid.height);
            /* Of two equally near grids the larger wins, unless half of its pixels would be made
             * up. */
            bool fills = (double)area_of(given) > 0.5 * (double)area_of(preprocessor->size) * tiles;
            if (difference < least || (difference == least && fills)) best = grid;
            least = fmin(least, difference);
        }
    }
    return best;
}
