/* retro/run/tower/tower.c: one pass of packed pictures: patches to rows, the tower's layers, the
 * projector. See tower.h. */
#include "retro/run/tower/tower.h"

#include <stdlib.h>

#include "retro/model/layer.h"
#include "retro/run/tower/tower_layout.h"

struct tower {
    const struct model *model;
    struct scratch
        scratch; /* of the tower's layers; without memory where there is a projector alone */
    void *memory;
    struct tensor patches; /* [max_rows, tower_patch_columns] */
    struct tensor in;      /* [max_projected, projector.in] */
    struct tensor merged;  /* [max_projected, projector.merged] */
    struct tensor wide;    /* [max_projected, fc1's columns] */
    struct tensor gated;   /* [max_projected, projector.ffn]; wide where there is no gate */
    struct tensor out;     /* [max_projected, columns of what a decoder reads] */
    struct tower_layout layout;
    struct attention_span *probes; /* [pictures] of the head that a probe makes; NULL of others */
    int32_t *no_rows;              /* [pictures] zeros */
    int max_rows, max_projected;
    enum tower_end end; /* of the pass that has begun, */
    int layer;          /* and the layer that comes next */
};

/* Memory. */

/* Rows of layers beside the pictures': those of probes, one a picture. */
static int count_probes(const struct model *model, int max_rows) {
    const struct tower_spec *tower = &model->spec.tower;
    return tower->probed ? max_int(1, max_rows / tower_count(model, TOWER_ROWS, tower->image_h,
                                                             tower->image_w))
                         : 0;
}

enum { TOWER_PARTS = 6 };

static void list_parts(struct tower *tower, struct tensor *parts[TOWER_PARTS]) {
    struct tensor *all[TOWER_PARTS] = {&tower->patches, &tower->in,     &tower->wide,
                                       &tower->gated,   &tower->merged, &tower->out};
    for (int i = 0; i < TOWER_PARTS; i++) parts[i] = all[i];
}

/* Rows of the projector that so many of the tower become. */
static int count_projected(const struct model *model, int max_rows) {
    int side = model_has_stack(model, STACK_TOWER) ? tower_patch_of(model).joined : 1;
    return (max_rows + side * side - 1) / (side * side);
}

static void count_sizes(const struct model *model, int max_rows, int rows[TOWER_PARTS],
                        int cols[TOWER_PARTS]) {
    const struct projector_spec *spec = &model->spec.projector;
    for (int i = 0; i < TOWER_PARTS; i++)
        rows[i] = i == 0 ? max_rows : count_projected(model, max_rows);
    cols[0] = model_has_stack(model, STACK_TOWER) ? tower_patch_columns(model) : 0;
    cols[1] = spec->in;
    cols[2] = spec->gated ? 2 * spec->ffn : spec->ffn;
    cols[3] = spec->gated ? spec->ffn : 0;
    cols[4] = spec->merged;
    cols[5] = tower_columns(model, TOWER_PROJECTED);
}

/* Bytes of everything but the layers' rows. */
static enum status measure_parts(size_t *bytes, const struct model *model, int max_rows,
                                 struct error *e) {
    int rows[TOWER_PARTS], cols[TOWER_PARTS];
    *bytes = 0;
    count_sizes(model, max_rows, rows, cols);
    for (int i = 0; i < TOWER_PARTS; i++) {
        size_t part;
        if (mul_overflows((size_t)cols[i] * sizeof(float), (size_t)rows[i], &part) ||
            add_overflows(*bytes, part, bytes))
            return error_set(e, STATUS_NO_MEMORY, "a tower's %d rows do not fit the address space",
                             max_rows);
    }
    return STATUS_OK;
}

enum status tower_measure(size_t *bytes, const struct model *model, int max_rows, struct error *e) {
    size_t parts, layers, layout;
    if (measure_parts(&parts, model, max_rows, e)) return e->status;
    *bytes = parts;
    if (!model_has_stack(model, STACK_TOWER)) return STATUS_OK;
    if (scratch_measure(&model->stacks[STACK_TOWER], max_rows + count_probes(model, max_rows),
                        &layers, e))
        return e->status;
    layout = (size_t)max_rows * tower_layout_row_bytes(model);
    *bytes += layers + layout;
    return STATUS_OK;
}

