/* retro/run/tower/picture_rows.c: texts with pictures as rows. See picture_rows.h. */
#include "retro/run/tower/picture_rows.h"

#include <stdlib.h>
#include <string.h>

#include "retro/model/model_private.h"
#include "retro/run/tower/tower.h"

bool model_sees(const struct model *model) {
    return model_writes(model) && model->spec.projector.out > 0;
}

int model_picture_id(const struct model *model) { return model->spec.picture.id; }

bool model_lines(const struct model *model) { return model->spec.picture.lined; }

bool model_places(const struct model *model) {
    return model->spec.stacks[STACK_DECODER].rope_sections == PLACE_SECTIONS;
}

int picture_rows_together(const struct model *model) { return model->spec.picture.together; }

int picture_rows_most(const struct model *model, int viewed) {
    int joined = tower_patch_of(model).joined;
    return model->spec.picture.linked ? viewed / (joined * joined) : picture_rows_together(model);
}

/* Whether `next` is the given row behind that of `id`. */
static bool goes_on(int32_t id, int32_t next) { return id < 0 && next == id - 1; }

/* Between two pictures of linked rows there are words, so a picture ends where given rows do. */
int picture_rows_left(const struct model *model, const int32_t *ids, int n) {
    int together = model->spec.picture.together, left = 1;
    if (ids[0] >= 0) return 0;
    if (together > 0) return together - (-1 - ids[0]) % together;
    if (!model->spec.picture.linked) return 0;
    while (left < n && goes_on(ids[left - 1], ids[left])) left++;
    return left;
}

int picture_rows_fit(const struct model *model, const int32_t *ids, int n, int most) {
    if (most >= n || most < 1) return max_int(0, min_int(n, most));
    int left = picture_rows_left(model, ids + most - 1, n - most + 1), first = most - 1;
    if (left <= 1) return most;
    if (picture_rows_together(model) > 0)
        return max_int(0, most - (picture_rows_together(model) - left + 1));
    while (first > 0 && goes_on(ids[first - 1], ids[first])) first--;
    return first;
}

/* The grid's first `count` rows, which stand at `from` in the text. */
static void place_rows(int32_t *positions, int from, const struct picture_grid *grid, int count) {
    for (int i = 0; i < count; i++) {
        int32_t *position = positions + (size_t)i * PLACE_SECTIONS;
        position[0] = from;
        position[1] = from + i / grid->columns;
        position[2] = from + i % grid->columns;
    }
}

