/* retro/model/layer.c: THE transformer layer. Every model is this function over different slots (spec.h):
 *
 *     y   = x + norm_attention(SelfAttention(norm_in(x)))
 *     z   = y + CrossAttention(norm_cross(y), source)      where the layer has it and there is something to read
 *     out = z + norm_out(MLP(norm_mlp(z)))
 *
 * docs/spec/retro-model.md 4.1. A norm that a layer does not have leaves its rows as they are. Post-norm layers (BERT)
 * norm each sum instead of each branch's input. In parallel layers norm_mlp reads x. Row-parallel products are summed
 * over ranks before bias and residual are added, as Megatron does. The MLP may be a mixture of experts. */
#include "retro/model/layer.h"

static void project_rows(const struct model *m, struct tensor y, struct tensor x, const struct projection *w,
                         enum activation activation) {
    backend_linear(m->backend, &(struct linear_args){
                                   .y = y, .x = x, .weight = &w->weight, .bias = w->bias, .activation = activation});
}

/* branch = x W^T summed over ranks. Its bias waits for add_branch, unless the norm `after` the branch is there: then
 * rank 0 adds it. */
static void project_row_parallel(const struct pass *p, struct tensor x, const struct projection *w,
                                 const struct norm_weights *after) {
    const struct model *m = p->model;
    struct linear_args a = {.y = p->scratch.branch, .x = x, .weight = &w->weight};
    if (after->gamma && m->comm->rank == 0) a.bias = w->bias;
    backend_linear(m->backend, &a);
    comm_allreduce_sum(m->comm, m->backend, p->scratch.branch);
    if (after->gamma) stack_norm(m, p->stack, p->scratch.branch, p->scratch.branch, after);
}

/* x = residual + row_scale (branch + bias) */
static void add_branch(const struct pass *p, struct tensor residual, const struct projection *w,
                       const struct norm_weights *after, const float *row_scale) {
    backend_add(p->model->backend, &(struct add_args){.y = p->scratch.x,
                                                      .a = residual,
                                                      .b = p->scratch.branch,
                                                      .bias = after->gamma ? NULL : w->bias,
                                                      .row_scale = row_scale,
                                                      .scale = p->stack->dims.residual_scale});
}

/* Queries or keys of this rank in place. `column` is theirs of scratch.squares where a norm covers the heads of all
 * ranks. */
static void norm_heads(const struct pass *p, struct tensor x, const struct norm_weights *w, int heads, int column) {
    const struct dims *d = &p->stack->dims;
    struct norm_args a = {.y = x, .x = x, .gamma = w->gamma, .beta = w->beta, .epsilon = d->epsilon, .kind = d->norm};
    if (d->qk_norm == QK_NORM_HEAD) {
        a.heads = heads;
    } else if (p->model->comm->size > 1) {
        a.squares = tensor_cols(p->scratch.squares, column, 1);
        a.whole = (column == 0 ? d->heads : d->kv_heads) * d->head_dim;
    }
    backend_norm(p->model->backend, &a);
}

/* The squares that norms over the heads of all ranks need. */
static void sum_squares(const struct pass *p, struct tensor q, struct tensor k) {
    const struct model *m = p->model;
    struct tensor squares = p->scratch.squares;
    backend_square_rows(m->backend, &(struct square_rows_args){.y = tensor_cols(squares, 0, 1), .x = q});
    backend_square_rows(m->backend, &(struct square_rows_args){.y = tensor_cols(squares, 1, 1), .x = k});
    comm_allreduce_sum(m->comm, m->backend, squares);
}

static void norm_queries_keys(const struct pass *p, const struct layer *l, struct tensor q, struct tensor k) {
    const struct stack *s = p->stack;
    if (s->dims.qk_norm == QK_NORM_NONE) return;
    if (s->dims.qk_norm == QK_NORM_WHOLE && p->model->comm->size > 1) sum_squares(p, q, k);
    norm_heads(p, q, &l->norm_q, s->heads.n, 0);
    norm_heads(p, k, &l->norm_k, s->kv_heads.n, 1);
}

static void rotate_heads(const struct pass *p, const struct layer *l, struct tensor x, int heads) {
    const struct dims *d = &p->stack->dims;
    bool far = d->rope_long_after > 0 && p->most_tokens > d->rope_long_after;
    const struct rope_table *table =
        &d->rope[far && l->spec.frequencies == ROPE_GLOBAL ? ROPE_LONG : l->spec.frequencies];
    backend_rope(p->model->backend, &(struct rope_args){.x = x,
                                                        .positions = p->positions,
                                                        .inv_freq = table->inv_freq,
                                                        .section_of = d->rope_sections > 1 ? d->rope_section : NULL,
                                                        .sections = d->rope_sections,
                                                        .heads = heads,
                                                        .head_dim = d->head_dim,
                                                        .rotated = d->rotated,
                                                        .interleaved = d->rope_interleaved,
                                                        .scale = table->scale});
}