static enum status open_parts(struct tower *tower, struct error *e) {
    const struct model *model = tower->model;
    struct tensor *parts[TOWER_PARTS];
    int rows[TOWER_PARTS], cols[TOWER_PARTS];
    size_t bytes;
    if (measure_parts(&bytes, model, tower->max_rows, e) ||
        backend_alloc(model->backend, &tower->memory, bytes, "pictures", e))
        return e->status;
    float *at = tower->memory;
    count_sizes(model, tower->max_rows, rows, cols);
    list_parts(tower, parts);
    for (int i = 0; i < TOWER_PARTS; i++) {
        *parts[i] = tensor_make(at, DTYPE_F32, rows[i], cols[i]);
        at += (size_t)rows[i] * (size_t)cols[i];
    }
    if (!model->spec.projector.gated) tower->gated = tower->wide;
    if (!model_has_stack(model, STACK_TOWER)) return STATUS_OK;
    if (tower_layout_open(&tower->layout, model, tower->max_rows, e)) return e->status;
    int probes = count_probes(model, tower->max_rows);
    tower->probes = xcalloc((size_t)probes + 1, sizeof *tower->probes);
    tower->no_rows = xcalloc((size_t)probes + 1, sizeof *tower->no_rows);
    return scratch_open(&tower->scratch, model, &model->stacks[STACK_TOWER],
                        tower->max_rows + probes, e);
}

enum status tower_open(struct tower **out, const struct model *model, int max_rows,
                       struct error *e) {
    struct tower *tower = xcalloc(1, sizeof *tower);
    tower->model = model;
    tower->max_rows = max_rows;
    tower->max_projected = count_projected(model, max_rows);
    enum status status = open_parts(tower, e);
    if (status) {
        tower_close(tower);
        return status;
    }
    *out = tower;
    return STATUS_OK;
}

void tower_close(struct tower *tower) {
    if (tower == NULL) return;
    tower_layout_close(&tower->layout);
    free(tower->probes);
    free(tower->no_rows);
    scratch_close(&tower->scratch, tower->model);
    backend_release(tower->model->backend, tower->memory);
    free(tower);
}

/* Running. */

/* x += scale (table's rows) */
static void add_rows(struct tower *tower, struct tensor x, struct tensor table, const int32_t *rows,
                     const float *scale) {
    struct backend *backend = tower->model->backend;
    struct tensor found = tensor_rows(tower->scratch.branch, 0, x.rows);
    backend_gather_rows(backend, &(struct gather_rows_args){.y = found, .x = table, .rows = rows});
    backend_add(backend, &(struct add_args){.y = x, .a = x, .b = found, .row_scale = scale});
}

/* x = rows of patches and class tokens, with their positions. */
static void embed_patches(struct tower *tower, struct tensor x) {
    const struct model *model = tower->model;
    const struct tower_layout *layout = &tower->layout;
    struct tensor patches = tensor_rows(tower->patches, 0, layout->n_patches);
    struct tensor made = tensor_rows(tower->scratch.branch, 0, layout->n_patches);
    size_t bytes = (size_t)layout->n_patches * (size_t)patches.cols * sizeof(float);
    backend_upload(model->backend, patches.data, layout->patches, bytes);
    backend_linear(model->backend, &(struct linear_args){.y = made,
                                                         .x = patches,
                                                         .weight = &model->tower.patch.weight,
                                                         .bias = model->tower.patch.bias});
    backend_gather_rows(model->backend,
                        &(struct gather_rows_args){.y = x, .x = made, .rows = layout->patch_of});

    if (model->spec.tower.class_tokens > 0)
        add_rows(tower, x, model->tower.class_token, layout->class_of, NULL);
    int corners = model->spec.tower.sums_sides ? 2 : layout->resized ? TOWER_CORNERS : 1;
    if (model->tower.position.data == NULL) corners = 0;
    for (int i = 0; i < corners; i++)
        add_rows(tower, x, model->tower.position, layout->corners[i].rows,
                 layout->corners[i].weights);
    if (model->spec.tower.norm_before)
        stack_norm(model, &model->stacks[STACK_TOWER], x, x, &model->tower.norm_before);
}

static int count_layers(const struct model *model) {
    return model->spec.tower.layers ? model->spec.tower.layers
                                    : model->stacks[STACK_TOWER].dims.n_layers;
}

static struct tensor rows_of_pass(const struct tower *tower) {
    return tensor_rows(tower->scratch.x, 0, tower->layout.n_rows);
}

static void forward_layer(struct tower *tower, int layer) {
    const struct model *model = tower->model;
    const struct stack *stack = &model->stacks[STACK_TOWER];
    const struct tower_layout *layout = &tower->layout;
    bool apart = model->spec.tower.attended > 0 && !model->spec.tower.whole[layer];
    struct pass pass = {.model = model,
                        .stack = stack,
                        .scratch = scratch_rows(&tower->scratch, layout->n_rows),
                        .spans = apart ? layout->windows : layout->spans,
                        .n_spans = apart ? layout->n_windows : layout->n_pictures,
                        .positions = layout->places,
                        .layer_index = layer};
    layer_forward(&pass, &stack->layers[layer]);
}

