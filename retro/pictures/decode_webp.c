/* retro/pictures/decode_webp.c: WebP by libwebp, which no other file knows. */
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "retro/pictures/decoders.h"

/* Chunks of a RIFF file: four letters, a size, the bytes, padded to an even number. */
static int webp_orientation(struct text_span bytes) {
    size_t at = 12;
    while (bytes.size >= 8 && at <= bytes.size - 8) {
        const uint8_t *head = (const uint8_t *)bytes.text + at;
        size_t size =
            head[4] | (size_t)head[5] << 8 | (size_t)head[6] << 16 | (size_t)head[7] << 24;
        size_t left = bytes.size - at - 8;
        if (size > left) return 1;
        if (memcmp(head, "EXIF", 4) == 0)
            return exif_orientation((struct text_span){(const char *)head + 8, size});
        at += 8 + size + (size & 1);
    }
    return 1;
}

static enum status webp_decode_still(struct picture *out, struct text_span bytes, bool alpha,
                                     const struct picture_rules *rules, struct error *e) {
    size_t n = (size_t)out->width * (size_t)out->height, channels = alpha ? 4 : 3;
    const uint8_t *data = (const uint8_t *)bytes.text;
    int stride = out->width * (int)channels;
    uint8_t *into = alpha ? malloc(n * channels) : out->pixels;
    if (into == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory for %zu pixels with alpha", n);

    uint8_t *done = alpha ? WebPDecodeRGBAInto(data, bytes.size, into, n * channels, stride)
                          : WebPDecodeRGBInto(data, bytes.size, into, n * channels, stride);
    if (done && alpha) picture_blend(out->pixels, into, n, rules->background);
    if (alpha) free(into);
    return done ? STATUS_OK : error_set(e, STATUS_INVALID, "the file is damaged or cut off");
}

static enum status webp_decode_first_frame(struct picture *out, struct text_span bytes,
                                           const struct picture_rules *rules, struct error *e) {
    WebPData data = {(const uint8_t *)bytes.text, bytes.size};
    WebPAnimDecoder *animation = WebPAnimDecoderNew(&data, NULL);
    uint8_t *pixels = NULL;
    int time = 0;
    WebPAnimInfo info = {0};
    bool fits = animation && WebPAnimDecoderGetInfo(animation, &info) &&
                info.canvas_width == (uint32_t)out->width &&
                info.canvas_height == (uint32_t)out->height;
    bool done = fits && WebPAnimDecoderGetNext(animation, &pixels, &time);
    if (done)
        picture_blend(out->pixels, pixels, (size_t)out->width * (size_t)out->height,
                      rules->background);
    WebPAnimDecoderDelete(animation);
    return done ? STATUS_OK : error_set(e, STATUS_INVALID, "the animation is damaged or cut off");
}

enum status picture_decode_webp(struct picture *out, struct text_span bytes,
                                const struct picture_rules *rules, int *orientation,
                                struct error *e) {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures((const uint8_t *)bytes.text, bytes.size, &features) != VP8_STATUS_OK)
        return error_set(e, STATUS_INVALID, "the header is damaged or cut off");
    enum status status = picture_check_size(features.width, features.height, rules, e);
    if (status == STATUS_OK) status = picture_take(out, features.width, features.height, e);
    if (status) return status;

    *orientation = webp_orientation(bytes);
    return features.has_animation ? webp_decode_first_frame(out, bytes, rules, e)
                                  : webp_decode_still(out, bytes, features.has_alpha, rules, e);
}
