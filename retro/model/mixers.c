/* retro/model/mixers.c: the mixers that keep a state for each sequence: gated delta nets, state
 * spaces and short convolutions. See mixers.h.
 *
 * All of them convolve channels with the rows before. A row changes a state by its channels before
 * the convolution and by its gates alone: layer_replay needs no more of it. */
#include "retro/model/mixers.h"

#include "retro/model/layer_private.h"

/* Rows as they meet a state; gates without columns where nothing weighs heads. */
struct state_rows {
    struct tensor x, gates;
};

/* Keeps of the rows that are drafts all that layer_replay reads. */
static void save_rows(const struct pass *pass, struct state_rows rows) {
    const struct pass_states *states = &pass->states;
    struct backend *backend = pass->model->backend;
    int channels = rows.x.cols;
    if (states->save_rows == NULL) return;
    backend_scatter_rows(
        backend,
        &(struct scatter_rows_args){
            .y = tensor_cols(states->saved, 0, channels), .x = rows.x, .rows = states->save_rows});
    if (rows.gates.cols == 0) return;
    backend_scatter_rows(backend, &(struct scatter_rows_args){
                                      .y = tensor_cols(states->saved, channels, rows.gates.cols),
                                      .x = rows.gates,
                                      .rows = states->save_rows});
}

static void convolve(const struct pass *pass, const struct layer *layer, struct tensor y,
                     struct tensor x, enum activation activation) {
    backend_convolve(pass->model->backend,
                     &(struct convolve_args){.y = y,
                                             .x = x,
                                             .filter = layer->state_filter,
                                             .bias = layer->state_filter_bias.data,
                                             .activation = activation,
                                             .spans = pass->states.spans,
                                             .n_spans = pass->states.n_spans,
                                             .states = pass->states.states});
}

/* The rows' values go to y [rows, values], and they enter the states. */
static void enter_states(const struct pass *pass, const struct layer *layer, struct tensor y,
                         struct state_rows rows) {
    const struct stack *stack = pass->stack;
    const struct state_dims *dims = &stack->dims.state;
    if (dims->mixer == MIXER_CONVOLUTION) {
        convolve(pass, layer, y, rows.x, ACTIVATION_NONE);
        return;
    }
    convolve(pass, layer, pass->scratch.channels, rows.x, ACTIVATION_SILU);
    backend_delta(
        pass->model->backend,
        &(struct delta_args){.y = y,
                             .x = pass->scratch.channels,
                             .gates = rows.gates,
                             .rate = layer->state_rate.data,
                             .bias = layer->state_bias.data,
                             .skip = layer->state_skip.data,
                             .spans = pass->states.spans,
                             .n_spans = pass->states.n_spans,
                             .states = pass->states.states,
                             .rule = dims->mixer == MIXER_SPACE ? DELTA_ADDS : DELTA_CORRECTS,
                             .key_heads = stack->state_keys.n,
                             .value_heads = stack->state_heads.n,
                             .key_dim = dims->key_dim,
                             .value_dim = dims->value_dim,
                             .least = dims->least,
                             .most = dims->most,
                             .write_scale = dims->write_scale});
}

static struct tensor values_of(const struct pass *pass) {
    return tensor_cols(pass->scratch.mixed, 0, stack_mixer_columns(pass->stack).values);
}

void layer_replay(const struct pass *pass, const struct layer *layer) {
    const struct mixer_columns columns = stack_mixer_columns(pass->stack);
    struct state_rows rows = {tensor_cols(pass->states.saved, 0, columns.channels),
                              tensor_cols(pass->states.saved, columns.channels, columns.gates)};
    enter_states(pass, layer, values_of(pass), rows);
}

/* The first product, of which each mixer reads its columns. */
static struct tensor project_product(const struct pass *pass, const struct layer *layer,
                                     struct tensor input) {
    struct tensor product =
        tensor_cols(pass->scratch.qkv, 0, stack_mixer_columns(pass->stack).product);
    layer_project_rows(pass->model, product, input, &layer->state_in, ACTIVATION_NONE);
    return product;
}

