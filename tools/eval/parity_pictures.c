/* tools/eval/parity_pictures.c: reference cases of vision models. See parity_pictures.h. */
#include "tools/eval/parity_pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct stored_tensor *find_part(const struct weights *w, const char *prefix, const char *suffix) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    return weights_find(w, name);
}

static enum status refuse(const char *name, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: %s is missing or has the wrong shape", name, what);
}

static bool is_typed(const struct stored_tensor *t, enum stored_dtype dtype, int n_dims) {
    return t && t->dtype == dtype && t->n_dims == n_dims;
}

static const struct stored_tensor *find_picture(const struct weights *w, const char *name, int i) {
    char part[40];
    snprintf(part, sizeof part, "picture_%d", i);
    return find_part(w, name, part);
}

/* Pictures that have a tensor each. */
static enum status list_pictures(struct parity_pictures *p, const char *name, const struct weights *w,
                                 struct error *e) {
    while (find_picture(w, name, p->n)) p->n++;
    p->list = xcalloc((size_t)p->n + 1, sizeof *p->list);
    p->n_tiles = p->n;
    p->expanded = p->n > 0;
    for (int i = 0; i < p->n; i++) {
        const struct stored_tensor *t = find_picture(w, name, i);
        if (!is_typed(t, STORED_F32, 3) || t->shape[0] != 3) return refuse(name, "picture_0 .. [3, H, W] f32", e);
        p->list[i] = (struct tower_picture){t->data, (int)t->shape[1], (int)t->shape[2]};
    }
    return STATUS_OK;
}

/* Pictures, or tiles of them, that lie in one tensor. */
static enum status list_tiles(struct parity_pictures *p, const char *name, const struct stored_tensor *t,
                              struct error *e) {
    if (!is_typed(t, STORED_F32, 4) || t->shape[1] != 3) return refuse(name, "images [T, 3, H, W] f32", e);
    int height = (int)t->shape[2], width = (int)t->shape[3];
    p->n_tiles = p->n = (int)t->shape[0];
    p->list = xcalloc((size_t)p->n + 1, sizeof *p->list);
    for (int i = 0; i < p->n; i++) {
        const float *pixels = (const float *)t->data + (size_t)i * 3 * (size_t)height * (size_t)width;
        p->list[i] = (struct tower_picture){pixels, height, width};
    }
    return STATUS_OK;
}

/* The pictures of a case: none where it has no tensor of them. p->list is the caller's after an error, too. */
static enum status read_pictures(struct parity_pictures *p, const char *name, const struct weights *w,
                                 struct error *e) {
    const struct stored_tensor *ours = find_part(w, name, "images"), *hf = find_part(w, name, "pixel_values");
    const struct stored_tensor *t = ours ? ours : hf, *tiles = find_part(w, name, "num_image_tiles");
    *p = (struct parity_pictures){.expanded = hf != NULL};
    if (t == NULL) return list_pictures(p, name, w, e);
    if (list_tiles(p, name, t, e)) return e->status;
    if (tiles && !is_typed(tiles, STORED_I32, 1)) return refuse(name, "num_image_tiles [pictures] i32", e);
    if (tiles == NULL) return STATUS_OK;
    int sum = 0;
    p->tiles = tiles->data;
    p->n = (int)tiles->shape[0];
    for (int i = 0; i < p->n; i++) sum += p->tiles[i];
    return sum == p->n_tiles ? STATUS_OK : refuse(name, "num_image_tiles that add up to the tiles", e);
}

int parity_pictures_rows(const struct parity_pictures *p, const struct model *m, enum tower_end end, int tiles) {
    int rows = 0;
    for (int i = 0; i < tiles; i++) rows += tower_count(m, end, p->list[i].height, p->list[i].width);
    return rows;
}

/* Of one tile. */
static int tile_rows(const struct parity_pictures *p, const struct model *m, int tile) {
    return tower_count(m, TOWER_PROJECTED, p->list[tile].height, p->list[tile].width);
}

static int count_tiles(const struct parity_pictures *p, int picture) { return p->tiles ? p->tiles[picture] : 1; }

/* Texts. */

