/* retro/pictures/decoders.h: between picture.c and the decoders. Each decoder is the one file that
 * includes the header of its library. */
#pragma once

#include "retro/pictures/picture.h"

/* A decoder checks the size by picture_check_size, then takes *out and fills it; after an error
 * picture.c frees it. Its messages begin with the fault: picture.c names the kind before them.
 * *orientation is 1 and may become EXIF's number.
 */
typedef enum status picture_decoder(struct picture *out, struct text_span bytes,
                                    const struct picture_rules *rules, int *orientation,
                                    struct error *e);
picture_decoder picture_decode_jpeg;
picture_decoder picture_decode_png;
picture_decoder picture_decode_webp;
picture_decoder picture_decode_gif;

/* STATUS_TOO_LARGE over the rules' limit, STATUS_INVALID for an empty picture. */
enum status picture_check_size(int64_t width, int64_t height, const struct picture_rules *rules,
                               struct error *e);

/* n pixels of RGBA at `in` over the background, to RGB at `out`, which may be the same place: as
 * Pillow's alpha_composite over an opaque picture. */
void picture_blend(uint8_t *out, const uint8_t *in, size_t n, const uint8_t background[3]);

/* The orientation in a block of EXIF, with or without "Exif\0\0" before it: 1 .. 8, and 1 where it
 * says none. */
int exif_orientation(struct text_span exif);
/* Turns a picture as its orientation says. */
enum status picture_turn(struct picture *picture, int orientation, struct error *e);
