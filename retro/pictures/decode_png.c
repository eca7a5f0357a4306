/* retro/pictures/decode_png.c: PNG by libpng, which no other file knows. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "retro/pictures/decoders.h"

/* All that lives across the library's jump back. */
struct png_reading {
    png_structp png;
    png_infop info;
    jmp_buf back;
    const char *bytes;
    size_t left;
    uint8_t *decoded; /* rows of `channels` bytes a pixel */
    uint8_t **rows;
    size_t channels;
    bool wide_grey; /* two bytes a pixel, the high one first */
    struct picture *out;
    const struct picture_rules *rules;
    enum status status;
    struct error *e;
};

static void png_fail(png_structp png, png_const_charp words) {
    struct png_reading *reading = png_get_error_ptr(png);
    reading->status = error_set(reading->e, STATUS_INVALID, "%s", words);
    longjmp(reading->back, 1);
}

static void png_ignore(png_structp png, png_const_charp words) {
    (void)png;
    (void)words;
}

static void png_give(png_structp png, png_bytep out, size_t n) {
    struct png_reading *reading = png_get_io_ptr(png);
    if (n > reading->left) png_error(png, "the file is cut off");
    memcpy(out, reading->bytes, n);
    reading->bytes += n;
    reading->left -= n;
}

/* Texts and colour profiles change no pixel here and may be compressed: they are not unpacked. */
static void png_skip_texts(struct png_reading *reading) {
    static const png_byte names[] = "iCCP\0zTXt\0iTXt\0tEXt\0sPLT";
    png_set_keep_unknown_chunks(reading->png, PNG_HANDLE_CHUNK_NEVER, names, 5);
}

/* Rows come as RGB, RGBA, or grey of 16 bits. */
static void png_ask_rows(struct png_reading *reading) {
    int depth = png_get_bit_depth(reading->png, reading->info),
        color = png_get_color_type(reading->png, reading->info);
    bool key = png_get_valid(reading->png, reading->info, PNG_INFO_tRNS) != 0;
    reading->wide_grey = depth == 16 && color == PNG_COLOR_TYPE_GRAY && !key;
    if (reading->wide_grey) {
        reading->channels = 2;
    } else {
        if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reading->png);
        if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(reading->png);
        if (key) png_set_tRNS_to_alpha(reading->png);
        if (depth == 16) png_set_strip_16(reading->png);
        if (color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA)
            png_set_gray_to_rgb(reading->png);
        reading->channels = key || (color & PNG_COLOR_MASK_ALPHA) ? 4 : 3;
    }
    png_set_interlace_handling(reading->png);
    png_read_update_info(reading->png, reading->info);
}

static enum status png_take(struct png_reading *reading) {
    size_t width = png_get_image_width(reading->png, reading->info),
           height = png_get_image_height(reading->png, reading->info);
    size_t stride = width * reading->channels;
    enum status status = picture_take(reading->out, (int64_t)width, (int64_t)height, reading->e);
    if (status) return status;
    CHECK(png_get_rowbytes(reading->png, reading->info) == stride);

    reading->decoded = reading->channels == 3 ? reading->out->pixels : malloc(height * stride);
    reading->rows = malloc(height * sizeof *reading->rows);
    if (reading->decoded == NULL || reading->rows == NULL)
        return error_set(reading->e, STATUS_NO_MEMORY,
                         "no memory for a picture of %zu x %zu pixels", width, height);
    for (size_t y = 0; y < height; y++) reading->rows[y] = reading->decoded + y * stride;
    return STATUS_OK;
}

/* The library's failures come back to the first line. */
static enum status png_run(struct png_reading *reading) {
    if (setjmp(reading->back)) return reading->status;
    png_set_read_fn(reading->png, reading, png_give);
    png_set_user_limits(reading->png, PICTURE_MOST_SIDE, PICTURE_MOST_SIDE);
    png_skip_texts(reading);
    png_read_info(reading->png, reading->info);
    reading->status = picture_check_size(png_get_image_width(reading->png, reading->info),
                                         png_get_image_height(reading->png, reading->info),
                                         reading->rules, reading->e);
    if (reading->status) return reading->status;

    png_ask_rows(reading);
    reading->status = png_take(reading);
    if (reading->status) return reading->status;
    png_read_image(reading->png, reading->rows);
    return STATUS_OK;
}

/* Reads the chunks behind the pixels: EXIF may be one. Damage there costs no pixel. */
static void png_read_rest(struct png_reading *reading) {
    struct error ignored, *e = reading->e;
    reading->e = &ignored;
    if (setjmp(reading->back) == 0) png_read_end(reading->png, reading->info);
    reading->e = e;
}

static int png_orientation(struct png_reading *reading) {
    png_uint_32 size = 0;
    png_bytep exif = NULL;
    if (png_get_eXIf_1(reading->png, reading->info, &size, &exif) == 0) return 1;
    return exif_orientation((struct text_span){(const char *)exif, size});
}

static void png_finish(struct png_reading *reading) {
    size_t n = (size_t)reading->out->width * (size_t)reading->out->height;
    if (reading->channels == 4)
        picture_blend(reading->out->pixels, reading->decoded, n, reading->rules->background);
    for (size_t i = 0; reading->wide_grey && i < n; i++) {
        uint8_t grey = reading->decoded[2 * i] == 0 ? reading->decoded[2 * i + 1] : 255;
        memset(reading->out->pixels + 3 * i, grey, 3);
    }
}

enum status picture_decode_png(struct picture *out, struct text_span bytes,
                               const struct picture_rules *rules, int *orientation,
                               struct error *e) {
    struct png_reading reading = {
        .bytes = bytes.text, .left = bytes.size, .out = out, .rules = rules, .e = e};
    reading.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, png_fail, png_ignore);
    reading.info = reading.png ? png_create_info_struct(reading.png) : NULL;
    enum status status = reading.info ? png_run(&reading)
                                      : error_set(e, STATUS_NO_MEMORY, "no memory for the decoder");
    if (status == STATUS_OK) {
        png_finish(&reading);
        png_read_rest(&reading);
        *orientation = png_orientation(&reading);
    }

    if (reading.decoded != out->pixels) free(reading.decoded);
    free(reading.rows);
    png_destroy_read_struct(&reading.png, &reading.info, NULL);
    return status;
}
