/* retro/run/tower/tower.c: one pass of packed pictures: patches to rows, the tower's layers, the projector. See
 * tower.h. */
#include "retro/run/tower/tower.h"

#include <stdlib.h>

#include "retro/model/layer.h"
#include "retro/run/tower/tower_layout.h"

struct tower {
    const struct model *model;
    struct scratch scratch; /* of the tower's layers; without memory where there is a projector alone */
    void *memory;
    struct tensor patches; /* [max_rows, tower_patch_columns] */
    struct tensor in;      /* [max_projected, projector.in] */
    struct tensor wide;    /* [max_projected, fc1's columns] */
    struct tensor gated;   /* [max_projected, projector.ffn]; wide where there is no gate */
    struct tensor out;     /* [max_projected, projector.out] */
    struct tower_layout layout;
    struct attention_span *probes; /* [pictures] of the head that a probe makes; NULL of others */
    int32_t *no_rows;              /* [pictures] zeros */
    int max_rows, max_projected;
    enum tower_end end; /* of the pass that has begun, */
    int layer;          /* and the layer that comes next */
};

/* Memory. */

/* Rows of layers beside the pictures': those of probes, one a picture. */
static int count_probes(const struct model *m, int max_rows) {
    const struct tower_spec *s = &m->spec.tower;
    return s->probed ? max_int(1, max_rows / tower_count(m, TOWER_ROWS, s->image_h, s->image_w)) : 0;
}

enum { TOWER_PARTS = 5 };

static void list_parts(struct tower *t, struct tensor *parts[TOWER_PARTS]) {
    struct tensor *all[TOWER_PARTS] = {&t->patches, &t->in, &t->wide, &t->gated, &t->out};
    for (int i = 0; i < TOWER_PARTS; i++) parts[i] = all[i];
}

/* Rows of the projector that so many of the tower become. */
static int count_projected(const struct model *m, int max_rows) {
    bool joins = model_has_stack(m, STACK_TOWER) && m->spec.tower.shuffle == 2;
    return joins ? (max_rows + TOWER_CORNERS - 1) / TOWER_CORNERS : max_rows;
}

static void count_sizes(const struct model *m, int max_rows, int rows[TOWER_PARTS], int cols[TOWER_PARTS]) {
    const struct projector_spec *p = &m->spec.projector;
    for (int i = 0; i < TOWER_PARTS; i++) rows[i] = i == 0 ? max_rows : count_projected(m, max_rows);
    cols[0] = model_has_stack(m, STACK_TOWER) ? tower_patch_columns(m) : 0;
    cols[1] = p->in;
    cols[2] = p->gated ? 2 * p->ffn : p->ffn;
    cols[3] = p->gated ? p->ffn : 0;
    cols[4] = p->out;
}

/* Bytes of everything but the layers' rows. */
static enum status measure_parts(size_t *bytes, const struct model *m, int max_rows, struct error *e) {
    int rows[TOWER_PARTS], cols[TOWER_PARTS];
    *bytes = 0;
    count_sizes(m, max_rows, rows, cols);
    for (int i = 0; i < TOWER_PARTS; i++) {
        size_t part;
        if (mul_overflows((size_t)cols[i] * sizeof(float), (size_t)rows[i], &part) ||
            add_overflows(*bytes, part, bytes))
            return error_set(e, STATUS_NO_MEMORY, "a tower's %d rows do not fit the address space", max_rows);
    }
    return STATUS_OK;
}

enum status tower_measure(size_t *bytes, const struct model *m, int max_rows, struct error *e) {
    size_t parts, layers, layout;
    if (measure_parts(&parts, m, max_rows, e)) return e->status;
    *bytes = parts;
    if (!model_has_stack(m, STACK_TOWER)) return STATUS_OK;
    if (scratch_measure(&m->stacks[STACK_TOWER], max_rows + count_probes(m, max_rows), &layers, e)) return e->status;
    layout = (size_t)max_rows * tower_layout_row_bytes(m);
    *bytes += layers + layout;
    return STATUS_OK;
}

