/* retro/model/stack.c: scratch rows, embedding and norm of a stack. See stack.h. */
#include "retro/model/stack.h"

#include <math.h>
#include <string.h>

enum { SCRATCH_PARTS = 21 };

/* All parts, in one order. */
static void list_parts(struct scratch *scratch, struct tensor *parts[SCRATCH_PARTS]) {
    struct tensor *all[SCRATCH_PARTS] = {&scratch->x,        &scratch->normed,  &scratch->branch,
                                         &scratch->qkv,      &scratch->mixed,   &scratch->wide,
                                         &scratch->gated,    &scratch->squares, &scratch->choices,
                                         &scratch->routes,   &scratch->few,     &scratch->shared,
                                         &scratch->parts,    &scratch->gates,   &scratch->channels,
                                         &scratch->by_query, &scratch->by_key,  &scratch->inputs,
                                         &scratch->words,    &scratch->input,   &scratch->narrow};
    memcpy(parts, all, sizeof all);
}

struct mixer_columns stack_mixer_columns(const struct stack *stack) {
    const struct state_dims *dims = &stack->dims.state;
    int keys = stack->state_keys.n, heads = stack->state_heads.n;
    if (dims->kernel == 0) return (struct mixer_columns){0};
    struct mixer_columns columns = {.values = heads * dims->value_dim,
                                    .channels = (int)state_channels(dims, keys, heads),
                                    .state = state_columns(dims, keys, heads)};
    switch (dims->mixer) {
        case MIXER_DELTA:
            columns.product = columns.channels + columns.values;
            columns.gates = 2 * heads;
            break;
        case MIXER_SPACE:
            columns.product = columns.values + columns.channels + heads;
            columns.gates = heads;
            break;
        default: columns.product = 3 * columns.values; break;
    }
    return columns;
}

struct latent_columns stack_latent_columns(const struct stack *stack) {
    const struct latent_dims *latent = &stack->dims.latent;
    int heads = stack->heads.n, h = stack->dims.head_dim;
    if (latent->rank == 0) return (struct latent_columns){0};
    int wide = heads * max_int(latent->plain + latent->rope, latent->value);
    return (struct latent_columns){.wide = latent->query_rank,
                                   .queries = latent->query_rank + wide,
                                   .row = latent->query_rank + wide + heads * h,
                                   .all = latent->query_rank + wide + (heads + 1) * h};
}

/* The largest F of the stack's MLPs. */
static int widest_ffn(const struct stack *stack) {
    return max_int(max_int(stack->ffn.n, stack->wide_ffn.n),
                   max_int(stack->expert_ffn.n, stack->shared_ffn.n));
}

/* The most columns of queries, keys and values, and of queries. */
static int widest_heads(const struct stack *stack, bool wide, int *queries) {
    const struct layer_spec spec = {.wide_heads = wide};
    struct layer_heads heads = stack_heads(stack, &spec);
    int q = heads.queries.n * heads.dim;
    *queries = max_int(*queries, q);
    return q + heads.queries.n * stack->dims.head_gate + 2 * heads.keys.n * heads.dim;
}

/* Columns of the parts. */
static void count_columns(const struct stack *stack, int cols[SCRATCH_PARTS]) {
    const struct dims *dims = &stack->dims;
    const struct mixer_columns mixer = stack_mixer_columns(stack);
    const struct latent_columns latent = stack_latent_columns(stack);
    bool heads = dims->state.mixer != MIXER_CONVOLUTION;
    bool experts = dims->experts > 0, shared = dims->shared_ffn > 0 || dims->experts_beside;
    int q = 0, heads_product = widest_heads(stack, false, &q);
    heads_product = max_int(heads_product, widest_heads(stack, true, &q));
    int product = dims->latent.rank > 0 ? latent.all : heads_product;
    cols[0] = cols[1] = cols[2] = dims->hidden;
    cols[3] = max_int(product, mixer.product);
    cols[4] = max_int(q, mixer.values);
    cols[5] = (dims->gated ? 2 : 1) * widest_ffn(stack);
    cols[6] = dims->gated ? widest_ffn(stack) : 0;
    cols[7] = dims->qk_norm == QK_NORM_WHOLE ? 2 : dims->state.mixer == MIXER_SPACE;
    cols[8] = experts ? dims->experts + 1 : 0;
    cols[9] = 2 * dims->experts_used;
    cols[10] = experts ? dims_expert_width(dims) : 0;
    cols[11] = shared ? dims->hidden : 0;
    cols[12] = dims->experts_used * dims_expert_width(dims);
    cols[13] = dims->state.mixer == MIXER_DELTA ? mixer.gates : 0;
    cols[14] = heads ? mixer.channels : 0;
    cols[15] = cols[16] = 2 * dims->distances.span * stack->heads.n;
    cols[17] = cols[18] = dims->n_layers * dims->layer_input;
    cols[19] = dims->layer_input;
    cols[20] = 2 * dims->expert_width;
}