static enum status read_lengths(struct parity_case *c, const struct stored_tensor *t, struct error *e) {
    c->lengths = xmalloc((size_t)c->b * sizeof *c->lengths);
    for (int i = 0; i < c->b; i++) c->lengths[i] = c->n;
    if (t == NULL) return STATUS_OK;
    if (!is_typed(t, STORED_I32, 1) || t->shape[0] != c->b) return refuse(c->name, "lengths [b] i32", e);
    for (int i = 0; i < c->b; i++) c->lengths[i] = min_int(((const int32_t *)t->data)[i], c->n);
    return STATUS_OK;
}

static enum status take_text(struct parity_case *c, const struct stored_tensor *ids, struct error *e) {
    if (ids == NULL || ids->dtype != STORED_I32 || ids->elements == 0) return refuse(c->name, "ids i32", e);
    c->text_length = (int)ids->shape[ids->n_dims - 1];
    c->tokens = xmalloc(ids->elements * sizeof *c->tokens);
    memcpy(c->tokens, ids->data, ids->elements * sizeof *c->tokens);
    return STATUS_OK;
}

/* Rows of the one text of a generation before it is continued. */
static int count_prompt_rows(const struct parity_case *c, const struct model *m) {
    int n = c->text_length;
    for (int i = 0, tile = 0; i < c->pictures.n; i++) {
        int tiles = count_tiles(&c->pictures, i);
        n += picture_rows_count(m, tiles, tile_rows(&c->pictures, m, tile)) - 1;
        tile += tiles;
    }
    return c->pictures.expanded ? c->text_length : n;
}

static enum status read_generation(struct parity_case *c, const struct stored_tensor *prompt, const struct weights *w,
                                   const struct model *m, struct error *e) {
    const struct stored_tensor *tokens = find_part(w, c->name, "tokens"), *logits = find_part(w, c->name, "logits");
    if (take_text(c, prompt, e)) return e->status;
    if (!is_typed(tokens, STORED_I32, 1) || !is_typed(logits, STORED_F32, 2) || logits->shape[1] != c->vocab ||
        logits->shape[0] != tokens->shape[0])
        return refuse(c->name, "tokens [G] i32 and logits [G, V] f32", e);
    int rows = count_prompt_rows(c, m);
    c->b = 1;
    c->n = rows + (int)tokens->shape[0] - 1;
    c->first_row = rows - 1;
    c->greedy = tokens->data;
    c->logits = logits->data;
    return read_lengths(c, NULL, e);
}

enum status parity_pictures_read(struct parity_case *c, const char *name, const struct weights *w,
                                 const struct model *m, struct error *e) {
    const struct stored_tensor *prompt = find_part(w, name, "prompt"), *hf = find_part(w, name, "input_ids");
    const struct stored_tensor *ids = hf ? hf : find_part(w, name, "tokens"), *logits = find_part(w, name, "logits");
    if (read_pictures(&c->pictures, name, w, e)) return e->status;
    if (prompt) return read_generation(c, prompt, w, m, e);
    if (ids == NULL || ids->n_dims != 2) return refuse(name, "tokens or input_ids [b, t] i32", e);
    if (!is_typed(logits, STORED_F32, 3) || logits->shape[0] != ids->shape[0] || logits->shape[2] != c->vocab)
        return refuse(name, "logits [b, n, V] f32", e);
    c->b = (int)ids->shape[0];
    c->n = (int)logits->shape[1];
    c->logits = logits->data;
    if (take_text(c, ids, e)) return e->status;
    return read_lengths(c, find_part(w, name, "lengths"), e);
}

/* Texts that have an id for each row of a picture get one for each picture, of which the first is `next`. */
static int shrink_text(int32_t *ids, int n, int picture_id, const struct merged_picture *next, int pictures) {
    int kept = 0, picture = 0;
    for (int i = 0; i < n; i++) {
        ids[kept] = ids[i];
        kept++;
        if (ids[i] != picture_id || picture == pictures) continue;
        i += next[picture].tile_rows - 1;
        picture++;
    }
    return kept;
}

/* Merged rows, and in a generation the ids behind them. */
static enum status merge_sequence(struct parity_case *c, const struct model *m, int sequence,
                                  const struct merged_picture *pictures, int *used, struct error *e) {
    const struct parity_pictures *p = &c->pictures;
    int32_t *ids = c->tokens + (size_t)sequence * (size_t)c->text_length;
    int n = c->text_length, places = 0;
    if (p->expanded) n = shrink_text(ids, n, model_picture_id(m), pictures + *used, p->n - *used);
    for (int i = 0; i < n; i++) places += ids[i] == model_picture_id(m);
    if (*used + places > p->n) return refuse(c->name, "a picture for each place in the texts", e);
    struct picture_text text = {ids, n, pictures + *used, places};
    if (picture_rows_text(&c->merged[sequence], m, &text, e)) return e->status;
    *used += places;
    return STATUS_OK;
}