static enum status open_parts(struct tower *t, struct error *e) {
    const struct model *m = t->model;
    struct tensor *parts[TOWER_PARTS];
    int rows[TOWER_PARTS], cols[TOWER_PARTS];
    size_t bytes;
    if (measure_parts(&bytes, m, t->max_rows, e) || backend_alloc(m->backend, &t->memory, bytes, "pictures", e))
        return e->status;
    float *at = t->memory;
    count_sizes(m, t->max_rows, rows, cols);
    list_parts(t, parts);
    for (int i = 0; i < TOWER_PARTS; i++) {
        *parts[i] = tensor_make(at, DTYPE_F32, rows[i], cols[i]);
        at += (size_t)rows[i] * (size_t)cols[i];
    }
    if (!m->spec.projector.gated) t->gated = t->wide;
    if (!model_has_stack(m, STACK_TOWER)) return STATUS_OK;
    if (tower_layout_open(&t->layout, m, t->max_rows, e)) return e->status;
    int probes = count_probes(m, t->max_rows);
    t->probes = xcalloc((size_t)probes + 1, sizeof *t->probes);
    t->no_rows = xcalloc((size_t)probes + 1, sizeof *t->no_rows);
    return scratch_open(&t->scratch, m, &m->stacks[STACK_TOWER], t->max_rows + probes, e);
}

enum status tower_open(struct tower **out, const struct model *m, int max_rows, struct error *e) {
    struct tower *t = xcalloc(1, sizeof *t);
    t->model = m;
    t->max_rows = max_rows;
    t->max_projected = count_projected(m, max_rows);
    enum status status = open_parts(t, e);
    if (status) {
        tower_close(t);
        return status;
    }
    *out = t;
    return STATUS_OK;
}

void tower_close(struct tower *t) {
    if (t == NULL) return;
    tower_layout_close(&t->layout);
    free(t->probes);
    free(t->no_rows);
    scratch_close(&t->scratch, t->model);
    backend_release(t->model->backend, t->memory);
    free(t);
}

/* Sizes. */

bool model_has_tower(const struct model *m) { return model_has_stack(m, STACK_TOWER); }

struct tower_patch tower_patch_of(const struct model *m) {
    const struct tower_spec *s = &m->spec.tower;
    return (struct tower_patch){s->patch, max_int(1, s->frames), s->shuffle == 2 ? 2 : 1, s->oblong};
}

enum status tower_check(const struct model *m, int height, int width, struct error *e) {
    const struct tower_spec *s = &m->spec.tower;
    if (height < 1 || width < 1 || height > LIMIT_PIXELS || width > LIMIT_PIXELS)
        return error_set(e, STATUS_TOO_LARGE, "a picture of %d x %d pixels, allowed is 1 .. %d a side", height, width,
                         LIMIT_PIXELS);
    if (s->image_h > 0 && (height != s->image_h || width != s->image_w))
        return error_set(e, STATUS_INVALID, "a picture of %d x %d pixels; the model reads %d x %d", height, width,
                         s->image_h, s->image_w);
    if (height % s->patch != 0 || width % s->patch != 0)
        return error_set(e, STATUS_INVALID, "a picture of %d x %d pixels is no whole patches of %d", height, width,
                         s->patch);
    int lines = height / s->patch, columns = width / s->patch;
    bool even = lines % 2 == 0 && columns % 2 == 0 && (s->oblong || lines == columns);
    if (m->spec.projector.out > 0 && s->shuffle == 2 && !even)
        return error_set(e, STATUS_INVALID, "a picture of %d x %d patches; the model joins squares of 2 x 2 patches%s",
                         lines, columns, s->oblong ? "" : " of a square picture");
    return STATUS_OK;
}

void tower_grid(const struct model *m, int height, int width, int *lines, int *columns) {
    struct tower_patch patch = tower_patch_of(m);
    *lines = height / (patch.side * patch.joined);
    *columns = width / (patch.side * patch.joined);
}

