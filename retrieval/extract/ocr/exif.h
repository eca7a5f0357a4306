/* retrieval/extract/ocr/exif.h: how a camera was held, as it notes in its pictures. */
#pragma once

#include "config/base/text.h"

/* Steps that make the pixels lie as a viewer shows them, in this order. */
struct exif_turn {
    bool mirrored; /* left and right are exchanged */
    int quarters;  /* clockwise, 0 .. 3 */
};
/* Of the bytes of a JPEG, PNG or WebP; nothing is to be done where they say nothing. */
struct exif_turn exif_find_turn(struct text_span file);
