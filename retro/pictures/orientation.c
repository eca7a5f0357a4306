/* retro/pictures/orientation.c: EXIF's orientation: how a camera was held, and the picture turned upright. */
#include <stdlib.h>
#include <string.h>

#include "retro/pictures/decoders.h"

/* A TIFF file in memory: bytes in the order that its first two letters say. */
struct exif_view {
    const uint8_t *data;
    size_t size;
    bool big;
};

static uint32_t exif_number(const struct exif_view *v, size_t at, size_t bytes) {
    uint32_t number = 0;
    for (size_t i = 0; i < bytes; i++) {
        size_t place = v->big ? i : bytes - 1 - i;
        number = number << 8 | v->data[at + place];
    }
    return number;
}

static struct exif_view exif_open(struct text_span exif) {
    struct exif_view v = {.data = (const uint8_t *)exif.text, .size = exif.size};
    if (v.size >= 6 && memcmp(v.data, "Exif\0\0", 6) == 0) {
        v.data += 6;
        v.size -= 6;
    }
    if (v.size < 8) return (struct exif_view){0};
    v.big = v.data[0] == 'M';
    bool known = memcmp(v.data, "II*\0", 4) == 0 || memcmp(v.data, "MM\0*", 4) == 0;
    return known ? v : (struct exif_view){0};
}

int exif_orientation(struct text_span exif) {
    enum { ENTRY = 12, TAG_ORIENTATION = 0x112, TYPE_SHORT = 3 };
    struct exif_view v = exif_open(exif);
    if (v.size == 0) return 1;

    size_t at = exif_number(&v, 4, 4);
    if (at > v.size - 2) return 1;
    size_t count = exif_number(&v, at, 2);
    at += 2;
    if (count > (v.size - at) / ENTRY) count = (v.size - at) / ENTRY;

    for (size_t i = 0; i < count; i++, at += ENTRY) {
        if (exif_number(&v, at, 2) != TAG_ORIENTATION || exif_number(&v, at + 2, 2) != TYPE_SHORT) continue;
        uint32_t number = exif_number(&v, at + 8, 2);
        return number >= 1 && number <= 8 ? (int)number : 1;
    }
    return 1;
}

enum status picture_turn(struct picture *p, int orientation, struct error *e) {
    /* From 5 on the picture is turned by a quarter; which edges then are on the other side is in two sets. */
    bool quarter = orientation >= 5;
    bool right_to_left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool bottom_up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    struct picture turned = {0};
    if (orientation <= 1) return STATUS_OK;

    enum status status = picture_take(&turned, quarter ? p->height : p->width, quarter ? p->width : p->height, e);
    if (status) return status;
    for (int y = 0; y < turned.height; y++) {
        uint8_t *out = turned.pixels + (size_t)y * (size_t)turned.width * 3;
        for (int x = 0; x < turned.width; x++) {
            int column = quarter ? y : x, row = quarter ? x : y;
            if (right_to_left) column = p->width - 1 - column;
            if (bottom_up) row = p->height - 1 - row;
            memcpy(out + 3 * x, p->pixels + 3 * ((size_t)row * (size_t)p->width + (size_t)column), 3);
        }
    }
    picture_free(p);
    *p = turned;
    return STATUS_OK;
}