/* The positions of row i of a sequence; behind the text they count on from the largest of its last row. */
static void take_positions(struct parity_case *c, int sequence, int i) {
    const struct merged_text *t = &c->merged[sequence];
    size_t at = (size_t)sequence * (size_t)c->n + (size_t)i;
    int first = min_int(i, t->n - 1) * c->sections, largest = 0;
    for (int j = 0; j < c->sections; j++) largest = max_int(largest, t->positions[first + j]);
    for (int j = 0; j < c->sections; j++)
        c->positions[at * (size_t)c->sections + (size_t)j] =
            i < t->n ? t->positions[first + j] : largest + 1 + i - t->n;
}

/* Row i of a sequence, whose last ones a generation goes on with. */
static void take_row(struct parity_case *c, int sequence, int i, int32_t *ids) {
    const struct merged_text *t = &c->merged[sequence];
    size_t at = (size_t)sequence * (size_t)c->n + (size_t)i;
    bool behind = i >= t->n;
    if (!behind) ids[at] = t->ids[i];
    if (behind && c->greedy) ids[at] = c->greedy[i - t->n];
    if (c->positions) take_positions(c, sequence, i);
}

/* The merged rows of all sequences as the case's tokens [b, n]. */
static void take_merged(struct parity_case *c) {
    size_t n = (size_t)c->b * (size_t)c->n;
    int32_t *ids = xcalloc(n, sizeof *ids);
    c->sections = c->merged[0].sections;
    if (c->sections > 0) c->positions = xcalloc(n * (size_t)c->sections, sizeof *c->positions);
    for (int i = 0; i < c->b; i++)
        for (int j = 0; j < c->n; j++) take_row(c, i, j, ids);
    free(c->tokens);
    c->tokens = ids;
}

enum status parity_pictures_merge(struct parity_case *c, const struct model *m, struct session_pool *pool,
                                  struct error *e) {
    const struct parity_pictures *p = &c->pictures;
    size_t d = (size_t)tower_columns(m, TOWER_PROJECTED);
    size_t all = (size_t)parity_pictures_rows(p, m, TOWER_PROJECTED, p->n_tiles);
    float *rows = xmalloc((all * d + 1) * sizeof *rows);
    struct merged_picture *pictures = xcalloc((size_t)p->n + 1, sizeof *pictures);
    enum status status = p->n_tiles > 0 ? session_encode_pictures(pool, p->list, p->n_tiles, rows, e) : STATUS_OK;

    for (int i = 0, tile = 0; i < p->n; i++) {
        const float *first = rows + (size_t)parity_pictures_rows(p, m, TOWER_PROJECTED, tile) * d;
        int n = count_tiles(p, i);
        pictures[i] = (struct merged_picture){.rows = first, .tiles = n, .tile_rows = tile_rows(p, m, tile)};
        pictures[i].name.picture[0] = i;
        tower_grid(m, p->list[tile].height, p->list[tile].width, &pictures[i].grid.rows, &pictures[i].grid.columns);
        tile += n;
    }
    int used = 0;
    c->merged = xcalloc((size_t)c->b, sizeof *c->merged);
    for (int i = 0; i < c->b && status == STATUS_OK; i++) status = merge_sequence(c, m, i, pictures, &used, e);
    if (status == STATUS_OK) take_merged(c);
    free(pictures);
    free(rows);
    return status;
}

/* Towers and projectors. */

static float largest_difference(const float *got, const float *want, size_t n) {
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        float difference = fabsf(got[i] - want[i]);
        if (!(difference <= largest)) largest = difference; /* NaN sticks */
    }
    return largest;
}

/* One file of cases. */
struct tower_run {
    const struct model *model;
    const struct weights *file;
    parity_tower_reporter *report;
    void *context;
};