/* The first row of each picture, behind the norm of the tower's head, as the projector's input. */
static void gather_pooled(struct tower *tower, struct tensor x) {
    const struct model *model = tower->model;
    const struct tower_layout *layout = &tower->layout;
    struct tensor in = tensor_rows(tower->in, 0, layout->n_pictures);
    backend_gather_rows(model->backend,
                        &(struct gather_rows_args){.y = in, .x = x, .rows = layout->first});
    stack_norm(model, &model->stacks[STACK_TOWER], in, in, &model->tower.norm_head);
}

/* (x - shift) stretch, column by column, in place; `part` is to work in. */
static void standardize_rows(struct tower *tower, struct tensor x, struct tensor part) {
    const struct tower_weights *weights = &tower->model->tower;
    const struct tower_layout *layout = &tower->layout;
    struct backend *backend = tower->model->backend;
    backend_gather_rows(backend, &(struct gather_rows_args){
                                     .y = part, .x = weights->shift, .rows = layout->first_row});
    backend_add(backend, &(struct add_args){.y = x, .a = x, .b = part, .row_scale = layout->minus});
    backend_gather_rows(backend, &(struct gather_rows_args){
                                     .y = part, .x = weights->stretch, .rows = layout->first_row});
    backend_gate(backend, &(struct gate_args){.y = x, .x = x, .by = part});
}

/* The means of squares of rows, as the projector's input. */
static void gather_means(struct tower *tower, struct tensor x) {
    const struct tower_layout *layout = &tower->layout;
    struct backend *backend = tower->model->backend;
    const struct tower_spec *spec = &tower->model->spec.tower;
    int side = spec->averaged;
    float weight = (spec->mean_scale > 0 ? spec->mean_scale : 1) / (float)(side * side);
    struct tensor in = tensor_rows(tower->in, 0, layout->n_kept),
                  part = tensor_rows(tower->scratch.branch, 0, layout->n_kept);
    backend_gather_rows(backend,
                        &(struct gather_rows_args){.y = in, .x = x, .rows = layout->no_rows});
    for (int i = 0; i < side * side; i++) {
        const int32_t *rows = layout->averaged + (size_t)i * (size_t)layout->most_means;
        backend_gather_rows(backend, &(struct gather_rows_args){.y = part, .x = x, .rows = rows});
        backend_add(backend, &(struct add_args){.y = in, .a = in, .b = part, .scale = weight});
    }
    if (spec->standardized) standardize_rows(tower, in, part);
}

/* The projector's input from the tower's rows. */
static void gather_input(struct tower *tower, struct tensor x) {
    const struct tower_layout *layout = &tower->layout;
    struct tensor in = tensor_rows(tower->in, 0, layout->n_kept);
    int parts = tower->model->spec.tower.shuffle == 2 ? TOWER_CORNERS : 1;
    if (tower->model->spec.tower.averaged > 0) {
        gather_means(tower, x);
        return;
    }
    for (int i = 0; i < parts; i++)
        backend_gather_rows(
            tower->model->backend,
            &(struct gather_rows_args){
                .y = tensor_cols(in, i * x.cols, x.cols), .x = x, .rows = layout->kept[i]});
}

/* The norm of a projector that comes before rows are joined. */
static void norm_apart(struct tower *tower, struct tensor x) {
    const struct model *model = tower->model;
    const struct projector_spec *spec = &model->spec.projector;
    if (!spec->normed_apart) return;
    backend_norm(model->backend, &(struct norm_args){.y = x,
                                                     .x = x,
                                                     .gamma = model->projector.norm.gamma,
                                                     .beta = model->projector.norm.beta,
                                                     .epsilon = spec->epsilon,
                                                     .kind = spec->norm});
}

/* The probe gathers the rows of each picture, behind the last layer: one row of scratch.branch a
 * picture. */
