/* retro/model/layer.c: THE transformer layer. Every model is this function over different slots
 * (spec.h):
 *
 *     y   = x + norm_attention(SelfAttention(norm_in(x)))    or another mixer's rows, or those of
 * attention over latents
 *     z   = y + CrossAttention(norm_cross(y), source)      where the layer has it and there is
 * something to read out = z + norm_out(MLP(norm_mlp(z)))
 *
 * docs/spec/retro-model.md 4.1. A norm that a layer does not have leaves its rows as they are.
 * Post-norm layers (BERT) norm each sum instead of each branch's input. In parallel layers norm_mlp
 * reads x; without it the MLP reads the rows that attention reads. Row-parallel products are summed
 * over ranks before bias and residual are added, as Megatron does. The MLP may be a mixture of
 * experts, or stand beside one:
 *
 *     MLP(norm_mlp(z)) = norm_dense_out(dense(norm_mlp(z))) + norm_experts_out(E(norm_experts(z)))
 *
 * Behind it a layer may have an input of the row's token, and a number that multiplies its
 * rows. */
#include <math.h>

#include "retro/model/layer_private.h"
#include "retro/model/mixers.h"

void layer_project_rows(const struct model *model, struct tensor y, struct tensor x,
                        const struct projection *projection, enum activation activation) {
    backend_linear(model->backend, &(struct linear_args){.y = y,
                                                         .x = x,
                                                         .weight = &projection->weight,
                                                         .bias = projection->bias,
                                                         .activation = activation});
}

void layer_project_row_parallel(const struct pass *pass, struct tensor x,
                                const struct projection *projection,
                                const struct norm_weights *after) {
    const struct model *model = pass->model;
    struct linear_args args = {.y = pass->scratch.branch, .x = x, .weight = &projection->weight};
    if (after->gamma && model->comm->rank == 0) args.bias = projection->bias;
    backend_linear(model->backend, &args);
    comm_allreduce_sum(model->comm, model->backend, pass->scratch.branch);
    if (after->gamma)
        stack_norm(model, pass->stack, pass->scratch.branch, pass->scratch.branch, after);
}

/* x = residual + row_scale (branch + bias) */
static void add_branch(const struct pass *pass, struct tensor residual,
                       const struct projection *projection, const struct norm_weights *after,
                       const float *row_scale) {
    backend_add(pass->model->backend,
                &(struct add_args){.y = pass->scratch.x,
                                   .a = residual,
                                   .b = pass->scratch.branch,
                                   .bias = after->gamma ? NULL : projection->bias,
                                   .row_scale = row_scale,
                                   .scale = pass->stack->dims.residual_scale});
}

void layer_store_rows(const struct pass *pass, struct tensor to, struct tensor scales,
                      struct tensor x) {
    backend_scatter_rows(
        pass->model->backend,
        &(struct scatter_rows_args){.y = to, .x = x, .rows = pass->cache.rows, .scales = scales});
}

void layer_attend(const struct pass *pass, const struct attention_args *args,
                  const struct pass_shares *told) {
    struct backend *backend = pass->model->backend;
    backend_attention(backend, args);
    if (told == NULL) return;
    bool ordered = args->spans == pass->ordered_spans;
    struct attention_shares_args shares = {.of = *args,
                                           .y = told->y,
                                           .groups = told->groups,
                                           .n_groups = told->n_groups,
                                           .span_groups = told->span_groups,
                                           .weight = told->weight};
    shares.of.spans = ordered ? told->ordered_spans : told->spans;
    shares.of.n_spans = told->n_spans;
    backend_attention_shares(backend, &shares);
}

struct tensor gate_rows(const struct model *model, struct tensor rows, struct tensor weights,
                        enum activation activation) {
    backend_gate(
        model->backend,
        &(struct gate_args){.y = weights, .x = weights, .by = rows, .activation = activation});
    return weights;
}

