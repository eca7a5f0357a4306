/* server/pictures/picture_set.c: see picture_set.h. */
#include "server/pictures/picture_set.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/sha256.h"

struct picture_set *picture_set_open(const struct model *model, struct picture_line_ids line_ids,
                                     int room) {
    struct picture_set *set = xcalloc(1, sizeof *set);
    atomic_init(&set->references, 1);
    set->model = model;
    set->line_ids = line_ids;
    set->list = xcalloc((size_t)room + 1, sizeof *set->list);
    return set;
}

static size_t tile_pixels(const struct picture_cut *cut) {
    return 3 * (size_t)cut->height * (size_t)cut->width;
}

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

static void append_names(struct picture_set *set, const struct set_picture *picture) {
    set->names = xrealloc(set->names, (size_t)(set->n_rows + picture->rows) * sizeof *set->names);
    for (int i = 0; i < picture->rows; i++) {
        set->names[set->n_rows] = picture->name;
        set->names[set->n_rows].row = i;
        set->n_rows++;
    }
}

void picture_set_add(struct picture_set *set, float *pixels, const struct picture_cut *cut) {
    struct set_picture *picture = &set->list[set->n];
    *picture = (struct set_picture){.pixels = pixels,
                                    .cut = *cut,
                                    .name = name_picture(pixels, cut),
                                    .rows = tile_order_count(set->model, cut)};
    bool lines = model_lines(set->model);
    if (lines || model_places(set->model))
        tower_grid(set->model, cut->height, cut->width, &picture->grid.rows,
                   &picture->grid.columns);
    picture->taken = picture->rows + (lines ? picture->grid.rows : 0);
    append_names(set, picture);
    set->n++;
}

static void borrow_picture(struct picture_set *to, const struct picture_set *from, int i) {
    to->list[to->n] = from->list[i];
    append_names(to, &from->list[i]);
    to->n++;
}

struct picture_set *picture_set_join(struct picture_set *around, int n_before,
                                     struct picture_set *within, const int *chosen, int n) {
    int n_around = around ? around->n : 0;
    struct picture_set *set = picture_set_open(within->model, within->line_ids, n_around + n);
    set->lenders[0] = picture_set_hold(within);
    set->lenders[1] = picture_set_hold(around);
    for (int i = 0; i < n_before; i++) borrow_picture(set, around, i);
    for (int i = 0; i < n; i++) borrow_picture(set, within, chosen[i]);
    for (int i = n_before; i < n_around; i++) borrow_picture(set, around, i);
    return set;
}

struct picture_set *picture_set_hold(struct picture_set *set) {
    if (set) atomic_fetch_add(&set->references, 1);
    return set;
}

void picture_set_release(struct picture_set *set) {
    if (set == NULL || atomic_fetch_sub(&set->references, 1) != 1) return;
    for (int i = 0; i < set->n && set->lenders[0] == NULL; i++) free(set->list[i].pixels);
    for (size_t i = 0; i < ARRAY_COUNT(set->lenders); i++) picture_set_release(set->lenders[i]);
    free(set->list);
    free(set->names);
    free(set);
}

enum status picture_set_merge(const struct picture_set *set, struct tokens *ids, struct error *e) {
    struct merged_picture *pictures = xcalloc((size_t)set->n + 1, sizeof *pictures);
    struct merged_text text;
    for (int i = 0; i < set->n; i++)
        pictures[i] = (struct merged_picture){.tiles = 1,
                                              .tile_rows = set->list[i].rows,
                                              .name = set->list[i].name,
                                              .grid = set->list[i].grid};
    enum status status = picture_rows_text(
        &text, set->model,
        &(struct picture_text){ids->ids, ids->n, pictures, set->n, set->line_ids}, e);
    if (status == STATUS_OK) {
        ids->n = 0;
        for (int i = 0; i < text.n; i++) tokens_append(ids, text.ids[i], 0);
        merged_text_free(&text);
    }
    free(pictures);
    return status;
}

int32_t *picture_set_place(const struct picture_set *set, const int32_t *rows, int n) {
    if (set == NULL || !model_places(set->model)) return NULL;
    struct picture_grid *grids = xcalloc((size_t)set->n + 1, sizeof *grids);
    int32_t *positions = xmalloc(((size_t)n * PLACE_SECTIONS + 1) * sizeof *positions);
    for (int i = 0; i < set->n; i++) grids[i] = set->list[i].grid;
    picture_rows_place(positions, rows, n, grids);
    free(grids);
    return positions;
}

/* Viewing. */

void picture_pass_begin(struct picture_pass *pass, const struct picture_set *set,
                        struct session_pool *pool, int skip, float *rows) {
    *pass = (struct picture_pass){.set = set, .pool = pool, .rows = rows};
    while (pass->next < set->n && pass->first + set->list[pass->next].rows <= skip) {
        pass->first += set->list[pass->next].rows;
        pass->next++;
    }
}

static size_t tile_values(const struct picture_pass *pass, const struct picture_cut *cut) {
    const struct model *model = pass->set->model;
    return (size_t)tower_count(model, TOWER_PROJECTED, cut->height, cut->width) *
           (size_t)tower_columns(model, TOWER_PROJECTED);
}

/* A pass over the tiles of the next picture that are left. */
static enum status begin_pass(struct picture_pass *pass, struct error *e) {
    const struct set_picture *picture = &pass->set->list[pass->next];
    int left = picture->cut.tiles - pass->tile;
    struct tower_picture *tiles = xcalloc((size_t)left, sizeof *tiles);
    for (int i = 0; i < left; i++)
        tiles[i] = (struct tower_picture){
            picture->pixels + (size_t)(pass->tile + i) * tile_pixels(&picture->cut),
            picture->cut.height, picture->cut.width};
    if (pass->tile == 0)
        pass->seen =
            xrealloc(pass->seen, (size_t)picture->cut.tiles * tile_values(pass, &picture->cut) *
                                     sizeof *pass->seen);
    enum status status = session_pictures_begin(pass->pool, tiles, left, &pass->pass, e);
    free(tiles);
    return status;
}

/* The tiles' rows in the decoder's order, and on to the next picture. */
static enum status end_picture(struct picture_pass *pass, struct error *e) {
    const struct model *model = pass->set->model;
    const struct set_picture *picture = &pass->set->list[pass->next];
    float *to = pass->rows + (size_t)pass->first * (size_t)tower_columns(model, TOWER_PROJECTED);
    pass->first += picture->rows;
    pass->next++;
    pass->tile = 0;
    return tile_order_rows(to, pass->seen, model, &picture->cut, e);
}

enum status picture_pass_advance(struct picture_pass *pass, bool *done, struct error *e) {
    *done = pass->next == pass->set->n;
    if (*done) return STATUS_OK;
    const struct picture_cut *cut = &pass->set->list[pass->next].cut;
    bool ended = false;
    if (pass->pass == 0 && begin_pass(pass, e)) return e->status;
    if (session_pictures_advance(
            pass->pool, pass->seen + (size_t)pass->tile * tile_values(pass, cut), &ended, e))
        return e->status;
    if (!ended) return STATUS_OK;

    pass->tile += pass->pass;
    pass->pass = 0;
    if (pass->tile == cut->tiles && end_picture(pass, e)) return e->status;
    *done = pass->next == pass->set->n;
    return STATUS_OK;
}

void picture_pass_end(struct picture_pass *pass) {
    free(pass->seen);
    *pass = (struct picture_pass){0};
}
