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
    struct png_reading *r = png_get_error_ptr(png);
    r->status = error_set(r->e, STATUS_INVALID, "%s", words);
    longjmp(r->back, 1);
}

static void png_ignore(png_structp png, png_const_charp words) {
    (void)png;
    (void)words;
}

static void png_give(png_structp png, png_bytep out, size_t n) {
    struct png_reading *r = png_get_io_ptr(png);
    if (n > r->left) png_error(png, "the file is cut off");
    memcpy(out, r->bytes, n);
    r->bytes += n;
    r->left -= n;
}

/* Texts and colour profiles change no pixel here and may be compressed: they are not unpacked. */
static void png_skip_texts(struct png_reading *r) {
    static const png_byte names[] = "iCCP\0zTXt\0iTXt\0tEXt\0sPLT";
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, names, 5);
}

/* Rows come as RGB, RGBA, or grey of 16 bits. */
static void png_ask_rows(struct png_reading *r) {
    int depth = png_get_bit_depth(r->png, r->info), color = png_get_color_type(r->png, r->info);
    bool key = png_get_valid(r->png, r->info, PNG_INFO_tRNS) != 0;
    r->wide_grey = depth == 16 && color == PNG_COLOR_TYPE_GRAY && !key;
    if (r->wide_grey) {
        r->channels = 2;
    } else {
        if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r->png);
        if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(r->png);
        if (key) png_set_tRNS_to_alpha(r->png);
        if (depth == 16) png_set_strip_16(r->png);
        if (color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(r->png);
        r->channels = key || (color & PNG_COLOR_MASK_ALPHA) ? 4 : 3;
    }
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

static enum status png_take(struct png_reading *r) {
    size_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    size_t stride = width * r->channels;
    enum status status = picture_take(r->out, (int64_t)width, (int64_t)height, r->e);
    if (status) return status;
    CHECK(png_get_rowbytes(r->png, r->info) == stride);

    r->decoded = r->channels == 3 ? r->out->pixels : malloc(height * stride);
    r->rows = malloc(height * sizeof *r->rows);
    if (r->decoded == NULL || r->rows == NULL)
        return error_set(r->e, STATUS_NO_MEMORY, "no memory for a picture of %zu x %zu pixels", width, height);
    for (size_t y = 0; y < height; y++) r->rows[y] = r->decoded + y * stride;
    return STATUS_OK;
}

/* The library's failures come back to the first line. */
static enum status png_run(struct png_reading *r) {
    if (setjmp(r->back)) return r->status;
    png_set_read_fn(r->png, r, png_give);
    png_set_user_limits(r->png, PICTURE_MOST_SIDE, PICTURE_MOST_SIDE);
    png_skip_texts(r);
    png_read_info(r->png, r->info);
    r->status =
        picture_check_size(png_get_image_width(r->png, r->info), png_get_image_height(r->png, r->info), r->rules, r->e);
    if (r->status) return r->status;

    png_ask_rows(r);
    r->status = png_take(r);
    if (r->status) return r->status;
    png_read_image(r->png, r->rows);
    return STATUS_OK;
}

/* Reads the chunks behind the pixels: EXIF may be one. Damage there costs no pixel. */
static void png_read_rest(struct png_reading *r) {
    struct error ignored, *e = r->e;
    r->e = &ignored;
    if (setjmp(r->back) == 0) png_read_end(r->png, r->info);
    r->e = e;
}

static int png_orientation(struct png_reading *r) {
    png_uint_32 size = 0;
    png_bytep exif = NULL;
    if (png_get_eXIf_1(r->png, r->info, &size, &exif) == 0) return 1;
    return exif_orientation((struct text_span){(const char *)exif, size});
}

static void png_finish(struct png_reading *r) {
    size_t n = (size_t)r->out->width * (size_t)r->out->height;
    if (r->channels == 4) picture_blend(r->out->pixels, r->decoded, n, r->rules->background);
    for (size_t i = 0; r->wide_grey && i < n; i++) {
        uint8_t grey = r->decoded[2 * i] == 0 ? r->decoded[2 * i + 1] : 255;
        memset(r->out->pixels + 3 * i, grey, 3);
    }
}

enum status picture_decode_png(struct picture *out, struct text_span bytes, const struct picture_rules *rules,
                               int *orientation, struct error *e) {
    struct png_reading r = {.bytes = bytes.text, .left = bytes.size, .out = out, .rules = rules, .e = e};
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, png_fail, png_ignore);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    enum status status = r.info ? png_run(&r) : error_set(e, STATUS_NO_MEMORY, "no memory for the decoder");
    if (status == STATUS_OK) {
        png_finish(&r);
        png_read_rest(&r);
        *orientation = png_orientation(&r);
    }

    if (r.decoded != out->pixels) free(r.decoded);
    free(r.rows);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return status;
}
