/* retro/pictures/picture.h: pictures from the bytes of JPEG, PNG, WebP and GIF files to rows of
 * 8-bit RGB.
 *
 * The pixels are those that Pillow 13 reads and transformers' convert_to_rgb makes of them: alpha
 * is composed over a colour, CMYK follows Adobe's convention, 16-bit colour keeps its high byte,
 * 16-bit grey is cut at 255, and the EXIF orientation is applied. Animations give their first
 * frame. */
#pragma once

#include "config/base/buffer.h"

/* Rows from the top, without gaps: the red, green and blue of pixel (x, y) are at pixels + 3 (y
 * width + x). Zero-initialise. */
struct picture {
    int width, height;
    uint8_t *pixels; /* owned */
};
void picture_free(struct picture *picture);

/* A side is 1 .. PICTURE_MOST_SIDE pixels. Decoding takes up to PICTURE_PIXEL_BYTES of memory a
 * pixel at a time, the picture's own three among them: progressive JPEG in CMYK and animated WebP
 * take the most. */
enum { PICTURE_MOST_SIDE = 65535, PICTURE_MOST_PIXELS = 1 << 26, PICTURE_PIXEL_BYTES = 12 };

struct picture_rules {
    int64_t
        most_pixels; /* width x height; a larger picture is refused before memory is taken for it */
    uint8_t background[3]; /* the colour behind alpha */
};
/* PICTURE_MOST_PIXELS, white. */
extern const struct picture_rules picture_default_rules;

enum picture_kind { PICTURE_UNKNOWN, PICTURE_JPEG, PICTURE_PNG, PICTURE_WEBP, PICTURE_GIF };
/* By the first bytes; names of files say nothing. */
enum picture_kind picture_kind_of(struct text_span bytes);
/* "JPEG"; "no known kind". */
const char *picture_kind_name(enum picture_kind kind);

/* Decodes a whole file of anybody's, in a process of its own. *out is empty after an error:
 * STATUS_INVALID for bytes of no known kind and for damaged files, STATUS_TOO_LARGE over
 * most_pixels, STATUS_NO_MEMORY, STATUS_UNSUPPORTED where the kernel does not confine it. */
enum status picture_read(struct picture *out, struct text_span bytes,
                         const struct picture_rules *rules, struct error *e);

/* The same in this process: for files that are one's own, and for that process. */
enum status picture_decode(struct picture *out, struct text_span bytes,
                           const struct picture_rules *rules, struct error *e);

/* Memory for width x height pixels, not set. STATUS_TOO_LARGE where a side or the whole is over the
 * constants above. */
enum status picture_take(struct picture *out, int64_t width, int64_t height, struct error *e);