struct attention_args layer_attention_args(const struct pass *pass, const struct layer *layer,
                                           struct tensor q, struct tensor k) {
    const struct stack *stack = pass->stack;
    const struct layer_heads heads = stack_heads(stack, &layer->spec);
    return (struct attention_args){
        .out = tensor_cols(pass->scratch.mixed, 0, q.cols),
        .q = q,
        .k = k,
        .v = k,
        .spans = layer->spec.ordered ? pass->ordered_spans : pass->spans,
        .n_spans = pass->n_spans,
        .heads = heads.queries.n,
        .kv_heads = heads.keys.n,
        .head_dim = heads.dim,
        .scale = stack_score_scale(stack, pass->layer_index),
        .mask = layer->spec.mask,
        .blocks = pass->cache.blocks,
        .n_blocks = pass->cache.n_blocks,
        .chunk = layer->spec.chunk,
        .window = layer->spec.window,
        .softcap = stack->dims.score_cap,
        .bias = layer->spec.relative ? stack->relative : (struct tensor){0},
        .sinks = layer->sinks.data,
        .exact = layer_attends_exactly(pass->model)};
}

/* The additions to the scores of these rows by their distances. */
static struct distance_scores score_distances(const struct pass *pass, const struct layer *layer,
                                              struct tensor q, struct tensor k) {
    const struct stack *stack = pass->stack;
    struct backend *backend = pass->model->backend;
    struct tensor by_query = pass->scratch.by_query, by_key = pass->scratch.by_key;
    if (layer->distance_keys == NULL) return (struct distance_scores){0};
    backend_linear_heads(
        backend,
        &(struct linear_heads_args){
            .y = by_query, .x = q, .weights = layer->distance_keys, .heads = stack->heads.n});
    backend_linear_heads(
        backend,
        &(struct linear_heads_args){
            .y = by_key, .x = k, .weights = layer->distance_queries, .heads = stack->heads.n});
    return (struct distance_scores){.by_query = by_query,
                                    .by_key = by_key,
                                    .columns = stack->distance_columns,
                                    .reach = stack->dims.distances.farthest};
}

/* branch = norm_attention(SelfAttention(input)). */
static void self_attention(const struct pass *pass, const struct layer *layer,
                           struct tensor input) {
    const struct model *model = pass->model;
    const struct stack *stack = pass->stack;
    const struct layer_heads sizes = stack_heads(stack, &layer->spec);
    int heads = sizes.queries.n, kv_heads = sizes.keys.n, h = sizes.dim;
    int all = (heads + 2 * kv_heads) * h, gates = heads * stack->dims.head_gate;
    struct tensor qkv = tensor_cols(pass->scratch.qkv, 0, all + gates),
                  product = tensor_cols(qkv, 0, layer->qkv.weight.n_out);
    struct tensor q = tensor_cols(qkv, 0, heads * h), k = tensor_cols(qkv, heads * h, kv_heads * h),
                  v = tensor_cols(qkv, (heads + kv_heads) * h, kv_heads * h),
                  mixed = tensor_cols(pass->scratch.mixed, 0, heads * h);
    if (layer->spec.clipped)
        layer_project_clipped_heads(pass, layer, q, k, v, input);
    else
        layer_project_rows(model, product, input, &layer->qkv, ACTIVATION_NONE);
    layer_norm_values(pass, layer, k, v);
    if (!stack->dims.qk_norm_last) layer_norm_queries_keys(pass, layer, q, k);
    layer_rotate_queries_keys(pass, layer, q, k);
    if (stack->dims.qk_norm_last) layer_norm_queries_keys(pass, layer, q, k);

    bool cached = pass->cache.rows != NULL;
    if (cached && !layer->spec.reuses) {
        layer_store_rows(pass, pass->cache.k, pass->cache.k_scales, k);
        layer_store_rows(pass, pass->cache.v, pass->cache.v_scales, v);
    }
    struct attention_args attention =
        layer_attention_args(pass, layer, q, cached ? pass->cache.k : k);
    attention.v = cached ? pass->cache.v : v;
    attention.k_scales = pass->cache.k_scales;
    attention.v_scales = pass->cache.v_scales;
    attention.distances = score_distances(pass, layer, q, k);
    layer_attend(pass, &attention, pass->self_shares);
    if (gates > 0)
        backend_gate(model->backend, &(struct gate_args){.y = mixed,
                                                         .x = tensor_cols(qkv, all, gates),
                                                         .by = mixed,
                                                         .activation = ACTIVATION_SIGMOID});
    if (layer->spec.clipped)
        layer_clip_row_parallel(pass, mixed, &layer->proj, &layer->clips[CLIP_PROJ],
                                &layer->norm_attention);
    else
        layer_project_row_parallel(pass, mixed, &layer->proj, &layer->norm_attention);
}

