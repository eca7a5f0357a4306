/* retro/model/layer.c: THE transformer layer. Every model is this function over different slots (spec.h):
 *
 *     y   = x + SelfAttention(norm_in(x))
 *     z   = y + CrossAttention(norm_cross(y), source)      where the layer has it and there is something to read
 *     out = z + MLP(norm_mlp(z))
 *
 * docs/spec/retro-model.md 4.1. Post-norm layers (BERT) norm each sum instead of each branch's input. Row-parallel
 * products are summed over ranks before bias and residual are added, as Megatron does. */
#include "retro/model/layer.h"

static void project_rows(const struct model *m, struct tensor y, struct tensor x, const struct projection *w,
                         enum activation activation) {
    backend_linear(m->backend, &(struct linear_args){
                                   .y = y, .x = x, .weight = &w->weight, .bias = w->bias, .activation = activation});
}

/* branch = x W^T summed over ranks; its bias waits for add_branch. */
static void project_row_parallel(const struct pass *p, struct tensor x, const struct projection *w) {
    const struct model *m = p->model;
    backend_linear(m->backend, &(struct linear_args){.y = p->scratch.branch, .x = x, .weight = &w->weight});
    comm_allreduce_sum(m->comm, m->backend, p->scratch.branch);
}

/* x = residual + row_scale (branch + bias) */
static void add_branch(const struct pass *p, struct tensor residual, const float *bias, const float *row_scale) {
    backend_add(p->model->backend,
                &(struct add_args){
                    .y = p->scratch.x, .a = residual, .b = p->scratch.branch, .bias = bias, .row_scale = row_scale});
}

static void rotate_heads(const struct pass *p, struct tensor x, int heads) {
    const struct dims *d = &p->stack->dims;
    backend_rope(p->model->backend, &(struct rope_args){.x = x,
                                                        .positions = p->positions,
                                                        .inv_freq = p->stack->inv_freq,
                                                        .heads = heads,
                                                        .head_dim = d->head_dim,
                                                        .rotated = d->rotated,
                                                        .interleaved = d->rope_interleaved});
}

/* New keys and values are written to the cache first, then everything is read from there, so a row sees the same
 * (rounded) keys whichever step brought them. */
static void store_keys(const struct pass *p, struct tensor k, struct tensor v) {
    struct backend *b = p->model->backend;
    backend_scatter_rows(b, &(struct scatter_rows_args){.y = p->cache.k, .x = k, .rows = p->cache.rows});
    backend_scatter_rows(b, &(struct scatter_rows_args){.y = p->cache.v, .x = v, .rows = p->cache.rows});
}

/* branch = SelfAttention(input). */
static void self_attention(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct model *m = p->model;
    const struct stack *s = p->stack;
    int heads = s->heads.n, kv_heads = s->kv_heads.n, h = s->dims.head_dim;
    struct tensor qkv = p->scratch.qkv;
    struct tensor q = tensor_cols(qkv, 0, heads * h), k = tensor_cols(qkv, heads * h, kv_heads * h),
                  v = tensor_cols(qkv, (heads + kv_heads) * h, kv_heads * h);
    project_rows(m, qkv, input, &l->qkv, ACTIVATION_NONE);
    if (l->spec.rope) rotate_heads(p, tensor_cols(qkv, 0, (heads + kv_heads) * h), heads + kv_heads);

    bool cached = p->cache.rows != NULL;
    if (cached) store_keys(p, k, v);
    backend_attention(m->backend,
                      &(struct attention_args){.out = p->scratch.mixed,
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
                                               .bias = l->spec.relative ? s->relative : (struct tensor){0}});
    project_row_parallel(p, p->scratch.mixed, &l->proj);
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
    backend_attention(m->backend, &(struct attention_args){.out = p->scratch.mixed,
                                                           .q = q,
                                                           .k = source->k,
                                                           .v = source->v,
                                                           .spans = source->spans,
                                                           .n_spans = source->n_spans,
                                                           .heads = heads,
                                                           .kv_heads = heads,
                                                           .head_dim = h,
                                                           .scale = s->dims.score_scale,
                                                           .mask = MASK_NONE});
    project_row_parallel(p, p->scratch.mixed, &l->cross_proj);
    add_branch(p, l->spec.cross_residual_normed ? u : p->scratch.x, l->cross_proj.bias, source->row_scale);
}

static void apply_mlp(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct model *m = p->model;
    const struct dims *d = &p->stack->dims;
    if (d->gated) {
        project_rows(m, p->scratch.wide, input, &l->fc1, ACTIVATION_NONE);
        backend_glu(m->backend,
                    &(struct glu_args){.y = p->scratch.gated, .x = p->scratch.wide, .activation = d->activation});
    } else {
        project_rows(m, p->scratch.gated, input, &l->fc1, d->activation);
    }
    project_row_parallel(p, p->scratch.gated, &l->fc2);
}

void layer_forward(const struct pass *p, const struct layer *l) {
    const struct model *m = p->model;
    struct tensor x = p->scratch.x, u = p->scratch.normed;
    bool post = l->spec.post_norm;

    if (!post) stack_norm(m, p->stack, u, x, &l->norm_in);
    self_attention(p, l, post ? x : u);
    add_branch(p, x, l->proj.bias, NULL);
    if (post) stack_norm(m, p->stack, x, x, &l->norm_in);

    if (l->spec.cross) cross_attention(p, l);

    if (!post) stack_norm(m, p->stack, u, x, &l->norm_mlp);
    apply_mlp(p, l, post ? x : u);
    add_branch(p, x, l->fc2.bias, NULL);
    if (post) stack_norm(m, p->stack, x, x, &l->norm_mlp);
}
