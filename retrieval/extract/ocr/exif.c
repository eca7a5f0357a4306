/* retrieval/extract/ocr/exif.c: see exif.h. Exif is a TIFF within the picture's file, whose first
 * list has the entry Orientation. */
#include "retrieval/extract/ocr/exif.h"

#include <string.h>

#include "config/base/buffer.h"

struct numbers {
    struct text_span bytes;
    bool big_endian;
};

/* 0 beyond the end. */
static uint32_t read_number(const struct numbers *numbers, size_t at, int size) {
    uint32_t number = 0;
    if (at > numbers->bytes.size || numbers->bytes.size - at < (size_t)size) return 0;
    for (int i = 0; i < size; i++) {
        int shift = 8 * (numbers->big_endian ? size - 1 - i : i);
        number |= (uint32_t)(unsigned char)numbers->bytes.text[at + (size_t)i] << shift;
    }
    return number;
}

static struct text_span span_from(struct text_span text, size_t at, size_t size) {
    if (at > text.size) return (struct text_span){text.text, 0};
    size_t rest = text.size - at;
    return (struct text_span){text.text + at, size < rest ? size : rest};
}

/* 1 .. 8, as the standard numbers them; 0: it is not said. */
static int read_orientation(struct text_span tiff) {
    enum { ORIENTATION = 0x112, ENTRY = 12, MOST_ENTRIES = 512 };
    struct numbers numbers = {tiff, tiff.size > 0 && tiff.text[0] == 'M'};
    size_t list = read_number(&numbers, 4, 4), n = read_number(&numbers, list, 2);
    for (size_t i = 0; i < n && i < MOST_ENTRIES; i++) {
        size_t entry = list + 2 + ENTRY * i;
        if (read_number(&numbers, entry, 2) == ORIENTATION)
            return (int)read_number(&numbers, entry + 8, 2);
    }
    return 0;
}

/* Behind "Exif\0\0", which some write before it. */
static struct text_span skip_name(struct text_span exif) {
    bool named = exif.size >= 6 && memcmp(exif.text, "Exif\0\0", 6) == 0;
    return named ? span_from(exif, 6, exif.size) : exif;
}

/* A JPEG's segments before its pixels: 0xff, a kind, a size that counts itself. */
static struct text_span find_in_jpeg(struct text_span file) {
    enum { APP1 = 0xffe1, PIXELS = 0xffda };
    struct numbers numbers = {file, true};
    size_t at = 2;
    while (at + 4 <= file.size) {
        uint32_t kind = read_number(&numbers, at, 2), size = read_number(&numbers, at + 2, 2);
        struct text_span segment = span_from(file, at + 4, size >= 2 ? size - 2 : 0);
        if (kind < 0xff00 || kind == PIXELS || size < 2) break;
        if (kind == APP1 && skip_name(segment).size < segment.size) return skip_name(segment);
        at += 2 + size;
    }
    return (struct text_span){NULL, 0};
}

/* Chunks of a PNG: a size, a name, the bytes, a checksum; of a WebP: a name, a size, the bytes, an
 * even number of them. */
static struct text_span find_in_chunks(struct text_span file, bool png) {
    struct numbers numbers = {file, png};
    const char *name = png ? "eXIf" : "EXIF";
    size_t at = png ? 8 : 12;
    while (at + 8 <= file.size) {
        uint32_t size = read_number(&numbers, at + (png ? 0 : 4), 4);
        if (memcmp(file.text + at + (png ? 4 : 0), name, 4) == 0)
            return skip_name(span_from(file, at + 8, size));
        at += 8 + (size_t)size + (png ? 4 : size % 2);
    }
    return (struct text_span){NULL, 0};
}

static bool begins(struct text_span file, size_t at, const char *with, size_t size) {
    return file.size >= at + size && memcmp(file.text + at, with, size) == 0;
}

struct exif_turn exif_find_turn(struct text_span file) {
    static const struct exif_turn turns[] = {
        [2] = {true, 0},  [3] = {false, 2}, [4] = {true, 2}, [5] = {true, 3},
        [6] = {false, 1}, [7] = {true, 1},  [8] = {false, 3}};
    struct text_span exif = {NULL, 0};
    if (begins(file, 0, "\xff\xd8", 2))
        exif = find_in_jpeg(file);
    else if (begins(file, 0, "\x89PNG\r\n\x1a\n", 8))
        exif = find_in_chunks(file, true);
    else if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WEBP", 4))
        exif = find_in_chunks(file, false);
    int orientation = exif.size > 8 ? read_orientation(exif) : 0;
    bool known = orientation >= 2 && orientation < (int)ARRAY_COUNT(turns);
    return known ? turns[orientation] : (struct exif_turn){0};
}
