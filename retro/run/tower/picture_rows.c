/* retro/run/tower/picture_rows.c: texts with pictures as rows. See picture_rows.h. */
#include "retro/run/tower/picture_rows.h"

#include <stdlib.h>
#include <string.h>

#include "retro/model/model_private.h"

bool model_sees(const struct model *m) { return model_writes(m) && m->spec.projector.out > 0; }

int model_picture_id(const struct model *m) { return m->spec.picture.id; }

bool model_places(const struct model *m) { return m->spec.stacks[STACK_DECODER].rope_sections == PLACE_SECTIONS; }

/* The grid's first `count` rows, which stand at `from` in the text. */
static void place_rows(int32_t *positions, int from, const struct picture_grid *grid, int count) {
    for (int i = 0; i < count; i++) {
        int32_t *position = positions + (size_t)i * PLACE_SECTIONS;
        position[0] = from;
        position[1] = from + i / grid->columns;
        position[2] = from + i % grid->columns;
    }
}

void picture_rows_place(int32_t *positions, const int32_t *ids, int n, const struct picture_grid *grids) {
    static const struct picture_grid word = {1, 1};
    int next = 0, count;
    for (int i = 0; i < n; i += count) {
        const struct picture_grid *grid = ids[i] < 0 ? grids : &word;
        if (ids[i] < 0) grids++;
        count = min_int(n - i, grid->rows * grid->columns);
        place_rows(positions + (size_t)i * PLACE_SECTIONS, next, grid, count);
        next += max_int(grid->rows, grid->columns);
    }
}

int picture_rows_count(const struct model *m, int tiles, int tile_rows) {
    return tiles * (m->spec.picture.tag_length + tile_rows);
}

/* One picture_rows_text. */
struct merging {
    struct merged_text *to;
    const struct model *model;
    int width, at; /* columns of a row; the id of the text that is being merged */
    bool counts;   /* positions are those in the table of learned ones */
};

static void put_id(struct merging *w, int32_t id) {
    struct merged_text *t = w->to;
    t->ids[t->n] = id;
    if (w->counts) t->positions[t->n] = w->at;
    t->n++;
}

/* Tags 0, 1, ..., and before the last tile of several the thumbnail's. */
static void put_tags(struct merging *w, int tile, int tiles) {
    const struct picture_spec *p = &w->model->spec.picture;
    int tag = tile == tiles - 1 ? p->n_tags - 1 : tile;
    for (int i = 0; i < p->tag_length; i++) put_id(w, p->tags[tag][i]);
}

static void put_picture(struct merging *w, const struct merged_picture *p) {
    struct merged_text *t = w->to;
    struct row_name name = p->name;
    size_t values = (size_t)p->tiles * (size_t)p->tile_rows * (size_t)w->width;
    if (p->rows) memcpy(t->given + (size_t)t->n_given * (size_t)w->width, p->rows, values * sizeof *t->given);
    for (int i = 0; i < p->tiles; i++) {
        put_tags(w, i, p->tiles);
        for (int j = 0; j < p->tile_rows; j++) {
            put_id(w, -1 - t->n_given);
            t->names[t->n_given] = name;
            t->n_given++;
            name.row++;
        }
    }
}

/* The rows that a text and its pictures take, and that of them are given. */
struct row_counts {
    size_t all, given;
};

/* Pictures that fit the text and the model. */
static enum status count_rows(struct row_counts *out, const struct model *m, const struct picture_text *t,
                              struct error *e) {
    const struct picture_spec *p = &m->spec.picture;
    int places = 0;
    for (int i = 0; i < t->n; i++) places += t->ids[i] == p->id;
    if (places != t->n_pictures)
        return error_set(e, STATUS_INVALID, "the text has %d places for pictures, and %d pictures come with it", places,
                         t->n_pictures);
    *out = (struct row_counts){.all = (size_t)(t->n - places)};
    for (int i = 0; i < t->n_pictures; i++) {
        const struct merged_picture *picture = &t->pictures[i];
        if (p->tag_length > 0 && picture->tiles > p->n_tags)
            return error_set(e, STATUS_INVALID, "a picture of %d tiles; the model has tags for %d", picture->tiles,
                             p->n_tags);
        if (model_places(m) && (int64_t)picture->grid.rows * picture->grid.columns != picture->tile_rows)
            return error_set(e, STATUS_INVALID, "a picture of %d rows, and of %d times %d in its grid",
                             picture->tile_rows, picture->grid.rows, picture->grid.columns);
        out->all += (size_t)picture_rows_count(m, picture->tiles, picture->tile_rows);
        out->given += (size_t)picture->tiles * (size_t)picture->tile_rows;
    }
    if (out->all <= LIMIT_POSITIONS) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE, "a text and its pictures are %zu rows, the limit is %d", out->all,
                     LIMIT_POSITIONS);
}

static void place_text(struct merged_text *t, const struct picture_text *text) {
    struct picture_grid *grids = xcalloc((size_t)text->n_pictures + 1, sizeof *grids);
    for (int i = 0; i < text->n_pictures; i++) grids[i] = text->pictures[i].grid;
    picture_rows_place(t->positions, t->ids, t->n, grids);
    free(grids);
}

enum status picture_rows_text(struct merged_text *out, const struct model *m, const struct picture_text *text,
                              struct error *e) {
    struct merging w = {
        .to = out, .model = m, .width = m->spec.stacks[STACK_DECODER].hidden, .counts = m->spec.learned_positions};
    const struct merged_picture *next = text->pictures;
    struct row_counts rows = {0};
    *out = (struct merged_text){0};
    if (count_rows(&rows, m, text, e)) return e->status;
    out->ids = xmalloc((rows.all + 1) * sizeof *out->ids);
    out->names = xmalloc((rows.given + 1) * sizeof *out->names);
    out->sections = model_places(m) ? PLACE_SECTIONS : w.counts;
    if (out->sections > 0) out->positions = xmalloc((rows.all + 1) * (size_t)out->sections * sizeof *out->positions);
    if (next && next->rows) out->given = xmalloc((rows.given + 1) * (size_t)w.width * sizeof *out->given);

    for (; w.at < text->n; w.at++) {
        if (text->ids[w.at] == m->spec.picture.id) {
            put_picture(&w, next);
            next++;
        } else {
            put_id(&w, text->ids[w.at]);
        }
    }
    if (model_places(m)) place_text(out, text);
    return STATUS_OK;
}

void merged_text_free(struct merged_text *t) {
    free(t->ids);
    free(t->positions);
    free(t->names);
    free(t->given);
    *t = (struct merged_text){0};
}
