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

void picture_set_add(struct picture_set *p, float *pixels, const struct picture_cut *cut) {
    size_t values = (size_t)cut->tiles * 3 * (size_t)cut->height * (size_t)cut->width;
    struct set_picture *picture = &p->list[p->n];
    *picture = (struct set_picture){.pixels = pixels, .cut = *cut};
    for (uint64_t i = 0; i < 2; i++)
        picture->hash[i] = hash_bytes(pixels, values * sizeof *pixels, hash_bytes(cut, sizeof *cut, i + 1));
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

enum status picture_set_merge(const struct picture_set *p, const struct model *m, struct tokens *ids, struct error *e) {
    struct merged_picture *pictures = xcalloc((size_t)p->n + 1, sizeof *pictures);
    struct merged_text text;
    for (int i = 0; i < p->n; i++) {
        const struct set_picture *from = &p->list[i];
        pictures[i] = (struct merged_picture){
            .tiles = 1, .tile_rows = arrange_count(m, &from->cut), .hash = {from->hash[0], from->hash[1]}};
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
    for (int i = 0; i < p->n; i++) rows += arrange_count(m, &p->list[i].cut);
    return rows;
}

/* The rows of the tiles, then in the decoder's order. */
static enum status view_one(const struct set_picture *p, const struct model *m, struct session_pool *pool, float *rows,
                            struct error *e) {
    int n = p->cut.tiles;
    size_t pixels = 3 * (size_t)p->cut.height * (size_t)p->cut.width;
    size_t values = (size_t)tower_count(m, TOWER_PROJECTED, p->cut.height, p->cut.width) *
                    (size_t)tower_columns(m, TOWER_PROJECTED);
    struct tower_picture *tiles = xcalloc((size_t)n, sizeof *tiles);
    float *seen = xmalloc((size_t)n * values * sizeof *seen);
    for (int i = 0; i < n; i++)
        tiles[i] = (struct tower_picture){p->pixels + (size_t)i * pixels, p->cut.height, p->cut.width};
    enum status status = session_view(pool, tiles, n, seen, e);
    if (status == STATUS_OK) status = arrange_rows(rows, seen, m, &p->cut, e);
    free(seen);
    free(tiles);
    return status;
}

enum status picture_set_view(const struct picture_set *p, const struct model *m, struct session_pool *pool, int skip,
                             float *rows, struct error *e) {
    int done = 0;
    for (int i = 0; i < p->n; i++) {
        float *to = rows + (size_t)done * (size_t)tower_columns(m, TOWER_PROJECTED);
        done += arrange_count(m, &p->list[i].cut);
        if (done > skip && view_one(&p->list[i], m, pool, to, e)) return e->status;
    }
    return STATUS_OK;
}