void picture_rows_place(int32_t *positions, const int32_t *ids, int n,
                        const struct picture_grid *grids) {
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

int picture_rows_count(const struct model *model, int tiles, int tile_rows) {
    return tiles * (model->spec.picture.tag_length + tile_rows);
}

/* One picture_rows_text. */
struct merging {
    struct merged_text *to;
    const struct model *model;
    int width, at; /* columns of a row; the id of the text that is being merged */
    bool counts;   /* positions are those in the table of learned ones */
    struct picture_line_ids line_ids;
};

static void put_id(struct merging *merging, int32_t id) {
    struct merged_text *text = merging->to;
    text->ids[text->n] = id;
    if (merging->counts) text->positions[text->n] = merging->at;
    text->n++;
}

/* Tags 0, 1, ..., and before the last tile of several the thumbnail's. */
static void put_tags(struct merging *merging, int tile, int tiles) {
    const struct picture_spec *spec = &merging->model->spec.picture;
    int tag = tile == tiles - 1 ? spec->n_tags - 1 : tile;
    for (int i = 0; i < spec->tag_length; i++) put_id(merging, spec->tags[tag][i]);
}

/* The id behind a row that is the last one of its line. */
static void end_line(struct merging *merging, const struct picture_grid *grid, int row) {
    if (!model_lines(merging->model) || (row + 1) % grid->columns != 0) return;
    bool last = row + 1 == grid->rows * grid->columns;
    put_id(merging, last ? merging->line_ids.last : merging->line_ids.between);
}

static void put_picture(struct merging *merging, const struct merged_picture *picture) {
    struct merged_text *text = merging->to;
    struct row_name name = picture->name;
    size_t values = (size_t)picture->tiles * (size_t)picture->tile_rows * (size_t)merging->width;
    if (picture->rows)
        memcpy(text->given + (size_t)text->n_given * (size_t)merging->width, picture->rows,
               values * sizeof *text->given);
    for (int i = 0; i < picture->tiles; i++) {
        put_tags(merging, i, picture->tiles);
        for (int j = 0; j < picture->tile_rows; j++) {
            put_id(merging, -1 - text->n_given);
            text->names[text->n_given] = name;
            text->n_given++;
            name.row++;
            end_line(merging, &picture->grid, j);
        }
    }
}

/* The rows that a text and its pictures take, and that of them are given. */
struct row_counts {
    size_t all, given;
};

/* Pictures that fit the text and the model. */
static enum status count_rows(struct row_counts *out, const struct model *model,
                              const struct picture_text *text, struct error *e) {
    const struct picture_spec *spec = &model->spec.picture;
    int places = 0;
    for (int i = 0; i < text->n; i++) {
        bool beside = places > 0 && i > 0 && text->ids[i - 1] == spec->id;
        places += text->ids[i] == spec->id;
        if (spec->linked && beside && text->ids[i] == spec->id)
            return error_set(e, STATUS_INVALID,
                             "two pictures stand side by side; this model needs a word between "
                             "them, as its processor writes it");
    }
    if (places != text->n_pictures)
        return error_set(e, STATUS_INVALID,
                         "the text has %d places for pictures, and %d pictures come with it",
                         places, text->n_pictures);
    *out = (struct row_counts){.all = (size_t)(text->n - places)};
    for (int i = 0; i < text->n_pictures; i++) {
        const struct merged_picture *picture = &text->pictures[i];
        if (spec->tag_length > 0 && picture->tiles > spec->n_tags)
            return error_set(e, STATUS_INVALID, "a picture of %d tiles; the model has tags for %d",
                             picture->tiles, spec->n_tags);
        bool gridded = model_places(model) || model_lines(model);
        if (gridded && (int64_t)picture->grid.rows * picture->grid.columns != picture->tile_rows)
            return error_set(e, STATUS_INVALID,
                             "a picture of %d rows, and of %d times %d in its grid",
                             picture->tile_rows, picture->grid.rows, picture->grid.columns);
        out->all += (size_t)picture_rows_count(model, picture->tiles, picture->tile_rows);
        if (model_lines(model)) out->all += (size_t)picture->tiles * (size_t)picture->grid.rows;
        out->given += (size_t)picture->tiles * (size_t)picture->tile_rows;
    }
    if (out->all <= LIMIT_POSITIONS) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE, "a text and its pictures are %zu rows, the limit is %d",
                     out->all, LIMIT_POSITIONS);
}

static void place_text(struct merged_text *merged_text, const struct picture_text *text) {
    struct picture_grid *grids = xcalloc((size_t)text->n_pictures + 1, sizeof *grids);
    for (int i = 0; i < text->n_pictures; i++) grids[i] = text->pictures[i].grid;
    picture_rows_place(merged_text->positions, merged_text->ids, merged_text->n, grids);
    free(grids);
}

enum status picture_rows_text(struct merged_text *out, const struct model *model,
                              const struct picture_text *text, struct error *e) {
    struct merging merging = {.to = out,
                              .model = model,
                              .width = model_given_columns(model),
                              .counts = model->spec.learned_positions,
                              .line_ids = text->line_ids};
    const struct merged_picture *next = text->pictures;
    struct row_counts rows = {0};
    *out = (struct merged_text){0};
    if (count_rows(&rows, model, text, e)) return e->status;
    out->ids = xmalloc((rows.all + 1) * sizeof *out->ids);
    out->names = xmalloc((rows.given + 1) * sizeof *out->names);
    out->sections = model_places(model) ? PLACE_SECTIONS : merging.counts;
    if (out->sections > 0)
        out->positions = xmalloc((rows.all + 1) * (size_t)out->sections * sizeof *out->positions);
    if (next && next->rows)
        out->given = xmalloc((rows.given + 1) * (size_t)merging.width * sizeof *out->given);

    for (; merging.at < text->n; merging.at++) {
        if (text->ids[merging.at] == model->spec.picture.id) {
            put_picture(&merging, next);
            next++;
        } else {
            put_id(&merging, text->ids[merging.at]);
        }
    }
    if (model_places(model)) place_text(out, text);
    return STATUS_OK;
}

void merged_text_free(struct merged_text *text) {
    free(text->ids);
    free(text->positions);
    free(text->names);
    free(text->given);
    *text = (struct merged_text){0};
}
