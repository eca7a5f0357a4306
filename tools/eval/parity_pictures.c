/* tools/eval/parity_pictures.c: reference cases of vision models. See parity_pictures.h. */
#include "tools/eval/parity_pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct stored_tensor *find_part(const struct weights *weights, const char *prefix,
                                             const char *suffix) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    return weights_find(weights, name);
}

static enum status refuse(const char *name, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: %s is missing or has the wrong shape", name, what);
}

static bool is_typed(const struct stored_tensor *stored, enum stored_dtype dtype, int n_dims) {
    return stored && stored->dtype == dtype && stored->n_dims == n_dims;
}

static const struct stored_tensor *find_picture(const struct weights *weights, const char *name,
                                                int i) {
    char part[40];
    snprintf(part, sizeof part, "picture_%d", i);
    return find_part(weights, name, part);
}

/* Pictures that have a tensor each. */
static enum status list_pictures(struct parity_pictures *pictures, const char *name,
                                 const struct weights *weights, struct error *e) {
    while (find_picture(weights, name, pictures->n)) pictures->n++;
    pictures->list = xcalloc((size_t)pictures->n + 1, sizeof *pictures->list);
    pictures->n_tiles = pictures->n;
    pictures->expanded = pictures->n > 0;
    for (int i = 0; i < pictures->n; i++) {
        const struct stored_tensor *stored = find_picture(weights, name, i);
        if (!is_typed(stored, STORED_F32, 3) || stored->shape[0] != 3)
            return refuse(name, "picture_0 .. [3, H, W] f32", e);
        pictures->list[i] =
            (struct tower_picture){stored->data, (int)stored->shape[1], (int)stored->shape[2]};
    }
    return STATUS_OK;
}

/* Pictures, or tiles of them, that lie in one tensor. */
static enum status list_tiles(struct parity_pictures *pictures, const char *name,
                              const struct stored_tensor *stored, struct error *e) {
    if (!is_typed(stored, STORED_F32, 4) || stored->shape[1] != 3)
        return refuse(name, "images [T, 3, H, W] f32", e);
    int height = (int)stored->shape[2], width = (int)stored->shape[3];
    pictures->n_tiles = pictures->n = (int)stored->shape[0];
    pictures->list = xcalloc((size_t)pictures->n + 1, sizeof *pictures->list);
    for (int i = 0; i < pictures->n; i++) {
        const float *pixels =
            (const float *)stored->data + (size_t)i * 3 * (size_t)height * (size_t)width;
        pictures->list[i] = (struct tower_picture){pixels, height, width};
    }
    return STATUS_OK;
}

/* The pictures of a case: none where it has no tensor of them. pictures->list is the caller's after
 * an error, too. */
static enum status read_pictures(struct parity_pictures *pictures, const char *name,
                                 const struct weights *weights, struct error *e) {
    const struct stored_tensor *ours = find_part(weights, name, "images"),
                               *hf = find_part(weights, name, "pixel_values");
    const struct stored_tensor *stored = ours ? ours : hf,
                               *tiles = find_part(weights, name, "num_image_tiles");
    *pictures = (struct parity_pictures){.expanded = hf != NULL};
    if (stored == NULL) return list_pictures(pictures, name, weights, e);
    if (list_tiles(pictures, name, stored, e)) return e->status;
    if (tiles && !is_typed(tiles, STORED_I32, 1))
        return refuse(name, "num_image_tiles [pictures] i32", e);
    if (tiles == NULL) return STATUS_OK;
    int sum = 0;
    pictures->tiles = tiles->data;
    pictures->n = (int)tiles->shape[0];
    for (int i = 0; i < pictures->n; i++) sum += pictures->tiles[i];
    return sum == pictures->n_tiles ? STATUS_OK
                                    : refuse(name, "num_image_tiles that add up to the tiles", e);
}

int parity_pictures_rows(const struct parity_pictures *pictures, const struct model *model,
                         enum tower_end end, int tiles) {
    int rows = 0;
    for (int i = 0; i < tiles; i++)
        rows += tower_count(model, end, pictures->list[i].height, pictures->list[i].width);
    return rows;
}

/* Of one tile. */
static int tile_rows(const struct parity_pictures *pictures, const struct model *model, int tile) {
    return tower_count(model, TOWER_PROJECTED, pictures->list[tile].height,
                       pictures->list[tile].width);
}

static int count_tiles(const struct parity_pictures *pictures, int picture) {
    return pictures->tiles ? pictures->tiles[picture] : 1;
}

/* Texts. */

