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

/* The pictures of a case: none where it has no tensor of them. */
static enum status read_pictures(struct parity_pictures *p, const char *name, const struct weights *w,
                                 struct error *e) {
    const struct stored_tensor *ours = find_part(w, name, "images"), *hf = find_part(w, name, "pixel_values");
    const struct stored_tensor *t = ours ? ours : hf, *tiles = find_part(w, name, "num_image_tiles");
    *p = (struct parity_pictures){.expanded = hf != NULL};
    if (t == NULL) return STATUS_OK;
    if (!is_typed(t, STORED_F32, 4) || t->shape[1] != 3) return refuse(name, "images [T, 3, H, W] f32", e);
    if (tiles && !is_typed(tiles, STORED_I32, 1)) return refuse(name, "num_image_tiles [pictures] i32", e);
    p->pixels = t->data;
    p->n_tiles = p->n = (int)t->shape[0];
    p->height = (int)t->shape[2];
    p->width = (int)t->shape[3];
    if (tiles == NULL) return STATUS_OK;
    int sum = 0;
    p->tiles = tiles->data;
    p->n = (int)tiles->shape[0];
    for (int i = 0; i < p->n; i++) sum += p->tiles[i];
    return sum == p->n_tiles ? STATUS_OK : refuse(name, "num_image_tiles that add up to the tiles", e);
}

static struct tower_picture tile_at(const struct parity_pictures *p, int i) {
    size_t pixels = 3 * (size_t)p->height * (size_t)p->width;
    return (struct tower_picture){p->pixels + (size_t)i * pixels, p->height, p->width};
}

static int tile_rows(const struct parity_pictures *p, const struct model *m) {
    return p->n_tiles ? tower_count(m, TOWER_PROJECTED, p->height, p->width) : 0;
}

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
    for (int i = 0; i < c->pictures.n; i++) {
        int tiles = c->pictures.tiles ? c->pictures.tiles[i] : 1;
        n += merge_count(m, tiles, tile_rows(&c->pictures, m)) - 1;
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

/* Texts that have an id for each row of a picture get one for each picture. */
static int shrink_text(int32_t *ids, int n, int picture_id, int rows) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        ids[kept] = ids[i];
        kept++;
        if (ids[i] == picture_id) i += rows - 1;
    }
    return kept;
}

/* Merged rows, and in a generation the ids behind them. */
static enum status merge_sequence(struct parity_case *c, const struct model *m, int sequence,
                                  const struct merged_picture *pictures, int *used, struct error *e) {
    const struct parity_pictures *p = &c->pictures;
    int32_t *ids = c->tokens + (size_t)sequence * (size_t)c->text_length;
    int n = c->text_length, places = 0;
    if (p->expanded) n = shrink_text(ids, n, model_picture_id(m), tile_rows(p, m));
    for (int i = 0; i < n; i++) places += ids[i] == model_picture_id(m);
    if (*used + places > p->n) return refuse(c->name, "a picture for each place in the texts", e);
    struct picture_text text = {ids, n, pictures + *used, places};
    if (merge_text(&c->merged[sequence], m, &text, e)) return e->status;
    *used += places;
    return STATUS_OK;
}

/* Row i of a sequence, whose last ones a generation goes on with. */
static void take_row(struct parity_case *c, int sequence, int i, int32_t *ids) {
    const struct merged_text *t = &c->merged[sequence];
    size_t at = (size_t)sequence * (size_t)c->n + (size_t)i;
    bool behind = i >= t->n;
    if (!behind) ids[at] = t->ids[i];
    if (behind && c->greedy) ids[at] = c->greedy[i - t->n];
    if (c->positions) c->positions[at] = behind ? t->positions[t->n - 1] + 1 + i - t->n : t->positions[i];
}

/* The merged rows of all sequences as the case's tokens [b, n]. */
static void take_merged(struct parity_case *c) {
    size_t n = (size_t)c->b * (size_t)c->n;
    int32_t *ids = xcalloc(n, sizeof *ids);
    if (c->merged[0].positions) c->positions = xcalloc(n, sizeof *c->positions);
    for (int i = 0; i < c->b; i++)
        for (int j = 0; j < c->n; j++) take_row(c, i, j, ids);
    free(c->tokens);
    c->tokens = ids;
}

