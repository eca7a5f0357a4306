/* server/host/sight.c: see sight.h. */
#include "server/host/sight.h"

/* More than photographs have; decoding takes up to a second or two. */
static const int64_t MOST_PIXELS = 1 << 25;

enum status sight_open(struct sight *s, const struct model *m, const char *folder, struct error *e) {
    s->model = m;
    if (preprocessor_open(&s->preprocessor, folder, e)) return e->status;
    bool lines = s->preprocessor.kind == PREPROCESSOR_LLAVA_NEXT;
    if (lines == model_arranges(m) && s->preprocessor.kind != PREPROCESSOR_QWEN) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: the image processor of preprocessor_config.json does not make what the model reads: %s",
                     folder,
                     model_arranges(m) ? "tiles as LLaVA-NeXT's" : "whole pictures, or tiles one after the other");
}

void sight_close(struct sight *s) { picture_words_free(&s->words); }

int sight_least_rows(const struct sight *s) {
    const struct picture_size *size = s->preprocessor.crop ? &s->preprocessor.cut : &s->preprocessor.size;
    struct error e;
    bool known = tower_check(s->model, size->height, size->width, &e) == STATUS_OK;
    return known ? merge_count(s->model, 1, tower_count(s->model, TOWER_PROJECTED, size->height, size->width)) : 1;
}

enum status sight_read(struct sight_tiles *out, const struct sight *s, struct text_span file, struct error *e) {
    struct picture_rules rules = picture_default_rules;
    struct picture picture = {0};
    struct picture_tiles tiles = {0};
    rules.most_pixels = MOST_PIXELS;
    enum status status = picture_decode(&picture, file, &rules, e);
    if (status == STATUS_OK) status = preprocessor_run(&tiles, &s->preprocessor, &picture, e);
    if (status == STATUS_OK) status = tower_check(s->model, tiles.height, tiles.width, e);
    picture_free(&picture);
    if (status) {
        picture_tiles_free(&tiles);
        return status;
    }
    *out = (struct sight_tiles){.pixels = tiles.pixels,
                                .cut = {.tiles = tiles.tiles,
                                        .height = tiles.height,
                                        .width = tiles.width,
                                        .rows = tiles.rows,
                                        .columns = tiles.columns,
                                        .original_height = tiles.original.height,
                                        .original_width = tiles.original.width}};
    return STATUS_OK;
}
