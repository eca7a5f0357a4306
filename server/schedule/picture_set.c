/* server/schedule/picture_set.c: see picture_set.h. */
#include "server/schedule/picture_set.h"

#include <stdlib.h>

#include "config/base/hash.h"

struct picture_set *picture_set_open(int room) {
    struct picture_set *p = xcalloc(1, sizeof *p);
    atomic_init(&p->references, 1);
    p->list = xcalloc((size_t)room + 1, sizeof *p->list);
    return p;
}

void picture_set_add(struct picture_set *p, float *pixels, int tiles, int height, int width) {
    size_t values = (size_t)tiles * 3 * (size_t)height * (size_t)width;
    const int shape[] = {tiles, height, width};
    struct set_picture *picture = &p->list[p->n];
    *picture = (struct set_picture){.pixels = pixels, .tiles = tiles, .height = height, .width = width};
    for (uint64_t i = 0; i < 2; i++)
        picture->hash[i] = hash_bytes(pixels, values * sizeof *pixels, hash_bytes(shape, sizeof shape, i + 1));
    p->n++;
}

struct picture_set *picture_set_hold(struct picture_set *p) {
    if (p) atomic_fetch_add(&p->references, 1);
    return p;
}

void picture_set_release(struct picture_set *p) {
    if (p == NULL || atomic_fetch_sub(&p->references, 1) != 1) return;
    for (int i = 0; i < p->n; i++) free(p->list[i].pixels);
    free(p->list);
    free(p);
}

static int tile_rows(const struct set_picture *p, const struct model *m) {
    return tower_count(m, TOWER_PROJECTED, p->height, p->width);
}

enum status picture_set_merge(const struct picture_set *p, const struct model *m, struct tokens *ids, struct error *e) {
    struct merged_picture *pictures = xcalloc((size_t)p->n + 1, sizeof *pictures);
    struct merged_text text;
    for (int i = 0; i < p->n; i++) {
        const struct set_picture *from = &p->list[i];
        pictures[i] = (struct merged_picture){
            .tiles = from->tiles, .tile_rows = tile_rows(from, m), .hash = {from->hash[0], from->hash[1]}};
    }
    enum status status = merge_text(&text, m, &(struct picture_text){ids->ids, ids->n, pictures, p->n}, e);
    if (status == STATUS_OK) {
        ids->n = 0;
        for (int i = 0; i < text.n; i++) tokens_append(ids, text.ids[i], 0);
        merged_text_free(&text);
    }
    free(pictures);
    return status;
}

int picture_set_rows(const struct picture_set *p, const struct model *m) {
    int rows = 0;
    for (int i = 0; i < p->n; i++) rows += p->list[i].tiles * tile_rows(&p->list[i], m);
    return rows;
}

static enum status view_one(const struct set_picture *p, struct session_pool *pool, float *rows, struct error *e) {
    struct tower_picture *tiles = xcalloc((size_t)p->tiles, sizeof *tiles);
    size_t pixels = 3 * (size_t)p->height * (size_t)p->width;
    for (int i = 0; i < p->tiles; i++)
        tiles[i] = (struct tower_picture){p->pixels + (size_t)i * pixels, p->height, p->width};
    enum status status = session_view(pool, tiles, p->tiles, rows, e);
    free(tiles);
    return status;
}

enum status picture_set_view(const struct picture_set *p, const struct model *m, struct session_pool *pool, int skip,
                             float *rows, struct error *e) {
    int done = 0;
    for (int i = 0; i < p->n; i++) {
        int n = p->list[i].tiles * tile_rows(&p->list[i], m);
        float *to = rows + (size_t)done * (size_t)tower_columns(m, TOWER_PROJECTED);
        done += n;
        if (done > skip && view_one(&p->list[i], pool, to, e)) return e->status;
    }
    return STATUS_OK;
}