/* New keys and values are written to the cache first, then everything is read from there, so a row sees the same
 * (rounded) keys whichever step brought them. */
static void store_keys(const struct pass *p, struct tensor k, struct tensor v) {
    struct backend *b = p->model->backend;
    backend_scatter_rows(b, &(struct scatter_rows_args){.y = p->cache.k, .x = k, .rows = p->cache.rows});
    backend_scatter_rows(b, &(struct scatter_rows_args){.y = p->cache.v, .x = v, .rows = p->cache.rows});
}

/* Attention, and what some rows give to groups of keys where that is asked. */
static void attend(const struct pass *p, const struct attention_args *a, const struct pass_shares *told) {
    struct backend *b = p->model->backend;
    backend_attention(b, a);
    if (told == NULL) return;
    struct attention_shares_args shares = {.of = *a,
                                           .y = told->y,
                                           .groups = told->groups,
                                           .n_groups = told->n_groups,
                                           .span_groups = told->span_groups,
                                           .weight = told->weight};
    shares.of.spans = told->spans;
    shares.of.n_spans = told->n_spans;
    backend_attention_shares(b, &shares);
}

/* branch = norm_attention(SelfAttention(input)). */
static void self_attention(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct model *m = p->model;
    const struct stack *s = p->stack;
    int heads = s->heads.n, kv_heads = s->kv_heads.n, h = s->dims.head_dim;
    struct tensor qkv = p->scratch.qkv;
    struct tensor q = tensor_cols(qkv, 0, heads * h), k = tensor_cols(qkv, heads * h, kv_heads * h),
                  v = tensor_cols(qkv, (heads + kv_heads) * h, kv_heads * h);
    project_rows(m, qkv, input, &l->qkv, ACTIVATION_NONE);
    norm_queries_keys(p, l, q, k);
    if (l->spec.rope) rotate_heads(p, l, tensor_cols(qkv, 0, (heads + kv_heads) * h), heads + kv_heads);

    bool cached = p->cache.rows != NULL;
    if (cached) store_keys(p, k, v);
    struct attention_args attention = {.out = p->scratch.mixed,
                                       .q = q,
                                       .k = cached ? p->cache.k : k,
                                       .v = cached ? p->cache.v : v,
                                       .spans = p->spans,
                                       .n_spans = p->n_spans,
                                       .heads = heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = h,
                                       .scale = s->dims.score_scale,
                                       .mask = l->spec.mask,
                                       .blocks = p->cache.blocks,
                                       .n_blocks = p->cache.n_blocks,
                                       .window = l->spec.window,
                                       .softcap = s->dims.score_cap,
                                       .bias = l->spec.relative ? s->relative : (struct tensor){0}};
    attend(p, &attention, p->self_shares);
    project_row_parallel(p, p->scratch.mixed, &l->proj, &l->norm_attention);
}

static void cross_attention(const struct pass *p, const struct layer *l) {
    const struct model *m = p->model;
    const struct stack *s = p->stack;
    int heads = s->heads.n, h = s->dims.head_dim;
    struct tensor u = p->scratch.normed, q = tensor_cols(p->scratch.qkv, 0, heads * h);
    stack_norm(m, s, u, p->scratch.x, &l->norm_cross);
    const struct cross_source *source = p->cross(p->context, p->layer_index, u);
    if (source == NULL) return;

    project_rows(m, q, u, &l->cross_q, ACTIVATION_NONE);
    struct attention_args attention = {.out = p->scratch.mixed,
                                       .q = q,
                                       .k = source->k,
                                       .v = source->v,
                                       .spans = source->spans,
                                       .n_spans = source->n_spans,
                                       .heads = heads,
                                       .kv_heads = heads,
                                       .head_dim = h,
                                       .scale = s->dims.score_scale,
                                       .mask = MASK_NONE};
    attend(p, &attention, p->cross_shares);
    const struct norm_weights none = {0};
    struct tensor residual = l->spec.cross_residual_normed ? u : p->scratch.x;
    project_row_parallel(p, p->scratch.mixed, &l->cross_proj, &none);
    add_branch(p, residual, &l->cross_proj, &none, source->row_scale);
}