/* All pictures of a case in one pass. */
static enum status run_pass(const struct tower_run *r, const struct parity_pictures *p, enum tower_end end, float *got,
                            struct error *e) {
    struct tower *tower;
    int rows = parity_pictures_rows(p, r->model, TOWER_ROWS, p->n_tiles);
    if (tower_open(&tower, r->model, rows, e)) return e->status;
    enum status status = tower_run(tower, p->list, p->n_tiles, end, got, e);
    tower_close(tower);
    return status;
}

static enum status run_pictures(const struct tower_run *r, const struct parity_pictures *p, const char *name,
                                enum tower_end end, const struct stored_tensor *want, struct error *e) {
    const struct model *m = r->model;
    if (p->n_tiles < 1) return refuse(name, "images", e);
    for (int i = 0; i < p->n_tiles; i++)
        if (tower_check(m, p->list[i].height, p->list[i].width, e)) return refuse(name, "images", e);
    size_t values = (size_t)parity_pictures_rows(p, m, end, p->n_tiles) * (size_t)tower_columns(m, end);
    if (want->dtype != STORED_F32 || want->elements != values) return refuse(name, "output [T, rows, d] f32", e);

    float *got = xmalloc(values * sizeof *got);
    enum status status = run_pass(r, p, end, got, e);
    const char *shown = end == TOWER_PROJECTED ? want->name : name;
    if (status == STATUS_OK) r->report(r->context, shown, largest_difference(got, want->data, values));
    free(got);
    return status;
}

static enum status run_tower(const struct tower_run *r, const char *name, enum tower_end end,
                             const struct stored_tensor *want, struct error *e) {
    struct parity_pictures p;
    enum status status = read_pictures(&p, name, r->file, e);
    if (status == STATUS_OK) status = run_pictures(r, &p, name, end, want, e);
    free(p.list);
    return status;
}

static enum status run_projector(const struct tower_run *r, const char *name, const struct stored_tensor *in,
                                 const struct stored_tensor *want, struct error *e) {
    struct tower *tower;
    if (!is_typed(in, STORED_F32, 2) || !is_typed(want, STORED_F32, 2) ||
        want->shape[1] != tower_columns(r->model, TOWER_PROJECTED) || want->shape[0] != in->shape[0])
        return refuse(name, "input [n, in] and output [n, out] f32", e);
    int n = (int)in->shape[0];
    float *got = xmalloc(want->elements * sizeof *got);
    enum status status = tower_open(&tower, r->model, n, e);
    if (status == STATUS_OK) {
        status = tower_project(tower, in->data, n, got, e);
        tower_close(tower);
    }
    if (status == STATUS_OK) r->report(r->context, name, largest_difference(got, want->data, want->elements));
    free(got);
    return status;
}

/* NAME of a tensor NAME.output, NAME.last_hidden_state or NAME.projected, owned, and what the tensor holds; NULL of
 * others. LLaVA's have NAME.vision.output. */
static char *name_case(const struct stored_tensor *t, enum tower_end *end) {
    const char *const markers[] = {".output", ".last_hidden_state", ".projected"};
    const enum tower_end ends[] = {TOWER_ROWS, TOWER_ROWS, TOWER_PROJECTED};
    for (size_t i = 0; i < ARRAY_COUNT(markers); i++) {
        size_t n = strlen(t->name), tail = strlen(markers[i]);
        *end = ends[i];
        if (n > tail && strcmp(t->name + n - tail, markers[i]) == 0) return xstrndup(t->name, n - tail);
    }
    return NULL;
}

static enum status run_case(const struct tower_run *r, const struct stored_tensor *want, struct error *e) {
    enum tower_end end;
    char *name = name_case(want, &end);
    enum status status = STATUS_OK;
    if (name == NULL) return STATUS_OK;
    const struct stored_tensor *in = find_part(r->file, name, "input");
    if (in)
        status = run_projector(r, name, in, want, e);
    else
        status = run_tower(r, name, end, want, e);
    free(name);
    return status;
}

enum status parity_towers_run(const char *path, const struct model *m, parity_tower_reporter *report, void *context,
                              struct error *e) {
    struct weights *w;
    if (access(path, F_OK) != 0) return STATUS_OK;
    if (weights_open(&w, path, e)) return e->status;
    struct tower_run r = {.model = m, .file = w, .report = report, .context = context};
    enum status status = STATUS_OK;
    for (int i = 0; i < weights_count(w) && status == STATUS_OK; i++) status = run_case(&r, weights_at(w, i), e);
    weights_close(w);
    return status;
}
