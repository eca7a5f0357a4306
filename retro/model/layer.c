/* retro/model/layer.c: THE transformer layer. Every model is this function over different slots (spec.h):
 *
 *     y   = x + SelfAttention(norm_in(x))
 *     z   = y + CrossAttention(norm_cross(y), source)      where the layer has it and there is something to read
 *     out = z + MLP(norm_mlp(z))
 *
 * docs/spec/retro-model.md 4.1. Post-norm layers (BERT) norm each sum instead of each branch's input. Row-parallel
 * products are summed over ranks before bias and residual are added, as Megatron does. */
#include "retro/model/layer.h"

#include <math.h>

void norm_rows(const struct model *m, struct tensor y, struct tensor x, const struct norm_weights *w) {
    norm(m->backend,
         &(struct norm_args){
             .y = y, .x = x, .gamma = w->gamma, .beta = w->beta, .epsilon = m->dims.epsilon, .kind = m->dims.norm});
}

static void project(const struct model *m, struct tensor y, struct tensor x, const struct projection *w,
                    enum activation activation) {
    linear(m->backend,
           &(struct linear_args){.y = y, .x = x, .weight = &w->weight, .bias = w->bias, .activation = activation});
}

/* branch = x W^T summed over ranks; its bias waits for add_branch. */
static void project_row_parallel(const struct pass *p, struct tensor x, const struct projection *w) {
    const struct model *m = p->model;
    linear(m->backend, &(struct linear_args){.y = p->scratch.branch, .x = x, .weight = &w->weight});
    comm_allreduce_sum(m->comm, m->backend, p->scratch.branch);
}

/* x = residual + row_scale (branch + bias) */
static void add_branch(const struct pass *p, struct tensor residual, const float *bias, const float *row_scale) {
    add(p->model->backend,
        &(struct add_args){
            .y = p->scratch.x, .a = residual, .b = p->scratch.branch, .bias = bias, .row_scale = row_scale});
}

static void attend(const struct pass *p, struct tensor q, const struct cross_source *s, int kv_heads, enum mask mask) {
    const struct model *m = p->model;
    attention(m->backend, &(struct attention_args){.out = p->scratch.mixed,
                                                   .q = q,
                                                   .k = s->k,
                                                   .v = s->v,
                                                   .spans = s->spans,
                                                   .n_spans = s->n_spans,
                                                   .heads = m->local.heads.n,
                                                   .kv_heads = kv_heads,
                                                   .head_dim = m->dims.head_dim,
                                                   .scale = 1.0f / sqrtf((float)m->dims.head_dim),
                                                   .mask = mask});
}

static void rotate(const struct pass *p, struct tensor x, int heads) {
    const struct dims *d = &p->model->dims;
    rope(p->model->backend, &(struct rope_args){.x = x,
                                                .positions = p->positions,
                                                .inv_freq = p->model->inv_freq,
                                                .heads = heads,
                                                .head_dim = d->head_dim,
                                                .rotated = d->rotated,
                                                .interleaved = d->rope_interleaved});
}

/* branch = SelfAttention(input). With a cache the new keys and values are written first, then everything is read from
 * there, so a row sees the same (rounded) keys whichever step brought them. */
static void self_attention(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct model *m = p->model;
    int h = m->dims.head_dim, q_cols = m->local.heads.n * h, kv_cols = m->local.kv_heads.n * h;
    struct tensor qkv = p->scratch.qkv;
    struct tensor q = tensor_cols(qkv, 0, q_cols), k = tensor_cols(qkv, q_cols, kv_cols),
                  v = tensor_cols(qkv, q_cols + kv_cols, kv_cols);
    project(m, qkv, input, &l->qkv, ACTIVATION_NONE);
    if (l->spec.rope) rotate(p, tensor_cols(qkv, 0, q_cols + kv_cols), m->local.heads.n + m->local.kv_heads.n);
    if (p->cache_rows) {
        scatter_rows(m->backend, &(struct scatter_rows_args){.y = p->k, .x = k, .rows = p->cache_rows});
        scatter_rows(m->backend, &(struct scatter_rows_args){.y = p->v, .x = v, .rows = p->cache_rows});
        k = p->k;
        v = p->v;
    }
    attend(p, q, &(struct cross_source){.k = k, .v = v, .spans = p->spans, .n_spans = p->n_spans}, m->local.kv_heads.n,
           l->spec.mask);
    project_row_parallel(p, p->scratch.mixed, &l->proj);
}

