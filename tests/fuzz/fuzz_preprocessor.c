/* tests/fuzz/fuzz_preprocessor.c: any bytes as preprocessor_config.json: a processor that opens prepares a picture, or
 * says why not. */
#include <stdlib.h>

#include "retro/pictures/preprocessor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger inputs cost time and show nothing new. */
static bool is_small(const struct preprocessor *p) {
    enum { SIDE = 96 };
    int most = max_int(p->shortest_edge, max_int(p->size.height, p->size.width));
    most = max_int(most, max_int(p->cut.height, p->cut.width));
    int least = min_int(p->cut.height, p->cut.width);
    for (int i = 0; p->kind == PREPROCESSOR_LLAVA_NEXT && i < p->grid_count; i++)
        most = max_int(most, max_int(p->grids[i].height, p->grids[i].width));
    return most <= SIDE && least >= SIDE / 8;
}

static void run(const struct preprocessor *p) {
    static uint8_t pixels[3 * 9 * 5] = {1, 2, 250};
    struct picture picture = {.width = 9, .height = 5, .pixels = pixels};
    struct picture_tiles tiles;
    struct error e = {0};
    enum status status = preprocessor_run(&tiles, p, &picture, &e);
    CHECK(status ? tiles.pixels == NULL && e.text[0] != '\0' : tiles.tiles == 1 + tiles.rows * tiles.columns);
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