static enum status read_lengths(struct parity_case *test, const struct stored_tensor *stored,
                                struct error *e) {
    test->lengths = xmalloc((size_t)test->b * sizeof *test->lengths);
    for (int i = 0; i < test->b; i++) test->lengths[i] = test->n;
    if (stored == NULL) return STATUS_OK;
    if (!is_typed(stored, STORED_I32, 1) || stored->shape[0] != test->b)
        return refuse(test->name, "lengths [b] i32", e);
    for (int i = 0; i < test->b; i++)
        test->lengths[i] = min_int(((const int32_t *)stored->data)[i], test->n);
    return STATUS_OK;
}

static enum status take_text(struct parity_case *test, const struct stored_tensor *ids,
                             struct error *e) {
    if (ids == NULL || ids->dtype != STORED_I32 || ids->elements == 0)
        return refuse(test->name, "ids i32", e);
    test->text_length = (int)ids->shape[ids->n_dims - 1];
    test->tokens = xmalloc(ids->elements * sizeof *test->tokens);
    memcpy(test->tokens, ids->data, ids->elements * sizeof *test->tokens);
    return STATUS_OK;
}

/* Rows of the one text of a generation before it is continued. */
static int count_prompt_rows(const struct parity_case *test, const struct model *model) {
    int n = test->text_length;
    for (int i = 0, tile = 0; i < test->pictures.n; i++) {
        int tiles = count_tiles(&test->pictures, i);
        n += picture_rows_count(model, tiles, tile_rows(&test->pictures, model, tile)) - 1;
        tile += tiles;
    }
    return test->pictures.expanded ? test->text_length : n;
}

static enum status read_generation(struct parity_case *test, const struct stored_tensor *prompt,
                                   const struct weights *weights, const struct model *model,
                                   struct error *e) {
    const struct stored_tensor *tokens = find_part(weights, test->name, "tokens"),
                               *logits = find_part(weights, test->name, "logits");
    if (take_text(test, prompt, e)) return e->status;
    if (!is_typed(tokens, STORED_I32, 1) || !is_typed(logits, STORED_F32, 2) ||
        logits->shape[1] != test->vocab || logits->shape[0] != tokens->shape[0])
        return refuse(test->name, "tokens [G] i32 and logits [G, V] f32", e);
    int rows = count_prompt_rows(test, model);
    test->b = 1;
    test->n = rows + (int)tokens->shape[0] - 1;
    test->first_row = rows - 1;
    test->greedy = tokens->data;
    test->logits = logits->data;
    return read_lengths(test, NULL, e);
}

enum status parity_pictures_read(struct parity_case *test, const char *name,
                                 const struct weights *weights, const struct model *model,
                                 struct error *e) {
    const struct stored_tensor *prompt = find_part(weights, name, "prompt"),
                               *hf = find_part(weights, name, "input_ids");
    const struct stored_tensor *ids = hf ? hf : find_part(weights, name, "tokens"),
                               *logits = find_part(weights, name, "logits");
    if (read_pictures(&test->pictures, name, weights, e)) return e->status;
    if (prompt) return read_generation(test, prompt, weights, model, e);
    if (ids == NULL || ids->n_dims != 2) return refuse(name, "tokens or input_ids [b, t] i32", e);
    if (!is_typed(logits, STORED_F32, 3) || logits->shape[0] != ids->shape[0] ||
        logits->shape[2] != test->vocab)
        return refuse(name, "logits [b, n, V] f32", e);
    test->b = (int)ids->shape[0];
    test->n = (int)logits->shape[1];
    test->logits = logits->data;
    if (take_text(test, ids, e)) return e->status;
    const struct stored_tensor *mask = find_part(weights, name, "attention_mask");
    if (mask) return parity_case_mask(test, mask, test->n, &test->lengths, e);
    return read_lengths(test, find_part(weights, name, "lengths"), e);
}

/* Ids of a text that are a picture's. */
static int count_ids(const struct merged_picture *picture, const struct model *model) {
    return picture->tile_rows + (model_lines(model) ? picture->grid.rows : 0);
}

/* Those behind the lines of a picture, whose first id is ids[0]. */
static void read_line_ids(struct picture_line_ids *out, const int32_t *ids, int n,
                          const struct merged_picture *picture, const struct model *model) {
    int all = count_ids(picture, model);
    if (!model_lines(model) || all > n) return;
    if (picture->grid.rows > 1) out->between = ids[picture->grid.columns];
    out->last = ids[all - 1];
}

/* Texts that have an id for each row of a picture get one for each of text->pictures. */
static void shrink_text(int32_t *ids, struct picture_text *text, const struct model *model) {
    int kept = 0, picture = 0;
    for (int i = 0; i < text->n; i++) {
        const struct merged_picture *next = &text->pictures[picture];
        ids[kept] = ids[i];
        kept++;
        if (ids[i] != model_picture_id(model) || picture == text->n_pictures) continue;
        read_line_ids(&text->line_ids, ids + i, text->n - i, next, model);
        i += count_ids(next, model) - 1;
        picture++;
    }
    text->n = kept;
}

