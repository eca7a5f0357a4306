/* server/pictures/picture_set.c: see picture_set.h. */
#include "server/pictures/picture_set.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/sha256.h"

struct picture_set *picture_set_open(const struct model *m, int room) {
    struct picture_set *p = xcalloc(1, sizeof *p);
    atomic_init(&p->references, 1);
    p->model = m;
    p->list = xcalloc((size_t)room + 1, sizeof *p->list);
    return p;
}

static size_t tile_pixels(const struct picture_cut *cut) { return 3 * (size_t)cut->height * (size_t)cut->width; }

/* All that the rows are made from, beside the model. */
static struct row_name name_picture(const float *pixels, const struct picture_cut *cut) {
    const struct text_span parts[] = {
        {(const char *)cut, sizeof *cut},
        {(const char *)pixels, (size_t)cut->tiles * tile_pixels(cut) * sizeof *pixels},
    };
    struct row_name name = {.row = 0};
    uint8_t hash[SHA256_BYTES];
    sha256_hash(parts, ARRAY_COUNT(parts), hash);
    memcpy(name.picture, hash, sizeof name.picture);
    return name;
}

static void append_names(struct picture_set *p, const struct set_picture *picture) {
    p->names = xrealloc(p->names, (size_t)(p->n_rows + picture->rows) * sizeof *p->names);
    for (int i = 0; i < picture->rows; i++) {
        p->names[p->n_rows] = picture->name;
        p->names[p->n_rows].row = i;
        p->n_rows++;
    }
}

void picture_set_add(struct picture_set *p, float *pixels, const struct picture_cut *cut) {
    struct set_picture *picture = &p->list[p->n];
    *picture = (struct set_picture){
        .pixels = pixels, .cut = *cut, .name = name_picture(pixels, cut), .rows = tile_order_count(p->model, cut)};
    if (model_places(p->model))
        tower_grid(p->model, cut->height, cut->width, &picture->grid.rows, &picture->grid.columns);
    append_names(p, picture);
    p->n++;
}

static void borrow_picture(struct picture_set *to, const struct picture_set *from, int i) {
    to->list[to->n] = from->list[i];
    append_names(to, &from->list[i]);
    to->n++;
}

struct picture_set *picture_set_join(struct picture_set *around, int n_before, struct picture_set *within,
                                     const int *chosen, int n) {
    int n_around = around ? around->n : 0;
    struct picture_set *p = picture_set_open(within->model, n_around + n);
    p->lenders[0] = picture_set_hold(within);
    p->lenders[1] = picture_set_hold(around);
    for (int i = 0; i < n_before; i++) borrow_picture(p, around, i);
    for (int i = 0; i < n; i++) borrow_picture(p, within, chosen[i]);
    for (int i = n_before; i < n_around; i++) borrow_picture(p, around, i);
    return p;
}

struct picture_set *picture_set_hold(struct picture_set *p) {
    if (p) atomic_fetch_add(&p->references, 1);
    return p;
}

void picture_set_release(struct picture_set *p) {
    if (p == NULL || atomic_fetch_sub(&p->references, 1) != 1) return;
    for (int i = 0; i < p->n && p->lenders[0] == NULL; i++) free(p->list[i].pixels);
    for (size_t i = 0; i < ARRAY_COUNT(p->lenders); i++) picture_set_release(p->lenders[i]);
    free(p->list);
    free(p->names);
    free(p);
}

enum status picture_set_merge(const struct picture_set *p, struct tokens *ids, struct error *e) {
    struct merged_picture *pictures = xcalloc((size_t)p->n + 1, sizeof *pictures);
    struct merged_text text;
    for (int i = 0; i < p->n; i++)
        pictures[i] = (struct merged_picture){
            .tiles = 1, .tile_rows = p->list[i].rows, .name = p->list[i].name, .grid = p->list[i].grid};
    enum status status =
        picture_rows_text(&text, p->model, &(struct picture_text){ids->ids, ids->n, pictures, p->n}, e);
    if (status == STATUS_OK) {
        ids->n = 0;
        for (int i = 0; i < text.n; i++) tokens_append(ids, text.ids[i], 0);
        merged_text_free(&text);
    }
    free(pictures);
    return status;
}

int32_t *picture_set_place(const struct picture_set *p, const int32_t *rows, int n) {
    if (p == NULL || !model_places(p->model)) return NULL;
    struct picture_grid *grids = xcalloc((size_t)p->n + 1, sizeof *grids);
    int32_t *positions = xmalloc(((size_t)n * PLACE_SECTIONS + 1) * sizeof *positions);
    for (int i = 0; i < p->n; i++) grids[i] = p->list[i].grid;
    picture_rows_place(positions, rows, n, grids);
    free(grids);
    return positions;
}

/* Viewing. */

void picture_pass_begin(struct picture_pass *v, const struct picture_set *p, struct session_pool *pool, int skip,
                        float *rows) {
    *v = (struct picture_pass){.set = p, .pool = pool, .rows = rows};
    while (v->next < p->n && v->first + p->list[v->next].rows <= skip) {
        v->first += p->list[v->next].rows;
        v->next++;
    }
}

static size_t tile_values(const struct picture_pass *v, const struct picture_cut *cut) {
    const struct model *m = v->set->model;
    return (size_t)tower_count(m, TOWER_PROJECTED, cut->height, cut->width) * (size_t)tower_columns(m, TOWER_PROJECTED);
}

/* A pass over the tiles of the next picture that are left. */
static enum status begin_pass(struct picture_pass *v, struct error *e) {
    const struct set_picture *p = &v->set->list[v->next];
    int left = p->cut.tiles - v->tile;
    struct tower_picture *tiles = xcalloc((size_t)left, sizeof *tiles);
    for (int i = 0; i < left; i++)
        tiles[i] = (struct tower_picture){p->pixels + (size_t)(v->tile + i) * tile_pixels(&p->cut), p->cut.height,
                                          p->cut.width};
    if (v->tile == 0) v->seen = xrealloc(v->seen, (size_t)p->cut.tiles * tile_values(v, &p->cut) * sizeof *v->seen);
    enum status status = session_pictures_begin(v->pool, tiles, left, &v->pass, e);
    free(tiles);
    return status;
}

/* The tiles' rows in the decoder's order, and on to the next picture. */
static enum status end_picture(struct picture_pass *v, struct error *e) {
    const struct model *m = v->set->model;
    const struct set_picture *p = &v->set->list[v->next];
    float *to = v->rows + (size_t)v->first * (size_t)tower_columns(m, TOWER_PROJECTED);
    v->first += p->rows;
    v->next++;
    v->tile = 0;
    return tile_order_rows(to, v->seen, m, &p->cut, e);
}

enum status picture_pass_advance(struct picture_pass *v, bool *done, struct error *e) {
    *done = v->next == v->set->n;
    if (*done) return STATUS_OK;
    const struct picture_cut *cut = &v->set->list[v->next].cut;
    bool ended = false;
    if (v->pass == 0 && begin_pass(v, e)) return e->status;
    if (session_pictures_advance(v->pool, v->seen + (size_t)v->tile * tile_values(v, cut), &ended, e)) return e->status;
    if (!ended) return STATUS_OK;

    v->tile += v->pass;
    v->pass = 0;
    if (v->tile == cut->tiles && end_picture(v, e)) return e->status;
    *done = v->next == v->set->n;
    return STATUS_OK;
}

void picture_pass_end(struct picture_pass *v) {
    free(v->seen);
    *v = (struct picture_pass){0};
}