static void cross_attention(const struct pass *pass, const struct layer *layer) {
    const struct model *model = pass->model;
    const struct stack *stack = pass->stack;
    int heads = stack->heads.n, h = stack->dims.head_dim;
    struct tensor u = pass->scratch.normed, q = tensor_cols(pass->scratch.qkv, 0, heads * h),
                  mixed = tensor_cols(pass->scratch.mixed, 0, heads * h);
    stack_norm(model, stack, u, pass->scratch.x, &layer->norm_cross);
    const struct cross_source *source = pass->cross(pass->context, pass->layer_index, u);
    if (source == NULL) return;

    layer_project_rows(model, q, u, &layer->cross_q, ACTIVATION_NONE);
    struct attention_args attention = {.out = mixed,
                                       .q = q,
                                       .k = source->k,
                                       .v = source->v,
                                       .spans = source->spans,
                                       .n_spans = source->n_spans,
                                       .heads = heads,
                                       .kv_heads = heads,
                                       .head_dim = h,
                                       .scale = stack->dims.score_scale,
                                       .mask = MASK_NONE,
                                       .exact = layer_attends_exactly(pass->model)};
    layer_attend(pass, &attention, pass->cross_shares);
    const struct norm_weights none = {0};
    struct tensor residual = layer->spec.cross_residual_normed ? u : pass->scratch.x;
    layer_project_row_parallel(pass, mixed, &layer->cross_proj, &none);
    add_branch(pass, residual, &layer->cross_proj, &none, source->row_scale);
}

static struct gating gating_of(const struct dims *dims) {
    return (struct gating){.activation = dims->activation,
                           .limit = dims->gate_limit,
                           .shift = dims->gate_shift,
                           .plain = !dims->gated};
}

/* The rows that the second product of an MLP of F columns reads. */
static struct tensor widen_rows(const struct pass *pass, struct tensor input,
                                const struct projection *fc1, int ffn) {
    const struct model *model = pass->model;
    const struct dims *dims = &pass->stack->dims;
    struct tensor gated = tensor_cols(pass->scratch.gated, 0, ffn);
    if (dims->gated) {
        struct tensor wide = tensor_cols(pass->scratch.wide, 0, 2 * ffn);
        layer_project_rows(model, wide, input, fc1, ACTIVATION_NONE);
        backend_glu(model->backend,
                    &(struct glu_args){.y = gated, .x = wide, .gating = gating_of(dims)});
    } else {
        layer_project_rows(model, gated, input, fc1, dims->activation);
    }
    return gated;
}

/* branch = norm_out(MLP(input)). */
static void apply_mlp(const struct pass *pass, const struct layer *layer, struct tensor input) {
    int ffn = stack_ffn(pass->stack, &layer->spec).n;
    if (layer->spec.clipped) {
        layer_clipped_mlp(pass, layer, input, ffn);
        return;
    }
    struct tensor gated = widen_rows(pass, input, &layer->fc1, ffn);
    if (layer->xielu_slope.data)
        backend_xielu(pass->model->backend,
                      &(struct xielu_args){.y = gated,
                                           .x = gated,
                                           .positive = layer->xielu_positive.data,
                                           .negative = layer->xielu_negative.data,
                                           .slope = layer->xielu_slope.data,
                                           .least = layer->xielu_least.data});
    layer_project_row_parallel(pass, gated, &layer->fc2, &layer->norm_out);
}