/* Merged rows, and in a generation the ids behind them. */
static enum status merge_sequence(struct parity_case *test, const struct model *model, int sequence,
                                  const struct merged_picture *pictures, int *used,
                                  struct error *e) {
    const struct parity_pictures *parity_pictures = &test->pictures;
    int32_t *ids = test->tokens + (size_t)sequence * (size_t)test->text_length;
    struct picture_text text = {
        ids, test->text_length, pictures + *used, parity_pictures->n - *used, {0}};
    int places = 0;
    if (parity_pictures->expanded) shrink_text(ids, &text, model);
    for (int i = 0; i < text.n; i++) places += ids[i] == model_picture_id(model);
    if (*used + places > parity_pictures->n)
        return refuse(test->name, "a picture for each place in the texts", e);
    text.n_pictures = places;
    if (picture_rows_text(&test->merged[sequence], model, &text, e)) return e->status;
    *used += places;
    return STATUS_OK;
}

/* The positions of row i of a sequence; behind the text they count on from the largest of its last
 * row. */
static void take_positions(struct parity_case *test, int sequence, int i) {
    const struct merged_text *text = &test->merged[sequence];
    size_t at = (size_t)sequence * (size_t)test->n + (size_t)i;
    int first = min_int(i, text->n - 1) * test->sections, largest = 0;
    for (int j = 0; j < test->sections; j++) largest = max_int(largest, text->positions[first + j]);
    for (int j = 0; j < test->sections; j++)
        test->positions[at * (size_t)test->sections + (size_t)j] =
            i < text->n ? text->positions[first + j] : largest + 1 + i - text->n;
}

/* Row i of a sequence, whose last ones a generation goes on with. */
static void take_row(struct parity_case *test, int sequence, int i, int32_t *ids) {
    const struct merged_text *text = &test->merged[sequence];
    size_t at = (size_t)sequence * (size_t)test->n + (size_t)i;
    bool behind = i >= text->n;
    if (!behind) ids[at] = text->ids[i];
    if (behind && test->greedy) ids[at] = test->greedy[i - text->n];
    if (test->positions) take_positions(test, sequence, i);
}

/* The merged rows of all sequences as the case's tokens [b, n]. */
static void take_merged(struct parity_case *test) {
    size_t n = (size_t)test->b * (size_t)test->n;
    int32_t *ids = xcalloc(n, sizeof *ids);
    test->sections = test->merged[0].sections;
    if (test->sections > 0)
        test->positions = xcalloc(n * (size_t)test->sections, sizeof *test->positions);
    for (int i = 0; i < test->b; i++)
        for (int j = 0; j < test->n; j++) take_row(test, i, j, ids);
    free(test->tokens);
    test->tokens = ids;
}

