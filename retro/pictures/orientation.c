/* retro/pictures/orientation.c: EXIF's orientation: how a camera was held, and the picture turned
 * upright. */
#include <stdlib.h>
#include <string.h>

#include "retro/pictures/decoders.h"

/* A TIFF file in memory: bytes in the order that its first two letters say. */
struct exif_view {
    const uint8_t *data;
    size_t size;
    bool big;
};

static uint32_t exif_number(const struct exif_view *view, size_t at, size_t bytes) {
    uint32_t number = 0;
    for (size_t i = 0; i < bytes; i++) {
        size_t place = view->big ? i : bytes - 1 - i;
        number = number << 8 | view->data[at + place];
    }
    return number;
}

static struct exif_view exif_open(struct text_span exif) {
    struct exif_view view = {.data = (const uint8_t *)exif.text, .size = exif.size};
    if (view.size >= 6 && memcmp(view.data, "Exif\0\0", 6) == 0) {
        view.data += 6;
        view.size -= 6;
    }
    if (view.size < 8) return (struct exif_view){0};
    view.big = view.data[0] == 'M';
    bool known = memcmp(view.data, "II*\0", 4) == 0 || memcmp(view.data, "MM\0*", 4) == 0;
    return known ? view : (struct exif_view){0};
}

int exif_orientation(struct text_span exif) {
    enum { ENTRY = 12, TAG_ORIENTATION = 0x112, TYPE_SHORT = 3 };
    struct exif_view view = exif_open(exif);
    if (view.size == 0) return 1;

    size_t at = exif_number(&view, 4, 4);
    if (at > view.size - 2) return 1;
    size_t count = exif_number(&view, at, 2);
    at += 2;
    if (count > (view.size - at) / ENTRY) count = (view.size - at) / ENTRY;

    for (size_t i = 0; i < count; i++, at += ENTRY) {
        if (exif_number(&view, at, 2) != TAG_ORIENTATION ||
            exif_number(&view, at + 2, 2) != TYPE_SHORT)
            continue;
        uint32_t number = exif_number(&view, at + 8, 2);
        return number >= 1 && number <= 8 ? (int)number : 1;
    }
    return 1;
}

enum status picture_turn(struct picture *picture, int orientation, struct error *e) {
    /* From 5 on the picture is turned by a quarter; which edges then are on the other side is in
     * two sets. */
    bool quarter = orientation >= 5;
    bool right_to_left =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool bottom_up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    struct picture turned = {0};
    if (orientation <= 1) return STATUS_OK;

    enum status status = picture_take(&turned, quarter ? picture->height : picture->width,
                                      quarter ? picture->width : picture->height, e);
    if (status) return status;
    for (int y = 0; y < turned.height; y++) {
        uint8_t *out = turned.pixels + (size_t)y * (size_t)turned.width * 3;
        for (int x = 0; x < turned.width; x++) {
            int column = quarter ? y : x, row = quarter ? x : y;
            if (right_to_left) column = picture->width - 1 - column;
            if (bottom_up) row = picture->height - 1 - row;
            memcpy(out + 3 * x,
                   picture->pixels + 3 * ((size_t)row * (size_t)picture->width + (size_t)column),
                   3);
        }
    }
    picture_free(picture);
    *picture = turned;
    return STATUS_OK;
}