enum status parity_pictures_merge(struct parity_case *c, const struct model *m, struct session_pool *pool,
                                  struct error *e) {
    const struct parity_pictures *p = &c->pictures;
    size_t tile = (size_t)tile_rows(p, m) * (size_t)tower_columns(m, TOWER_PROJECTED);
    float *rows = xmalloc((tile * (size_t)p->n_tiles + 1) * sizeof *rows);
    struct tower_picture *tiles = xcalloc((size_t)p->n_tiles + 1, sizeof *tiles);
    struct merged_picture *pictures = xcalloc((size_t)p->n + 1, sizeof *pictures);
    for (int i = 0; i < p->n_tiles; i++) tiles[i] = tile_at(p, i);
    enum status status = p->n_tiles > 0 ? session_view(pool, tiles, p->n_tiles, rows, e) : STATUS_OK;

    size_t at = 0;
    for (int i = 0; i < p->n; i++) {
        int n = p->tiles ? p->tiles[i] : 1;
        pictures[i] = (struct merged_picture){rows + at, n, tile_rows(p, m), {.picture = {i}}};
        at += tile * (size_t)n;
    }
    int used = 0;
    c->merged = xcalloc((size_t)c->b, sizeof *c->merged);
    for (int i = 0; i < c->b && status == STATUS_OK; i++) status = merge_sequence(c, m, i, pictures, &used, e);
    if (status == STATUS_OK) take_merged(c);
    free(pictures);
    free(tiles);
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

static enum status run_tower(const struct tower_run *r, const char *name, const struct stored_tensor *want,
                             struct error *e) {
    const struct model *m = r->model;
    struct parity_pictures p;
    struct tower *tower;
    if (read_pictures(&p, name, r->file, e)) return e->status;
    if (p.n_tiles < 1 || tower_check(m, p.height, p.width, e)) return refuse(name, "images", e);
    int rows = tower_count(m, TOWER_ROWS, p.height, p.width), columns = tower_columns(m, TOWER_ROWS);
    size_t values = (size_t)p.n_tiles * (size_t)rows * (size_t)columns;
    if (want->dtype != STORED_F32 || want->elements != values) return refuse(name, "output [T, rows, d] f32", e);

    float *got = xmalloc(values * sizeof *got);
    struct tower_picture *tiles = xcalloc((size_t)p.n_tiles, sizeof *tiles);
    for (int i = 0; i < p.n_tiles; i++) tiles[i] = tile_at(&p, i);
    enum status status = tower_open(&tower, m, rows * p.n_tiles, e);
    if (status == STATUS_OK) {
        status = tower_run(tower, tiles, p.n_tiles, TOWER_ROWS, got, e);
        tower_close(tower);
    }
    if (status == STATUS_OK) r->report(r->context, name, largest_difference(got, want->data, values));
    free(tiles);
    free(got);
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

/* NAME of a tensor NAME.output or NAME.last_hidden_state, owned; NULL of others. LLaVA's have NAME.vision.output. */
static char *name_case(const struct stored_tensor *t) {
    const char *const markers[] = {".output", ".last_hidden_state"};
    for (size_t i = 0; i < ARRAY_COUNT(markers); i++) {
        size_t n = strlen(t->name), tail = strlen(markers[i]);
        if (n > tail && strcmp(t->name + n - tail, markers[i]) == 0) return xstrndup(t->name, n - tail);
    }
    return NULL;
}

static enum status run_case(const struct tower_run *r, const struct stored_tensor *want, struct error *e) {
    char *name = name_case(want);
    enum status status = STATUS_OK;
    if (name == NULL) return STATUS_OK;
    const struct stored_tensor *in = find_part(r->file, name, "input");
    if (in)
        status = run_projector(r, name, in, want, e);
    else
        status = run_tower(r, name, want, e);
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