/* scratch.routes, from the router's logits: whole on every rank. */
static void route_rows(const struct pass *pass, const struct layer *layer, struct tensor input) {
    const struct dims *dims = &pass->stack->dims;
    struct tensor logits = tensor_cols(pass->scratch.choices, 0, dims->experts);
    layer_project_rows(pass->model, logits, input, &layer->router, ACTIVATION_NONE);
    backend_route(pass->model->backend,
                  &(struct route_args){.y = pass->scratch.routes,
                                       .logits = logits,
                                       .bias = layer->router_bias.data,
                                       .factors = layer->router_scale.data,
                                       .sigmoid = dims->router_sigmoid,
                                       .renormalise = dims->experts_renormalised,
                                       .epsilon = dims->router_epsilon,
                                       .groups = dims->router_groups,
                                       .groups_used = dims->router_groups_used,
                                       .group_best = dims->router_group_best,
                                       .scale = dims->router_scale});
}

/* scratch.shared and its gate, if it has one; a rank has its columns' part of the sum. */
static void apply_shared_expert(const struct pass *pass, const struct layer *layer,
                                struct tensor input, struct tensor gate) {
    const struct model *model = pass->model;
    struct tensor gated = widen_rows(pass, input, &layer->shared_fc1, pass->stack->shared_ffn.n);
    layer_project_part(model, pass->scratch.shared, gated, &layer->shared_fc2);
    if (gate.data)
        backend_linear(model->backend,
                       &(struct linear_args){.y = gate, .x = input, .weight = &layer->shared_gate});
}

/* y = experts(x) by scratch.routes; a rank has its columns' part of the sum. */
static struct experts_args experts_args_of(const struct pass *pass, const struct layer *layer,
                                           struct tensor y, struct tensor x) {
    const struct dims *dims = &pass->stack->dims;
    int ffn = pass->stack->expert_ffn.n;
    struct experts_args args = {
        .y = y,
        .x = x,
        .routes = pass->scratch.routes,
        .fc1 = layer->expert_fc1.weights,
        .fc2 = layer->expert_fc2.weights,
        .bias1 = layer->expert_fc1.biases,
        .few = pass->scratch.few,
        .parts = pass->scratch.parts,
        .wide = tensor_cols(pass->scratch.wide, 0, (dims->gated ? 2 : 1) * ffn),
        .gated = tensor_cols(pass->scratch.gated, 0, ffn),
        .n_experts = dims->experts,
        .weighs_inputs = dims->experts_weigh_inputs,
        .fetched = pass->model->fetches_experts,
        .gating = gating_of(dims)};
    if (pass->model->comm->rank == 0) args.bias2 = layer->expert_fc2.biases;
    return args;
}

/* branch = norm_out(experts(input)). */
static void apply_experts(const struct pass *pass, const struct layer *layer, struct tensor input) {
    const struct model *model = pass->model;
    const struct dims *dims = &pass->stack->dims;
    struct experts_args args = experts_args_of(pass, layer, pass->scratch.branch, input);
    route_rows(pass, layer, input);
    if (dims->shared_ffn > 0) {
        args.shared = pass->scratch.shared;
        if (dims->shared_gated) args.gate = tensor_cols(pass->scratch.choices, dims->experts, 1);
        apply_shared_expert(pass, layer, input, args.gate);
    }
    layer_run_experts(pass, layer, &args);
    comm_allreduce_sum(model->comm, model->backend, pass->scratch.branch);
    if (layer->norm_out.gamma)
        stack_norm(model, pass->stack, pass->scratch.branch, pass->scratch.branch,
                   &layer->norm_out);
}

/* branch = norm_out(norm_dense_out(MLP(norm_mlp(x))) + norm_experts_out(experts(norm_experts(x))))
 */
static void apply_experts_beside(const struct pass *pass, const struct layer *layer) {
    const struct model *model = pass->model;
    const struct stack *stack = pass->stack;
    struct tensor x = pass->scratch.x, normed = pass->scratch.normed, sum = pass->scratch.shared,
                  branch = pass->scratch.branch;
    stack_norm(model, stack, normed, x, &layer->norm_router);
    backend_scale(model->backend,
                  &(struct scale_args){.x = normed, .factor = 1 / sqrtf((float)normed.cols)});
    route_rows(pass, layer, normed);

    stack_norm(model, stack, normed, x, &layer->norm_experts);
    const struct experts_args args = experts_args_of(pass, layer, sum, normed);
    backend_experts(model->backend, &args);
    comm_allreduce_sum(model->comm, model->backend, sum);
    stack_norm(model, stack, sum, sum, &layer->norm_experts_out);

    stack_norm(model, stack, normed, x, &layer->norm_mlp);
    struct tensor gated = widen_rows(pass, normed, &layer->fc1, stack_ffn(stack, &layer->spec).n);
    layer_project_row_parallel(pass, gated, &layer->fc2, &layer->norm_dense_out);
    backend_add(model->backend, &(struct add_args){.y = branch, .a = branch, .b = sum});
    stack_norm(model, stack, branch, branch, &layer->norm_out);
}