enum status parity_pictures_merge(struct parity_case *test, const struct model *model,
                                  struct session_pool *pool, struct error *e) {
    const struct parity_pictures *parity_pictures = &test->pictures;
    size_t d = (size_t)tower_columns(model, TOWER_PROJECTED);
    size_t all = (size_t)parity_pictures_rows(parity_pictures, model, TOWER_PROJECTED,
                                              parity_pictures->n_tiles);
    float *rows = xmalloc((all * d + 1) * sizeof *rows);
    struct merged_picture *pictures = xcalloc((size_t)parity_pictures->n + 1, sizeof *pictures);
    enum status status = parity_pictures->n_tiles > 0
                             ? session_encode_pictures(pool, parity_pictures->list,
                                                       parity_pictures->n_tiles, rows, e)
                             : STATUS_OK;

    for (int i = 0, tile = 0; i < parity_pictures->n; i++) {
        const float *first =
            rows + (size_t)parity_pictures_rows(parity_pictures, model, TOWER_PROJECTED, tile) * d;
        int n = count_tiles(parity_pictures, i);
        pictures[i] = (struct merged_picture){
            .rows = first, .tiles = n, .tile_rows = tile_rows(parity_pictures, model, tile)};
        pictures[i].name.picture[0] = i;
        tower_grid(model, parity_pictures->list[tile].height, parity_pictures->list[tile].width,
                   &pictures[i].grid.rows, &pictures[i].grid.columns);
        tile += n;
    }
    int used = 0;
    test->merged = xcalloc((size_t)test->b, sizeof *test->merged);
    for (int i = 0; i < test->b && status == STATUS_OK; i++)
        status = merge_sequence(test, model, i, pictures, &used, e);
    if (status == STATUS_OK) take_merged(test);
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
static enum status run_pass(const struct tower_run *run, const struct parity_pictures *pictures,
                            enum tower_end end, float *got, struct error *e) {
    struct tower *tower;
    int rows = parity_pictures_rows(pictures, run->model, TOWER_ROWS, pictures->n_tiles);
    if (tower_open(&tower, run->model, rows, e)) return e->status;
    enum status status = tower_run(tower, pictures->list, pictures->n_tiles, end, got, e);
    tower_close(tower);
    return status;
}

static enum status run_pictures(const struct tower_run *run, const struct parity_pictures *pictures,
                                const char *name, enum tower_end end,
                                const struct stored_tensor *want, struct error *e) {
    const struct model *model = run->model;
    if (pictures->n_tiles < 1) return refuse(name, "images", e);
    for (int i = 0; i < pictures->n_tiles; i++)
        if (tower_check(model, pictures->list[i].height, pictures->list[i].width, e))
            return refuse(name, "images", e);
    size_t values = (size_t)parity_pictures_rows(pictures, model, end, pictures->n_tiles) *
                    (size_t)tower_columns(model, end);
    if (want->dtype != STORED_F32 || want->elements != values)
        return refuse(name, "output [T, rows, d] f32", e);

    float *got = xmalloc(values * sizeof *got);
    enum status status = run_pass(run, pictures, end, got, e);
    const char *shown = end == TOWER_PROJECTED ? want->name : name;
    if (status == STATUS_OK)
        run->report(run->context, shown, largest_difference(got, want->data, values));
    free(got);
    return status;
}

static enum status run_tower(const struct tower_run *run, const char *name, enum tower_end end,
                             const struct stored_tensor *want, struct error *e) {
    struct parity_pictures pictures;
    enum status status = read_pictures(&pictures, name, run->file, e);
    if (status == STATUS_OK) status = run_pictures(run, &pictures, name, end, want, e);
    free(pictures.list);
    return status;
}

static enum status run_projector(const struct tower_run *run, const char *name,
                                 const struct stored_tensor *in, const struct stored_tensor *want,
                                 struct error *e) {
    struct tower *tower;
    if (!is_typed(in, STORED_F32, 2) || !is_typed(want, STORED_F32, 2) ||
        want->shape[1] != tower_columns(run->model, TOWER_PROJECTED) ||
        want->shape[0] != in->shape[0])
        return refuse(name, "input [n, in] and output [n, out] f32", e);
    int n = (int)in->shape[0];
    float *got = xmalloc(want->elements * sizeof *got);
    enum status status = tower_open(&tower, run->model, n, e);
    if (status == STATUS_OK) {
        status = tower_project(tower, in->data, n, got, e);
        tower_close(tower);
    }
    if (status == STATUS_OK)
        run->report(run->context, name, largest_difference(got, want->data, want->elements));
    free(got);
    return status;
}

/* NAME of a tensor NAME.output, NAME.last_hidden_state or NAME.projected, owned, and what the
 * tensor holds; NULL of others. LLaVA's have NAME.vision.output. */
static char *name_case(const struct stored_tensor *stored, enum tower_end *end) {
    const char *const markers[] = {".output", ".last_hidden_state", ".projected"};
    const enum tower_end ends[] = {TOWER_ROWS, TOWER_ROWS, TOWER_PROJECTED};
    for (size_t i = 0; i < ARRAY_COUNT(markers); i++) {
        size_t n = strlen(stored->name), tail = strlen(markers[i]);
        *end = ends[i];
        if (n > tail && strcmp(stored->name + n - tail, markers[i]) == 0)
            return xstrndup(stored->name, n - tail);
    }
    return NULL;
}

static enum status run_case(const struct tower_run *run, const struct stored_tensor *want,
                            struct error *e) {
    enum tower_end end;
    char *name = name_case(want, &end);
    enum status status = STATUS_OK;
    if (name == NULL) return STATUS_OK;
    const struct stored_tensor *in = find_part(run->file, name, "input");
    if (in)
        status = run_projector(run, name, in, want, e);
    else
        status = run_tower(run, name, end, want, e);
    free(name);
    return status;
}

enum status parity_towers_run(const char *path, const struct model *model,
                              parity_tower_reporter *report, void *context, struct error *e) {
    struct weights *weights;
    if (access(path, F_OK) != 0) return STATUS_OK;
    if (weights_open(&weights, path, e)) return e->status;
    struct tower_run run = {.model = model, .file = weights, .report = report, .context = context};
    enum status status = STATUS_OK;
    for (int i = 0; i < weights_count(weights) && status == STATUS_OK; i++)
        status = run_case(&run, weights_at(weights, i), e);
    weights_close(weights);
    return status;
}
