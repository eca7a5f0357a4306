/* retrieval/extract/ocr/grey.h: pictures of pages in 8-bit grey, and what is done to them before
 * their letters are read. Nothing here needs a library. Places are pixels from the left top. */
#pragma once

#include "config/base/base.h"

/* 0 is black. Zero-initialise; free when done. */
struct grey {
    int width, height;
    uint8_t *pixels; /* [height, width] */
};

/* Makes a picture whose pixels are not set; the caller has checked the size. */
void grey_make(struct grey *picture, int width, int height);
void grey_free(struct grey *picture);
static inline uint8_t *grey_row(const struct grey *picture, int y) {
    return picture->pixels + (size_t)y * (size_t)picture->width;
}
static inline size_t grey_size(const struct grey *picture) {
    return (size_t)picture->width * (size_t)picture->height;
}

/* Each of these replaces the picture. */

/* The median of each pixel and its eight neighbours. */
void grey_median(struct grey *picture);
/* A blur of 3 x 3 pixels, weights 1 2 1. */
void grey_blur(struct grey *picture);
/* Exchanges left and right. */
void grey_mirror(struct grey *picture);
/* Quarter turns clockwise. */
void grey_turn(struct grey *picture, int quarters);
/* Turns by so many degrees clockwise about the middle, in a picture of the same size; what comes
 * from beyond the edges is white. */
void grey_rotate(struct grey *picture, float degrees);
/* To another size; the mean of what becomes one pixel, or between the pixels. */
void grey_scale(struct grey *picture, int width, int height);
void grey_invert(struct grey *picture);
/* Makes the paper white everywhere, whatever the light: each pixel is divided by the paper around
 * it, and the darkest ink becomes black. */
void grey_even(struct grey *picture);

/* How much noise there is. */
struct grey_noise {
    float dots;  /* share of pixels that differ much from all of their neighbours */
    float grain; /* standard deviation of noise that lies over all of it, levels of grey */
};
struct grey_noise grey_measure_noise(const struct grey *picture);
/* The level that parts ink from paper best (Otsu 1979): ink is below it. */
int grey_threshold(const struct grey *picture);
/* Makes *out a copy of the part from (left, top) of so many pixels, which lies within. */
void grey_cut(const struct grey *picture, int left, int top, int width, int height,
              struct grey *out);