enum status scratch_measure(const struct stack *stack, int max_rows, size_t *bytes,
                            struct error *e) {
    int cols[SCRATCH_PARTS];
    size_t row = 0;
    count_columns(stack, cols);
    for (int i = 0; i < SCRATCH_PARTS; i++) row += (size_t)cols[i] * sizeof(float);
    if (!mul_overflows(row, (size_t)max_rows, bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "scratch of %d rows does not fit the address space",
                     max_rows);
}

enum status scratch_open(struct scratch *scratch, const struct model *model,
                         const struct stack *stack, int max_rows, struct error *e) {
    struct tensor *parts[SCRATCH_PARTS];
    int cols[SCRATCH_PARTS];
    void *memory;
    if (scratch_measure(stack, max_rows, &scratch->bytes, e) ||
        backend_alloc(model->backend, &memory, scratch->bytes, "activations of one step", e))
        return e->status;
    scratch->memory = memory;
    scratch->max_rows = max_rows;

    float *at = scratch->memory;
    count_columns(stack, cols);
    list_parts(scratch, parts);
    for (int i = 0; i < SCRATCH_PARTS; i++) {
        *parts[i] = tensor_make(at, DTYPE_F32, max_rows, cols[i]);
        at += (size_t)max_rows * (size_t)cols[i];
    }
    if (!stack->dims.gated) scratch->gated = scratch->wide;
    return STATUS_OK;
}

void scratch_close(struct scratch *scratch, const struct model *model) {
    backend_release(model->backend, scratch->memory);
}

struct scratch scratch_rows(const struct scratch *scratch, int rows) {
    struct scratch part = *scratch;
    struct tensor *all[SCRATCH_PARTS];
    CHECK(rows <= scratch->max_rows);
    list_parts(&part, all);
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) *all[i] = tensor_rows(*all[i], 0, rows);
    part.memory = NULL;
    return part;
}

float stack_score_scale(const struct stack *stack, int i) {
    const struct dims *dims = &stack->dims;
    return dims->scores_by_layer ? dims->score_scale / (float)(i + 1) : dims->score_scale;
}

void stack_norm(const struct model *model, const struct stack *stack, struct tensor y,
                struct tensor x, const struct norm_weights *weights) {
    backend_norm(model->backend, &(struct norm_args){.y = y,
                                                     .x = x,
                                                     .gamma = weights->gamma,
                                                     .beta = weights->beta,
                                                     .epsilon = stack->dims.epsilon,
                                                     .kind = stack->dims.norm});
}

void stack_embed(const struct model *model, const struct stack *stack, struct tensor x,
                 const int32_t *ids, const int32_t *positions) {
    const struct embedding *table = &model->embedding;
    backend_embed(model->backend,
                  &(struct embed_args){.y = x,
                                       .word = &table->word,
                                       .position = table->position.data ? &table->position : NULL,
                                       .type = table->type.data ? &table->type : NULL,
                                       .ids = ids,
                                       .positions = positions,
                                       .scale = model->spec.embedding_scale});
    if (table->norm.gamma) stack_norm(model, stack, x, x, &table->norm);
}

void stack_layer_inputs(const struct model *model, const struct stack *stack,
                        const struct scratch *scratch, const int32_t *ids) {
    const struct dims *dims = &stack->dims;
    const struct layer_inputs *tables = &model->layer_inputs;
    struct backend *backend = model->backend;
    struct tensor inputs = scratch->inputs, words = scratch->words;
    backend_linear(backend, &(struct linear_args){
                                .y = inputs, .x = scratch->x, .weight = &tables->projection});
    backend_scale(backend,
                  &(struct scale_args){.x = inputs, .factor = 1 / sqrtf((float)dims->hidden)});
    backend_norm(backend, &(struct norm_args){.y = inputs,
                                              .x = inputs,
                                              .gamma = tables->norm.gamma,
                                              .epsilon = dims->epsilon,
                                              .kind = dims->norm,
                                              .heads = dims->n_layers});
    if (tables->words.data == NULL) return;

    backend_embed(backend, &(struct embed_args){.y = words,
                                                .word = &tables->words,
                                                .ids = ids,
                                                .scale = sqrtf((float)dims->layer_input)});
    backend_add(backend, &(struct add_args){.y = inputs, .a = inputs, .b = words});
    backend_scale(backend, &(struct scale_args){.x = inputs, .factor = sqrtf(0.5f)});
}