static void attend_probes(struct tower *tower, struct tensor x) {
    const struct model *model = tower->model;
    const struct dims *dims = &model->stacks[STACK_TOWER].dims;
    const struct tower_layout *layout = &tower->layout;
    struct backend *backend = model->backend;
    int n = layout->n_pictures, width = dims->heads * dims->head_dim, all = x.rows + n;
    struct tensor rows = tensor_rows(tower->scratch.x, 0, all),
                  qkv = tensor_rows(tower->scratch.qkv, 0, all);
    struct tensor mixed = tensor_rows(tower->scratch.mixed, 0, all),
                  branch = tensor_rows(tower->scratch.branch, 0, n);
    backend_gather_rows(backend, &(struct gather_rows_args){.y = tensor_rows(rows, x.rows, n),
                                                            .x = model->tower.probe,
                                                            .rows = tower->no_rows});
    backend_linear(backend, &(struct linear_args){.y = qkv,
                                                  .x = rows,
                                                  .weight = &model->tower.probe_qkv.weight,
                                                  .bias = model->tower.probe_qkv.bias});
    for (int i = 0; i < n; i++) {
        tower->probes[i] = layout->spans[i];
        tower->probes[i].q_start = x.rows + i;
        tower->probes[i].q_count = 1;
    }
    backend_attention(backend, &(struct attention_args){.out = mixed,
                                                        .q = tensor_cols(qkv, 0, width),
                                                        .k = tensor_cols(qkv, width, width),
                                                        .v = tensor_cols(qkv, 2 * width, width),
                                                        .spans = tower->probes,
                                                        .n_spans = n,
                                                        .heads = dims->heads,
                                                        .kv_heads = dims->heads,
                                                        .head_dim = dims->head_dim,
                                                        .scale = dims->score_scale,
                                                        .mask = MASK_NONE});
    backend_linear(backend, &(struct linear_args){.y = branch,
                                                  .x = tensor_rows(mixed, x.rows, n),
                                                  .weight = &model->tower.probe_proj.weight,
                                                  .bias = model->tower.probe_proj.bias});
}

/* Joined rows as those that fc1 reads. */
static struct tensor merge_rows(struct tower *tower, const struct projector_weights *weights,
                                struct tensor in) {
    struct tensor merged = tensor_rows(tower->merged, 0, in.rows);
    backend_linear(tower->model->backend,
                   &(struct linear_args){.y = merged, .x = in, .weight = &weights->merge.weight});
    return merged;
}

/* Rows `from` to the first rows of tower->out, of these to column `column` and those behind it;
 * tower->in may be `from`. */
static void project_rows(struct tower *tower, const struct projector_weights *weights,
                         struct tensor from, int column) {
    const struct model *model = tower->model;
    const struct projector_spec *spec = &model->spec.projector;
    struct backend *backend = model->backend;
    int n = from.rows;
    bool normed = (weights->norm.gamma && !spec->normed_apart) || spec->bare;
    struct tensor in = normed ? tensor_rows(tower->in, 0, n) : from,
                  out = tensor_cols(tensor_rows(tower->out, 0, n), column, spec->out);
    if (normed)
        backend_norm(backend, &(struct norm_args){.y = in,
                                                  .x = from,
                                                  .gamma = weights->norm.gamma,
                                                  .beta = weights->norm.beta,
                                                  .epsilon = spec->epsilon,
                                                  .kind = spec->norm});
    if (spec->merged > 0) in = merge_rows(tower, weights, in);
    if (spec->ffn == 0) {
        backend_linear(
            backend,
            &(struct linear_args){
                .y = out, .x = in, .weight = &weights->fc1.weight, .bias = weights->fc1.bias});
        return;
    }
    struct tensor wide = tensor_rows(tower->wide, 0, n), gated = tensor_rows(tower->gated, 0, n);
    enum activation now = spec->gated ? ACTIVATION_NONE : spec->activation;
    backend_linear(backend, &(struct linear_args){.y = wide,
                                                  .x = in,
                                                  .weight = &weights->fc1.weight,
                                                  .bias = weights->fc1.bias,
                                                  .activation = now});
    if (spec->gated)
        backend_glu(
            backend,
            &(struct glu_args){.y = gated, .x = wide, .gating = {.activation = spec->activation}});
    backend_linear(
        backend,
        &(struct linear_args){
            .y = out, .x = gated, .weight = &weights->fc2.weight, .bias = weights->fc2.bias});
    if (spec->residual) backend_add(backend, &(struct add_args){.y = out, .a = from, .b = out});
}

/* Behind a layer whose rows reach the decoder: the columns of tower->out that they become. */
static void project_deepstack(struct tower *tower, int layer) {
    const struct tower_spec *spec = &tower->model->spec.tower;
    for (int i = 0; i < spec->n_deepstack; i++) {
        if (spec->deepstack[i] != layer) continue;
        gather_input(tower, rows_of_pass(tower));
        project_rows(tower, &tower->model->deepstack[i],
                     tensor_rows(tower->in, 0, tower->layout.n_kept),
                     (1 + i) * tower->model->spec.projector.out);
    }
}

