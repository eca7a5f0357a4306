/* tests/fuzz/fuzz_preprocessor.c: any bytes as preprocessor_config.json: a processor that opens
 * prepares a picture, or says why not. */
#include <stdlib.h>

#include "retro/pictures/preprocessor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIDE = 96 };

static bool size_is_small(struct picture_size size) {
    return size.height <= SIDE && size.width <= SIDE;
}

/* Larger inputs cost time and show nothing new. */
static bool is_small(const struct preprocessor *p) {
    bool small = p->shortest_edge <= SIDE && size_is_small(p->size) && size_is_small(p->cut);
    if (p->kind == PREPROCESSOR_QWEN)
        small = p->least_pixels <= SIDE * SIDE && p->patch * p->merge <= SIDE;
    if (p->kind == PREPROCESSOR_PIXTRAL) small = small && p->patch * p->merge <= SIDE;
    if (p->kind == PREPROCESSOR_GEMMA4) small = p->most_pixels <= SIDE * SIDE;
    if (p->kind == PREPROCESSOR_LLAVA_NEXT) small = small && p->cut.height >= SIDE / 8;
    for (int i = 0; p->kind == PREPROCESSOR_LLAVA_NEXT && i < p->grid_count; i++)
        small = small && size_is_small(p->grids[i]);
    return small;
}

static void run(const struct preprocessor *p) {
    static uint8_t pixels[3 * 9 * 5] = {1, 2, 250};
    struct picture picture = {.width = 9, .height = 5, .pixels = pixels};
    struct picture_tiles tiles;
    struct error e = {0};
    enum status status = preprocessor_run(&tiles, p, &picture, &e);
    CHECK(status ? tiles.pixels == NULL && e.text[0] != '\0'
                 : tiles.tiles == 1 + tiles.rows * tiles.columns);
    picture_tiles_free(&tiles);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct preprocessor p;
    struct error e = {0};
    struct json *root;
    if (json_parse(&root, (struct text_span){(const char *)data, size}, "input", &e)) return 0;
    enum status status = preprocessor_read(&p, root, "input", &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    if (status == STATUS_OK && is_small(&p)) run(&p);
    json_close(root);
    return 0;
}
