/* retro/model/loader_random.c: random numbers in place of a checkpoint, for benchmarks. See
 * loader.h. */
#include <string.h>

#include "retro/model/loader.h"
#include "retro/model/tensor_shapes.h"

static uint32_t draw_bits(struct loader *loader) {
    loader->random = loader->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(loader->random >> 32);
}

/* Numbers around `centre`. */
static void fill_random(struct loader *loader, void *to, enum dtype dtype, size_t n, float centre) {
    enum { PIECE = 1024 };
    for (size_t at = 0; at < n; at += PIECE) {
        float piece[PIECE];
        size_t count = n - at < PIECE ? n - at : PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = centre + ((float)(draw_bits(loader) >> 8) * 0x1p-24f - 0.5f) * 0.04f;
        dtype_convert((char *)to + at * dtype_bytes(dtype), dtype, piece, DTYPE_F32, count);
    }
}

/* Values of a matrix: a part of one run of numbers that repeats, from a place of the matrix's own.
 * Drawing would take longer than packing does. Quantised values are drawn as such: every bit
 * pattern is a number. */
static const char *draw_values(struct loader *loader, enum dtype dtype, size_t bytes) {
    enum { PERIOD = 1 << 20, GRAIN = 64 }; /* bytes; places are multiples of GRAIN */
    size_t before = loader->rooms[ROOM_RANDOM].bytes;
    char *run =
        bytes > SIZE_MAX - PERIOD ? NULL : loader_room(loader, ROOM_RANDOM, bytes + PERIOD, 1);
    if (run == NULL) return NULL;
    if (before != loader->rooms[ROOM_RANDOM].bytes || loader->random_dtype != dtype) {
        if (dtype_quantised(dtype))
            for (size_t i = 0; i < PERIOD; i++) run[i] = (char)(draw_bits(loader) >> 24);
        else
            fill_random(loader, run, dtype, PERIOD / dtype_bytes(dtype), 0.0f);
        size_t all = loader->rooms[ROOM_RANDOM].bytes;
        for (size_t at = PERIOD; at < all; at += PERIOD)
            memcpy(run + at, run, all - at < PERIOD ? all - at : PERIOD);
        loader->random_dtype = dtype;
    }
    return run + draw_bits(loader) % (PERIOD / GRAIN) * GRAIN;
}

/* Super-blocks have their scales inside; every other bit pattern in them is a number. The scales
 * make the mean 0: with another one all rows would grow alike, and routers would choose the same
 * experts for all tokens. */
static void set_super_scales(char *values, enum dtype dtype, size_t blocks) {
    const size_t bytes = super_block_bytes(dtype);
    const float most = dtype == DTYPE_Q4_K ? 15 : 31; /* of a code */
    const uint16_t six[] = {f32_to_f16(0.02f / 32 / 128)},
                   fewer[] = {f32_to_f16(0.04f / most / 63), f32_to_f16(0.02f / 63)};
    const bool last = dtype == DTYPE_Q6_K;
    for (size_t i = 0; i < blocks; i++)
        memcpy(values + i * bytes + (last ? bytes - sizeof six : 0), last ? six : fewer,
               last ? sizeof six : sizeof fewer);
}

static enum status stage_random_matrix(struct loader *loader, struct staged_place *staged,
                                       struct error *e) {
    const struct model_options *options = loader->options;
    bool blocks = staged->cols % dtype_block(options->dtype) == 0;
    enum dtype dtype = options->convert && (blocks || !dtype_quantised(options->dtype))
                           ? options->dtype
                           : DTYPE_F32;
    if (dtype == DTYPE_FP8) dtype = DTYPE_BF16; /* which the device makes it from */
    staged->planes = (struct matrix_planes){.dtype = dtype, .cols = staged->cols};
    size_t bytes, n = (size_t)staged->rows * ((size_t)staged->cols / QUANTISE_BLOCK);
    bool overflow =
        mul_overflows((size_t)staged->rows, plane_bytes(dtype, PLANE_VALUES, staged->cols), &bytes);
    staged->planes.at[PLANE_VALUES] = overflow ? NULL : draw_values(loader, dtype, bytes);
    uint16_t *scales = loader_room(loader, PLANE_SCALES, n + 1, sizeof *scales);
    uint16_t *minimums = loader_room(loader, PLANE_MINIMUMS, n + 1, sizeof *minimums);
    if (staged->planes.at[PLANE_VALUES] == NULL || scales == NULL || minimums == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory to draw [%d, %d] of %s", staged->rows,
                         staged->cols, dtype_name(dtype));
    uint16_t scale = f32_to_f16(dtype == DTYPE_INT8 ? 0.02f / 127 : 0.04f / 15),
             minimum = f32_to_f16(-0.02f);
    for (size_t i = 0; dtype_quantised(dtype) && i < n; i++) {
        scales[i] = scale;
        minimums[i] = minimum;
    }
    if (dtype_kquant(dtype)) {
        set_super_scales((char *)(uintptr_t)staged->planes.at[PLANE_VALUES], dtype,
                         bytes / super_block_bytes(dtype));
        return STATUS_OK;
    }
    if (dtype_quantised(dtype)) staged->planes.at[PLANE_SCALES] = (char *)scales;
    if (dtype == DTYPE_INT4) staged->planes.at[PLANE_MINIMUMS] = (char *)minimums;
    return STATUS_OK;
}

static bool scales_rows(const struct place *place) {
    return !place->outer && place->rows->rows[place->row].place == offsetof(struct layer, scale);
}

/* Bounds are wide, and the lower ones are below the upper ones. */
static float random_center(const struct place *place) {
    size_t at = place->rows->rows[place->row].place;
    if (place->form == PLACE_GAMMA || scales_rows(place)) return 1;
    if (place->outer || !layer_place_is_clip(at)) return 0;
    bool most = (at - offsetof(struct layer, clips)) / sizeof(struct tensor) % 2 == 1;
    return most ? 100 : -100;
}

/* Small, zero-mean, the same on every run; norms and layers must not vanish, so their gammas and
 * what scales their rows are centred on 1. */
enum status loader_stage_random(struct loader *loader, struct staged_place *staged,
                                const struct place *place, struct error *e) {
    if (place->form == PLACE_MATRIX) return stage_random_matrix(loader, staged, e);
    if (stage_take(loader, staged, DTYPE_F32, e)) return e->status;
    fill_random(loader, staged->room[PLANE_VALUES], DTYPE_F32,
                (size_t)staged->rows * (size_t)staged->cols, random_center(place));
    return STATUS_OK;
}