int tower_count(const struct model *m, enum tower_end end, int height, int width) {
    const struct tower_spec *s = &m->spec.tower;
    int patches = height / s->patch * (width / s->patch);
    if (end == TOWER_POOLED) return 1;
    if (end == TOWER_ROWS) return s->class_tokens + patches;
    int rows = patches + (s->drops_class ? 0 : s->class_tokens);
    return s->shuffle == 2 ? rows / 4 : rows;
}

int tower_columns(const struct model *m, enum tower_end end) {
    return end == TOWER_ROWS ? m->stacks[STACK_TOWER].dims.hidden : m->spec.projector.out;
}

/* Running. */

/* x += scale (table's rows) */
static void add_rows(struct tower *t, struct tensor x, struct tensor table, const int32_t *rows, const float *scale) {
    struct backend *b = t->model->backend;
    struct tensor found = tensor_rows(t->scratch.branch, 0, x.rows);
    backend_gather_rows(b, &(struct gather_rows_args){.y = found, .x = table, .rows = rows});
    backend_add(b, &(struct add_args){.y = x, .a = x, .b = found, .row_scale = scale});
}

/* x = rows of patches and class tokens, with their positions. */
static void embed_patches(struct tower *t, struct tensor x) {
    const struct model *m = t->model;
    const struct tower_layout *l = &t->layout;
    struct tensor patches = tensor_rows(t->patches, 0, l->n_patches);
    struct tensor made = tensor_rows(t->scratch.branch, 0, l->n_patches);
    size_t bytes = (size_t)l->n_patches * (size_t)patches.cols * sizeof(float);
    backend_upload(m->backend, patches.data, l->patches, bytes);
    backend_linear(
        m->backend,
        &(struct linear_args){.y = made, .x = patches, .weight = &m->tower.patch.weight, .bias = m->tower.patch.bias});
    backend_gather_rows(m->backend, &(struct gather_rows_args){.y = x, .x = made, .rows = l->patch_of});

    if (m->spec.tower.class_tokens > 0) add_rows(t, x, m->tower.class_token, l->class_of, NULL);
    int corners = m->tower.position.data == NULL ? 0 : l->resized ? TOWER_CORNERS : 1;
    for (int i = 0; i < corners; i++) add_rows(t, x, m->tower.position, l->corners[i].rows, l->corners[i].weights);
    if (m->spec.tower.norm_before) stack_norm(m, &m->stacks[STACK_TOWER], x, x, &m->tower.norm_before);
}

static int count_layers(const struct model *m) {
    return m->spec.tower.layers ? m->spec.tower.layers : m->stacks[STACK_TOWER].dims.n_layers;
}

static struct tensor rows_of_pass(const struct tower *t) { return tensor_rows(t->scratch.x, 0, t->layout.n_rows); }

static void run_layer(struct tower *t, int layer) {
    const struct model *m = t->model;
    const struct stack *s = &m->stacks[STACK_TOWER];
    const struct tower_layout *l = &t->layout;
    bool apart = m->spec.tower.attended > 0 && !m->spec.tower.whole[layer];
    struct pass pass = {.model = m,
                        .stack = s,
                        .scratch = scratch_rows(&t->scratch, l->n_rows),
                        .spans = apart ? l->windows : l->spans,
                        .n_spans = apart ? l->n_windows : l->n_pictures,
                        .positions = l->places,
                        .layer_index = layer};
    layer_forward(&pass, &s->layers[layer]);
}

/* The first row of each picture, behind the norm of the tower's head, as the projector's input. */
static void gather_pooled(struct tower *t, struct tensor x) {
    const struct model *m = t->model;
    const struct tower_layout *l = &t->layout;
    struct tensor in = tensor_rows(t->in, 0, l->n_pictures);
    backend_gather_rows(m->backend, &(struct gather_rows_args){.y = in, .x = x, .rows = l->first});
    stack_norm(m, &m->stacks[STACK_TOWER], in, in, &m->tower.norm_head);
}