static void cross_attention(const struct pass *p, const struct layer *l) {
    const struct model *m = p->model;
    struct tensor u = p->scratch.normed;
    struct tensor q = tensor_cols(p->scratch.qkv, 0, m->local.heads.n * m->dims.head_dim);
    norm_rows(m, u, p->scratch.x, &l->norm_cross);
    const struct cross_source *source = p->cross(p->context, p->layer_index, u);
    if (source == NULL) return;
    project(m, q, u, &l->cross_q, ACTIVATION_NONE);
    attend(p, q, source, m->local.heads.n, MASK_NONE);
    project_row_parallel(p, p->scratch.mixed, &l->cross_proj);
    add_branch(p, l->spec.cross_residual_normed ? u : p->scratch.x, l->cross_proj.bias, source->row_scale);
}

static void mlp(const struct pass *p, const struct layer *l, struct tensor input) {
    const struct model *m = p->model;
    if (m->dims.gated) {
        project(m, p->scratch.wide, input, &l->fc1, ACTIVATION_NONE);
        glu(m->backend,
            &(struct glu_args){.y = p->scratch.gated, .x = p->scratch.wide, .activation = m->dims.activation});
    } else {
        project(m, p->scratch.gated, input, &l->fc1, m->dims.activation);
    }
    project_row_parallel(p, p->scratch.gated, &l->fc2);
}

void layer_forward(const struct pass *p, const struct layer *l) {
    const struct model *m = p->model;
    struct tensor x = p->scratch.x, u = p->scratch.normed;
    bool post = l->spec.post_norm;

    if (!post) norm_rows(m, u, x, &l->norm_in);
    self_attention(p, l, post ? x : u);
    add_branch(p, x, l->proj.bias, NULL);
    if (post) norm_rows(m, x, x, &l->norm_in);

    if (l->spec.cross) cross_attention(p, l);

    if (!post) norm_rows(m, u, x, &l->norm_mlp);
    mlp(p, l, post ? x : u);
    add_branch(p, x, l->fc2.bias, NULL);
    if (post) norm_rows(m, x, x, &l->norm_mlp);
}

/* Columns of scratch.x, normed, branch, qkv, mixed, wide and gated. */
enum { SCRATCH_PARTS = 7 };

static void scratch_cols(const struct model *m, int cols[SCRATCH_PARTS]) {
    const struct dims *d = &m->dims;
    cols[0] = cols[1] = cols[2] = d->hidden;
    cols[3] = (m->local.heads.n + 2 * m->local.kv_heads.n) * d->head_dim;
    cols[4] = m->local.heads.n * d->head_dim;
    cols[5] = (d->gated ? 2 : 1) * m->local.ffn.n;
    cols[6] = d->gated ? m->local.ffn.n : 0;
}

enum status scratch_measure(const struct model *m, int max_rows, size_t *bytes, struct error *e) {
    int cols[SCRATCH_PARTS];
    size_t row = 0;
    scratch_cols(m, cols);
    for (int i = 0; i < SCRATCH_PARTS; i++) row += (size_t)cols[i] * sizeof(float);
    if (!mul_overflows(row, (size_t)max_rows, bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "scratch of %d rows does not fit the address space", max_rows);
}

enum status scratch_open(struct scratch *s, const struct model *m, int max_rows, struct error *e) {
    struct tensor *parts[SCRATCH_PARTS] = {&s->x, &s->normed, &s->branch, &s->qkv, &s->mixed, &s->wide, &s->gated};
    int cols[SCRATCH_PARTS];
    void *memory;
    if (scratch_measure(m, max_rows, &s->bytes, e) ||
        backend_alloc(m->backend, &memory, s->bytes, "activations of one step", e))
        return e->status;
    s->memory = memory;
    s->max_rows = max_rows;
    float *at = s->memory;
    scratch_cols(m, cols);
    for (int i = 0; i < SCRATCH_PARTS; i++) {
        *parts[i] = tensor_make(at, DTYPE_F32, max_rows, cols[i]);
        at += (size_t)max_rows * (size_t)cols[i];
    }
    if (!m->dims.gated) s->gated = s->wide;
    return STATUS_OK;
}

void scratch_close(struct scratch *s, const struct model *m) { backend_release(m->backend, s->memory); }

struct scratch scratch_rows(const struct scratch *s, int rows) {
    struct scratch part = *s;
    struct tensor *all[] = {&part.x, &part.normed, &part.branch, &part.qkv, &part.mixed, &part.wide, &part.gated};
    CHECK(rows <= s->max_rows);
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) *all[i] = tensor_rows(*all[i], 0, rows);
    part.memory = NULL;
    return part;
}
