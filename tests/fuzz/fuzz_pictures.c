/* tests/fuzz/fuzz_pictures.c: any bytes as a picture: a picture that is decoded has at most the
 * limit of pixels and is resized by every filter. */
#include "retro/pictures/resize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct picture_rules rules = {.most_pixels = 1 << 18, .background = {1, 2, 3}};

static void resize(const struct picture *p, unsigned seed) {
    struct resize_way way = {(enum resize_filter)(seed % 6), RESIZE_AS_PILLOW};
    struct picture resized;
    struct error e = {0};
    if (way.filter <= RESIZE_BICUBIC && seed & 64) way.library = RESIZE_AS_TORCHVISION;
    int width = 1 + (int)(seed % 61), height = 1 + (int)(seed / 7 % 53);
    enum status status = picture_resize(&resized, p, width, height, way, &e);
    CHECK((status == STATUS_OK) == (resized.pixels != NULL));
    picture_free(&resized);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span bytes = {(const char *)data, size};
    struct picture p;
    struct error e = {0};
    enum status status = picture_decode(&p, bytes, &rules, &e);
    if (status) {
        CHECK(p.pixels == NULL && e.status == status && e.text[0] != '\0');
        return 0;
    }

    unsigned sum = 0;
    CHECK((int64_t)p.width * p.height <= rules.most_pixels &&
          picture_kind_of(bytes) != PICTURE_UNKNOWN);
    for (size_t i = 0; i < (size_t)p.width * (size_t)p.height * 3; i++) sum += p.pixels[i];
    resize(&p, sum);
    picture_free(&p);
    return 0;
}