/* The projector's input from the tower's rows. */
static void gather_input(struct tower *t, struct tensor x) {
    const struct tower_layout *l = &t->layout;
    struct tensor in = tensor_rows(t->in, 0, l->n_kept);
    int parts = t->model->spec.tower.shuffle == 2 ? TOWER_CORNERS : 1;
    for (int i = 0; i < parts; i++)
        backend_gather_rows(
            t->model->backend,
            &(struct gather_rows_args){.y = tensor_cols(in, i * x.cols, x.cols), .x = x, .rows = l->kept[i]});
}

/* The probe gathers the rows of each picture, behind the last layer: one row of scratch.branch a picture. */
static void attend_probes(struct tower *t, struct tensor x) {
    const struct model *m = t->model;
    const struct dims *d = &m->stacks[STACK_TOWER].dims;
    const struct tower_layout *l = &t->layout;
    struct backend *b = m->backend;
    int n = l->n_pictures, width = d->heads * d->head_dim, all = x.rows + n;
    struct tensor rows = tensor_rows(t->scratch.x, 0, all), qkv = tensor_rows(t->scratch.qkv, 0, all);
    struct tensor mixed = tensor_rows(t->scratch.mixed, 0, all), branch = tensor_rows(t->scratch.branch, 0, n);
    backend_gather_rows(
        b, &(struct gather_rows_args){.y = tensor_rows(rows, x.rows, n), .x = m->tower.probe, .rows = t->no_rows});
    backend_linear(b, &(struct linear_args){
                          .y = qkv, .x = rows, .weight = &m->tower.probe_qkv.weight, .bias = m->tower.probe_qkv.bias});
    for (int i = 0; i < n; i++) {
        t->probes[i] = l->spans[i];
        t->probes[i].q_start = x.rows + i;
        t->probes[i].q_count = 1;
    }
    backend_attention(b, &(struct attention_args){.out = mixed,
                                                  .q = tensor_cols(qkv, 0, width),
                                                  .k = tensor_cols(qkv, width, width),
                                                  .v = tensor_cols(qkv, 2 * width, width),
                                                  .spans = t->probes,
                                                  .n_spans = n,
                                                  .heads = d->heads,
                                                  .kv_heads = d->heads,
                                                  .head_dim = d->head_dim,
                                                  .scale = d->score_scale,
                                                  .mask = MASK_NONE});
    backend_linear(b, &(struct linear_args){.y = branch,
                                            .x = tensor_rows(mixed, x.rows, n),
                                            .weight = &m->tower.probe_proj.weight,
                                            .bias = m->tower.probe_proj.bias});
}

/* Rows `from` to the first rows of t->out; t->in may be `from`. */
static void project_rows(struct tower *t, struct tensor from) {
    const struct model *m = t->model;
    const struct projector_spec *p = &m->spec.projector;
    const struct projector_weights *w = &m->projector;
    struct backend *b = m->backend;
    int n = from.rows;
    struct tensor in = p->normed ? tensor_rows(t->in, 0, n) : from, out = tensor_rows(t->out, 0, n);
    if (p->normed)
        backend_norm(b, &(struct norm_args){.y = in,
                                            .x = from,
                                            .gamma = w->norm.gamma,
                                            .beta = w->norm.beta,
                                            .epsilon = p->epsilon,
                                            .kind = p->norm});
    if (p->ffn == 0) {
        backend_linear(b, &(struct linear_args){.y = out, .x = in, .weight = &w->fc1.weight, .bias = w->fc1.bias});
        return;
    }
    struct tensor wide = tensor_rows(t->wide, 0, n), gated = tensor_rows(t->gated, 0, n);
    enum activation now = p->gated ? ACTIVATION_NONE : p->activation;
    backend_linear(
        b, &(struct linear_args){.y = wide, .x = in, .weight = &w->fc1.weight, .bias = w->fc1.bias, .activation = now});
    if (p->gated) backend_glu(b, &(struct glu_args){.y = gated, .x = wide, .activation = p->activation});
    backend_linear(b, &(struct linear_args){.y = out, .x = gated, .weight = &w->fc2.weight, .bias = w->fc2.bias});
    if (p->residual) backend_add(b, &(struct add_args){.y = out, .a = from, .b = out});
}