/* The rows that the second product of an MLP of F columns reads. */
static struct tensor widen_rows(const struct pass *p, struct tensor input, const struct projection *fc1, int ffn) {
    const struct model *m = p->model;
    const struct dims *d = &p->stack->dims;
    struct tensor gated = tensor_cols(p->scratch.gated, 0, ffn);
    if (d->gated) {
        struct tensor wide = tensor_cols(p->scratch.wide, 0, 2 * ffn);
        project_rows(m, wide, input, fc1, ACTIVATION_NONE);
        backend_glu(m->backend, &(struct glu_args){.y = gated, .x = wide, .activation = d->activation});
    } else {
        project_rows(m, gated, input, fc1, d->activation);
    }
    return gated;
}

/* branch = norm_out(MLP(input)). */
static void apply_mlp(const struct pass *p, const struct layer *l, struct tensor input) {
    struct tensor gated = widen_rows(p, input, &l->fc1, p->stack->ffn.n);
    project_row_parallel(p, gated, &l->fc2, &l->norm_out);
}

/* scratch.routes, from the router's logits: whole on every rank. */
static void route_rows(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct dims *d = &p->stack->dims;
    struct tensor logits = tensor_cols(p->scratch.choices, 0, d->experts);
    backend_linear(p->model->backend, &(struct linear_args){.y = logits, .x = input, .weight = &l->router});
    backend_route(
        p->model->backend,
        &(struct route_args){.y = p->scratch.routes, .logits = logits, .renormalise = d->experts_renormalised});
}

/* scratch.shared and its gate; a rank has its columns' part of the sum. */
static void apply_shared_expert(const struct pass *p, const struct layer *l, struct tensor input, struct tensor gate) {
    const struct model *m = p->model;
    struct tensor gated = widen_rows(p, input, &l->shared_fc1, p->stack->shared_ffn.n);
    project_rows(m, p->scratch.shared, gated, &l->shared_fc2, ACTIVATION_NONE);
    backend_linear(m->backend, &(struct linear_args){.y = gate, .x = input, .weight = &l->shared_gate});
}

/* branch = norm_out(experts(input)). */
static void apply_experts(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct model *m = p->model;
    const struct dims *d = &p->stack->dims;
    int ffn = p->stack->expert_ffn.n;
    struct experts_args a = {.y = p->scratch.branch,
                             .x = input,
                             .routes = p->scratch.routes,
                             .fc1 = l->expert_fc1,
                             .fc2 = l->expert_fc2,
                             .few = p->scratch.few,
                             .parts = p->scratch.parts,
                             .wide = tensor_cols(p->scratch.wide, 0, 2 * ffn),
                             .gated = tensor_cols(p->scratch.gated, 0, ffn),
                             .n_experts = d->experts,
                             .activation = d->activation};
    route_rows(p, l, input);
    if (d->shared_ffn > 0) {
        a.shared = p->scratch.shared;
        a.gate = tensor_cols(p->scratch.choices, d->experts, 1);
        apply_shared_expert(p, l, input, a.gate);
    }
    backend_experts(m->backend, &a);
    comm_allreduce_sum(m->comm, m->backend, p->scratch.branch);
    if (l->norm_out.gamma) stack_norm(m, p->stack, p->scratch.branch, p->scratch.branch, &l->norm_out);
}

/* The rows that a branch reads: x, or what the norm before the branch makes of it. */
static struct tensor enter_branch(const struct pass *p, const struct layer *l, const struct norm_weights *before) {
    if (l->spec.post_norm || before->gamma == NULL) return p->scratch.x;
    stack_norm(p->model, p->stack, p->scratch.normed, p->scratch.x, before);
    return p->scratch.normed;
}

void layer_forward(const struct pass *p, const struct layer *l) {
    const struct model *m = p->model;
    struct tensor x = p->scratch.x;

    struct tensor input = enter_branch(p, l, &l->norm_in);
    self_attention(p, l, input);
    if (l->spec.parallel) input = enter_branch(p, l, &l->norm_mlp);
    add_branch(p, x, &l->proj, &l->norm_attention, NULL);
    if (l->spec.post_norm) stack_norm(m, p->stack, x, x, &l->norm_in);

    if (l->spec.cross) cross_attention(p, l);

    if (!l->spec.parallel) input = enter_branch(p, l, &l->norm_mlp);
    if (l->spec.experts)
        apply_experts(p, l, input);
    else
        apply_mlp(p, l, input);
    add_branch(p, x, &l->fc2, &l->norm_out, NULL);
    if (l->spec.post_norm) stack_norm(m, p->stack, x, x, &l->norm_mlp);
}
