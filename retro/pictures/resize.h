/* retro/pictures/resize.h: pictures in other sizes, byte for byte as Pillow 13 or torchvision make
 * them.
 *
 * A filter is stretched by the factor that the picture shrinks by (antialiasing). Both libraries
 * run over the rows and over the columns in turn, with 8-bit pixels in between and weights in fixed
 * point, and differ in the bits of a weight and in which pass is first. */
#pragma once

#include "retro/pictures/picture.h"

/* The numbers of Pillow, which preprocessor_config.json uses. */
enum resize_filter {
    RESIZE_NEAREST = 0,
    RESIZE_LANCZOS = 1,
    RESIZE_BILINEAR = 2,
    RESIZE_BICUBIC = 3,
    RESIZE_BOX = 4,
    RESIZE_HAMMING = 5
};

enum resize_library {
    RESIZE_AS_PILLOW, /* weights of 22 bits; the columns first where the height shrinks by far more
                         than the width */
    RESIZE_AS_TORCHVISION /* weights of 15 bits and a scale of their own; the rows first; neither
                             box nor hamming */
};

struct resize_way {
    enum resize_filter filter;
    enum resize_library library;
};

/* *out becomes a picture of its own, also where nothing changes; it is empty after an error.
 * STATUS_TOO_LARGE where the new picture, or what is held of the one between the passes, is over
 * picture_take's limits. */
enum status picture_resize(struct picture *out, const struct picture *in, int width, int height,
                           struct resize_way way, struct error *e);