/* The rows that a branch reads: x, or what the norm before the branch makes of it. */
static struct tensor enter_branch(const struct pass *pass, const struct layer *layer,
                                  const struct norm_weights *before) {
    if (layer->spec.post_norm || before->gamma == NULL) return pass->scratch.x;
    stack_norm(pass->model, pass->stack, pass->scratch.normed, pass->scratch.x, before);
    return pass->scratch.normed;
}

/* y, and `input` as a parallel MLP reads it. */
static void apply_mixer(const struct pass *pass, const struct layer *layer, struct tensor *input) {
    struct tensor x = pass->scratch.x;
    bool keeps = mixer_keeps_state(layer->spec.mixer);
    *input = enter_branch(pass, layer, &layer->norm_in);
    if (keeps)
        mix_states(pass, layer, *input);
    else if (layer->spec.latent)
        layer_latent_attention(pass, layer, *input);
    else
        self_attention(pass, layer, *input);
    if (layer->spec.parallel && layer->norm_mlp.gamma)
        *input = enter_branch(pass, layer, &layer->norm_mlp);
    add_branch(pass, x, keeps ? &layer->state_out : &layer->proj, &layer->norm_attention, NULL);
    if (layer->spec.post_norm) stack_norm(pass->model, pass->stack, x, x, &layer->norm_in);
}

/* The MLP, whatever it is, and its residual. `input` is what a parallel one reads. */
static void add_mlp(const struct pass *pass, const struct layer *layer, struct tensor input) {
    struct tensor x = pass->scratch.x;
    bool beside = layer->spec.experts && pass->stack->dims.experts_beside;
    if (!layer->spec.parallel && !beside) input = enter_branch(pass, layer, &layer->norm_mlp);
    if (beside)
        apply_experts_beside(pass, layer);
    else if (layer->spec.experts)
        apply_experts(pass, layer, input);
    else
        apply_mlp(pass, layer, input);
    add_branch(pass, x, &layer->fc2, &layer->norm_out, NULL);
    if (layer->spec.post_norm) stack_norm(pass->model, pass->stack, x, x, &layer->norm_mlp);
}

/* x = x + norm_input(input_proj (activation(input_gate x) * what the token gives this layer)) */
static void add_input(const struct pass *pass, const struct layer *layer) {
    const struct dims *dims = &pass->stack->dims;
    struct backend *backend = pass->model->backend;
    int n = dims->layer_input;
    struct tensor x = pass->scratch.x, branch = pass->scratch.branch, gate = pass->scratch.input,
                  given = tensor_cols(pass->scratch.inputs, pass->layer_index * n, n);
    backend_linear(backend, &(struct linear_args){.y = gate, .x = x, .weight = &layer->input_gate});
    gate = gate_rows(pass->model, given, gate, dims->activation);
    backend_linear(backend,
                   &(struct linear_args){.y = branch, .x = gate, .weight = &layer->input_proj});
    stack_norm(pass->model, pass->stack, branch, branch, &layer->norm_input);
    backend_add(backend, &(struct add_args){.y = x, .a = x, .b = branch});
}

void layer_forward(const struct pass *pass, const struct layer *layer) {
    struct tensor x = pass->scratch.x, input = x;

    if (layer->spec.mixer != MIXER_NONE) apply_mixer(pass, layer, &input);

    if (layer->spec.cross) cross_attention(pass, layer);

    if (!layer->spec.without_mlp) add_mlp(pass, layer, input);

    if (pass->stack->dims.layer_input > 0) add_input(pass, layer);

    if (layer->scale.data)
        backend_scale(pass->model->backend,
                      &(struct scale_args){.x = x, .factor = 1, .by = layer->scale.data});
}