static void run_layer(struct tower *tower, int layer) {
    forward_layer(tower, layer);
    if (tower->end == TOWER_PROJECTED) project_deepstack(tower, layer);
}

static enum status download_rows(const struct tower *tower, struct tensor x, float *rows,
                                 struct error *e) {
    struct backend *backend = tower->model->backend;
    backend_download(backend, rows, x.data, (size_t)x.rows * (size_t)x.cols * sizeof(float));
    return backend_sync(backend, e);
}

/* Behind the last layer: what the pass was asked for. */
static enum status end_pass(struct tower *tower, float *rows, struct error *e) {
    const struct model *model = tower->model;
    const struct stack *stack = &model->stacks[STACK_TOWER];
    struct tensor x = rows_of_pass(tower);
    if (stack->final_norm.gamma && model->spec.tower.layers == 0)
        stack_norm(model, stack, x, x, &stack->final_norm);
    if (tower->end == TOWER_ROWS) return download_rows(tower, x, rows, e);
    int n_rows = tower->end == TOWER_POOLED ? tower->layout.n_pictures : tower->layout.n_kept;
    struct tensor from = tensor_rows(tower->in, 0, n_rows);
    if (tower->end == TOWER_POOLED && model->spec.tower.probed) {
        attend_probes(tower, x);
        from = tensor_rows(tower->scratch.branch, 0, n_rows);
    } else if (tower->end == TOWER_POOLED) {
        gather_pooled(tower, x);
    } else {
        norm_apart(tower, x);
        gather_input(tower, x);
    }
    project_rows(tower, &model->projector, from, 0);
    return download_rows(tower, tensor_rows(tower->out, 0, n_rows), rows, e);
}

/* Pictures of one pass. */
static enum status count_taken(const struct tower *tower, const struct tower_picture *pictures,
                               int n, int *taken, struct error *e) {
    int rows = 0;
    for (*taken = 0; *taken < n; (*taken)++) {
        int height = pictures[*taken].height, width = pictures[*taken].width;
        if (tower_check(tower->model, height, width, e)) return e->status;
        int needed = tower_count(tower->model, TOWER_ROWS, height, width);
        if (needed > tower->max_rows)
            return error_set(e, STATUS_TOO_LARGE,
                             "a picture of %d x %d pixels is %d rows, the limit is %d", height,
                             width, needed, tower->max_rows);
        rows += needed;
        if (rows > tower->max_rows) return STATUS_OK;
    }
    return STATUS_OK;
}

enum status tower_begin(struct tower *tower, const struct tower_picture *pictures, int n,
                        enum tower_end end, int *taken, struct error *e) {
    if (count_taken(tower, pictures, n, taken, e)) return e->status;
    tower_layout_fill(&tower->layout, tower->model, pictures, *taken);
    tower->end = end;
    tower->layer = 0;
    embed_patches(tower, rows_of_pass(tower));
    return backend_sync(tower->model->backend, e);
}

enum status tower_advance(struct tower *tower, float *rows, bool *done, struct error *e) {
    run_layer(tower, tower->layer);
    tower->layer++;
    *done = tower->layer == count_layers(tower->model);
    return *done ? end_pass(tower, rows, e) : backend_sync(tower->model->backend, e);
}

static size_t count_values(const struct tower *tower, const struct tower_picture *pictures, int n,
                           enum tower_end end) {
    size_t rows = 0;
    for (int i = 0; i < n; i++)
        rows += (size_t)tower_count(tower->model, end, pictures[i].height, pictures[i].width);
    return rows * (size_t)tower_columns(tower->model, end);
}

enum status tower_run(struct tower *tower, const struct tower_picture *pictures, int n,
                      enum tower_end end, float *rows, struct error *e) {
    int taken;
    for (int first = 0; first < n; first += taken) {
        bool done = false;
        if (tower_begin(tower, pictures + first, n - first, end, &taken, e)) return e->status;
        while (!done)
            if (tower_advance(tower, rows, &done, e)) return e->status;
        rows += count_values(tower, pictures + first, taken, end);
    }
    return STATUS_OK;
}

enum status tower_project(struct tower *tower, const float *in, int n, float *rows,
                          struct error *e) {
    CHECK(n <= tower->max_projected);
    backend_upload(tower->model->backend, tower->in.data, in,
                   (size_t)n * (size_t)tower->in.cols * sizeof(float));
    project_rows(tower, &tower->model->projector, tensor_rows(tower->in, 0, n), 0);
    return download_rows(tower, tensor_rows(tower->out, 0, n), rows, e);
}
