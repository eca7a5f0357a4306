/* retro/pictures/picture.c: the kinds of files, the limit on pixels, alpha, and the memory of a
 * picture. */
#include "retro/pictures/picture.h"

#include <stdlib.h>
#include <string.h>

#include "retro/pictures/decoders.h"

const struct picture_rules picture_default_rules = {.most_pixels = PICTURE_MOST_PIXELS,
                                                    .background = {255, 255, 255}};

static const struct picture_format {
    const char *name, *magic;
    size_t at, size; /* where the magic lies, and its bytes */
    enum picture_kind kind;
    picture_decoder *decode;
} formats[] = {
    {"JPEG", "\xFF\xD8\xFF", 0, 3, PICTURE_JPEG, picture_decode_jpeg},
    {"PNG", "\x89PNG\r\n\x1A\n", 0, 8, PICTURE_PNG, picture_decode_png},
    {"WebP", "WEBP", 8, 4, PICTURE_WEBP, picture_decode_webp},
    {"GIF", "GIF87a", 0, 6, PICTURE_GIF, picture_decode_gif},
    {"GIF", "GIF89a", 0, 6, PICTURE_GIF, picture_decode_gif},
};

static const struct picture_format *format_of(struct text_span bytes) {
    for (size_t i = 0; i < ARRAY_COUNT(formats); i++) {
        const struct picture_format *format = &formats[i];
        if (bytes.size >= format->at + format->size &&
            memcmp(bytes.text + format->at, format->magic, format->size) == 0)
            return format;
    }
    return NULL;
}

enum picture_kind picture_kind_of(struct text_span bytes) {
    const struct picture_format *format = format_of(bytes);
    return format ? format->kind : PICTURE_UNKNOWN;
}

const char *picture_kind_name(enum picture_kind kind) {
    for (size_t i = 0; i < ARRAY_COUNT(formats); i++)
        if (formats[i].kind == kind) return formats[i].name;
    return "no known kind";
}

enum status picture_check_size(int64_t width, int64_t height, const struct picture_rules *rules,
                               struct error *e) {
    if (width < 1 || height < 1) return error_set(e, STATUS_INVALID, "the picture is empty");
    if (width > PICTURE_MOST_SIDE || height > PICTURE_MOST_SIDE)
        return error_set(e, STATUS_TOO_LARGE,
                         "the picture is %lld x %lld pixels, a side may have at most %d",
                         (long long)width, (long long)height, PICTURE_MOST_SIDE);
    if (width * height > rules->most_pixels)
        return error_set(e, STATUS_TOO_LARGE,
                         "the picture is %lld x %lld pixels, at most %lld are decoded",
                         (long long)width, (long long)height, (long long)rules->most_pixels);
    return STATUS_OK;
}

enum status picture_take(struct picture *out, int64_t width, int64_t height, struct error *e) {
    enum status status = picture_check_size(width, height, &picture_default_rules, e);
    if (status) return status;
    out->pixels = malloc((size_t)width * (size_t)height * 3);
    if (out->pixels == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory for a picture of %lld x %lld pixels",
                         (long long)width, (long long)height);
    out->width = (int)width;
    out->height = (int)height;
    return STATUS_OK;
}

void picture_free(struct picture *picture) {
    free(picture->pixels);
    *picture = (struct picture){0};
}

enum { BLEND_BITS = 7 };

/* (color alpha + background (255 - alpha)) / 255, rounded as Pillow rounds it: its weights have
 * seven bits more. */
static uint8_t blend_channel(unsigned color, unsigned background, unsigned alpha) {
    unsigned whole = 255u << BLEND_BITS, weight = alpha << BLEND_BITS;
    unsigned sum = color * weight + background * (whole - weight) + (0x80u << BLEND_BITS);
    return (uint8_t)((((sum >> 8) + sum) >> 8) >> BLEND_BITS);
}

void picture_blend(uint8_t *out, const uint8_t *in, size_t n, const uint8_t background[3]) {
    for (size_t i = 0; i < n; i++) {
        unsigned alpha = in[4 * i + 3];
        for (size_t channel = 0; channel < 3; channel++) {
            uint8_t color = in[4 * i + channel];
            out[3 * i + channel] = blend_channel(color, background[channel], alpha);
        }
    }
}

enum status picture_decode(struct picture *out, struct text_span bytes,
                           const struct picture_rules *rules, struct error *e) {
    const struct picture_format *format = format_of(bytes);
    int orientation = 1;
    *out = (struct picture){0};
    if (format == NULL)
        return error_set(e, STATUS_INVALID,
                         "the bytes are no picture that is read here: JPEG, PNG, WebP or GIF");

    enum status status = format->decode(out, bytes, rules, &orientation, e);
    if (status == STATUS_OK) status = picture_turn(out, orientation, e);
    if (status == STATUS_OK) return STATUS_OK;

    picture_free(out);
    return error_prefix(e, "%s", format->name);
}