static enum status download_rows(const struct tower *t, struct tensor x, float *rows, struct error *e) {
    struct backend *b = t->model->backend;
    backend_download(b, rows, x.data, (size_t)x.rows * (size_t)x.cols * sizeof(float));
    return backend_sync(b, e);
}

/* Behind the last layer: what the pass was asked for. */
static enum status end_pass(struct tower *t, float *rows, struct error *e) {
    const struct model *m = t->model;
    const struct stack *s = &m->stacks[STACK_TOWER];
    struct tensor x = rows_of_pass(t);
    if (s->final_norm.gamma && m->spec.tower.layers == 0) stack_norm(m, s, x, x, &s->final_norm);
    if (t->end == TOWER_ROWS) return download_rows(t, x, rows, e);
    int n_rows = t->end == TOWER_POOLED ? t->layout.n_pictures : t->layout.n_kept;
    struct tensor from = tensor_rows(t->in, 0, n_rows);
    if (t->end == TOWER_POOLED && m->spec.tower.probed) {
        attend_probes(t, x);
        from = tensor_rows(t->scratch.branch, 0, n_rows);
    } else if (t->end == TOWER_POOLED) {
        gather_pooled(t, x);
    } else {
        gather_input(t, x);
    }
    project_rows(t, from);
    return download_rows(t, tensor_rows(t->out, 0, n_rows), rows, e);
}

/* Pictures of one pass. */
static enum status count_taken(const struct tower *t, const struct tower_picture *pictures, int n, int *taken,
                               struct error *e) {
    int rows = 0;
    for (*taken = 0; *taken < n; (*taken)++) {
        int height = pictures[*taken].height, width = pictures[*taken].width;
        if (tower_check(t->model, height, width, e)) return e->status;
        int needed = tower_count(t->model, TOWER_ROWS, height, width);
        if (needed > t->max_rows)
            return error_set(e, STATUS_TOO_LARGE, "a picture of %d x %d pixels is %d rows, the limit is %d", height,
                             width, needed, t->max_rows);
        rows += needed;
        if (rows > t->max_rows) return STATUS_OK;
    }
    return STATUS_OK;
}

enum status tower_begin(struct tower *t, const struct tower_picture *pictures, int n, enum tower_end end, int *taken,
                        struct error *e) {
    if (count_taken(t, pictures, n, taken, e)) return e->status;
    tower_layout_fill(&t->layout, t->model, pictures, *taken);
    t->end = end;
    t->layer = 0;
    embed_patches(t, rows_of_pass(t));
    return backend_sync(t->model->backend, e);
}

enum status tower_advance(struct tower *t, float *rows, bool *done, struct error *e) {
    run_layer(t, t->layer);
    t->layer++;
    *done = t->layer == count_layers(t->model);
    return *done ? end_pass(t, rows, e) : backend_sync(t->model->backend, e);
}

static size_t count_values(const struct tower *t, const struct tower_picture *pictures, int n, enum tower_end end) {
    size_t rows = 0;
    for (int i = 0; i < n; i++) rows += (size_t)tower_count(t->model, end, pictures[i].height, pictures[i].width);
    return rows * (size_t)tower_columns(t->model, end);
}

enum status tower_run(struct tower *t, const struct tower_picture *pictures, int n, enum tower_end end, float *rows,
                      struct error *e) {
    int taken;
    for (int first = 0; first < n; first += taken) {
        bool done = false;
        if (tower_begin(t, pictures + first, n - first, end, &taken, e)) return e->status;
        while (!done)
            if (tower_advance(t, rows, &done, e)) return e->status;
        rows += count_values(t, pictures + first, taken, end);
    }
    return STATUS_OK;
}

enum status tower_project(struct tower *t, const float *in, int n, float *rows, struct error *e) {
    CHECK(n <= t->max_projected);
    backend_upload(t->model->backend, t->in.data, in, (size_t)n * (size_t)t->in.cols * sizeof(float));
    project_rows(t, tensor_rows(t->in, 0, n));
    return download_rows(t, tensor_rows(t->out, 0, n), rows, e);
}