/* A delta net: each value head is normed by itself, then weighed. */
static struct tensor mix_delta(const struct pass *pass, const struct layer *layer,
                               struct tensor input) {
    const struct model *model = pass->model;
    const struct mixer_columns columns = stack_mixer_columns(pass->stack);
    const struct dims *dims = &pass->stack->dims;
    float epsilon = dims->state.epsilon > 0 ? dims->state.epsilon : dims->epsilon;
    struct tensor y = values_of(pass), product = project_product(pass, layer, input);
    struct state_rows rows = {tensor_cols(product, 0, columns.channels), pass->scratch.gates};
    layer_project_rows(model, rows.gates, input, &layer->state_gates, ACTIVATION_NONE);
    save_rows(pass, rows);
    enter_states(pass, layer, y, rows);
    backend_norm(model->backend, &(struct norm_args){.y = y,
                                                     .x = y,
                                                     .gamma = layer->state_norm.gamma,
                                                     .epsilon = epsilon,
                                                     .kind = NORM_RMS,
                                                     .heads = pass->stack->state_heads.n});
    return gate_rows(model, y, tensor_cols(product, columns.channels, columns.values),
                     ACTIVATION_SILU);
}

/* The values that read one key head are normed together; those of a single one may be on several
 * ranks. */
static void norm_groups(const struct pass *pass, const struct layer *layer, struct tensor y) {
    const struct model *model = pass->model;
    const struct state_dims *dims = &pass->stack->dims.state;
    struct norm_args args = {.y = y,
                             .x = y,
                             .gamma = layer->state_norm.gamma,
                             .epsilon = pass->stack->dims.epsilon,
                             .kind = NORM_RMS,
                             .heads = pass->stack->state_keys.n,
                             .each_head = true};
    if (dims->key_heads == 1 && model->comm->size > 1) {
        struct tensor squares = pass->scratch.squares;
        args.squares = tensor_cols(squares, 0, 1);
        args.whole = dims->value_heads * dims->value_dim;
        backend_square_rows(model->backend, &(struct square_rows_args){.y = args.squares, .x = y});
        comm_allreduce_sum(model->comm, model->backend, squares);
    }
    backend_norm(model->backend, &args);
}

/* A state space: values are weighed, then normed. */
static struct tensor mix_space(const struct pass *pass, const struct layer *layer,
                               struct tensor input) {
    const struct mixer_columns columns = stack_mixer_columns(pass->stack);
    struct tensor product = project_product(pass, layer, input),
                  z = tensor_cols(product, 0, columns.values);
    struct state_rows rows = {
        tensor_cols(product, columns.values, columns.channels),
        tensor_cols(product, columns.values + columns.channels, columns.gates)};
    save_rows(pass, rows);
    enter_states(pass, layer, values_of(pass), rows);
    struct tensor y = gate_rows(pass->model, values_of(pass), z, ACTIVATION_SILU);
    norm_groups(pass, layer, y);
    return y;
}

/* A short convolution between two gates. */
static struct tensor mix_convolution(const struct pass *pass, const struct layer *layer,
                                     struct tensor input) {
    int n = stack_mixer_columns(pass->stack).values;
    struct tensor product = project_product(pass, layer, input),
                  before = tensor_cols(product, 0, n), behind = tensor_cols(product, n, n),
                  x = tensor_cols(product, 2 * n, n);
    struct state_rows rows = {.x = gate_rows(pass->model, x, before, ACTIVATION_NONE)};
    save_rows(pass, rows);
    enter_states(pass, layer, values_of(pass), rows);
    return gate_rows(pass->model, values_of(pass), behind, ACTIVATION_NONE);
}

void mix_states(const struct pass *pass, const struct layer *layer, struct tensor input) {
    struct tensor y;
    switch (layer->spec.mixer) {
        case MIXER_DELTA: y = mix_delta(pass, layer, input); break;
        case MIXER_SPACE: y = mix_space(pass, layer, input); break;
        case MIXER_CONVOLUTION: y = mix_convolution(pass, layer, input); break;
        default: CHECK(!"a mixer that keeps states");
    }
    layer_project_row_parallel(pass, y, &layer->state_out, &layer->norm_attention);
}
