/* retro/model/layer_heads.c: the heads of self attention between their product and the scores:
 * norms and rotation. See layer_private.h. */
#include "retro/model/layer_private.h"

/* Queries or keys of this rank in place. `column` is theirs of scratch.squares where a norm covers
 * the heads of all ranks. */
static void norm_heads(const struct pass *pass, struct tensor x, const struct norm_weights *weights,
                       int heads, int column) {
    const struct dims *dims = &pass->stack->dims;
    struct norm_args args = {.y = x,
                             .x = x,
                             .gamma = weights->gamma,
                             .beta = weights->beta,
                             .epsilon = dims->epsilon,
                             .kind = dims->norm};
    if (dims->qk_norm == QK_NORM_HEAD) {
        args.heads = heads;
    } else if (pass->model->comm->size > 1) {
        args.squares = tensor_cols(pass->scratch.squares, column, 1);
        args.whole = (column == 0 ? dims->heads : dims->kv_heads) * dims->head_dim;
    }
    backend_norm(pass->model->backend, &args);
}

/* The squares that norms over the heads of all ranks need. */
static void sum_squares(const struct pass *pass, struct tensor q, struct tensor k) {
    const struct model *model = pass->model;
    struct tensor squares = pass->scratch.squares;
    backend_square_rows(model->backend,
                        &(struct square_rows_args){.y = tensor_cols(squares, 0, 1), .x = q});
    backend_square_rows(model->backend,
                        &(struct square_rows_args){.y = tensor_cols(squares, 1, 1), .x = k});
    comm_allreduce_sum(model->comm, model->backend, squares);
}

void layer_norm_queries_keys(const struct pass *pass, const struct layer *layer, struct tensor q,
                             struct tensor k) {
    const struct stack *stack = pass->stack;
    if (stack->dims.qk_norm == QK_NORM_NONE || layer->spec.bare_heads) return;
    if (stack->dims.qk_norm == QK_NORM_WHOLE && pass->model->comm->size > 1)
        sum_squares(pass, q, k);
    const struct layer_heads heads = stack_heads(stack, &layer->spec);
    norm_heads(pass, q, &layer->norm_q, heads.queries.n, 0);
    if (!layer->spec.reuses) norm_heads(pass, k, &layer->norm_k, heads.keys.n, 1);
}

void layer_norm_values(const struct pass *pass, const struct layer *layer, struct tensor k,
                       struct tensor v) {
    const struct dims *dims = &pass->stack->dims;
    const struct layer_heads heads = stack_heads(pass->stack, &layer->spec);
    if (!dims->value_norm || layer->spec.reuses) return;
    backend_norm(pass->model->backend, &(struct norm_args){.y = v,
                                                           .x = layer->spec.values_are_keys ? k : v,
                                                           .epsilon = dims->epsilon,
                                                           .kind = dims->norm,
                                                           .heads = heads.keys.n});
}

void layer_rotate_heads(const struct pass *pass, const struct layer *layer, struct tensor x,
                        int heads, int grows_after) {
    const struct dims *dims = &pass->stack->dims;
    const struct layer_heads sizes = stack_heads(pass->stack, &layer->spec);
    bool far = dims->rope_long_after > 0 && pass->most_tokens > dims->rope_long_after;
    const struct rope_table *table =
        &dims->rope[far && layer->spec.frequencies == ROPE_GLOBAL ? ROPE_LONG
                                                                  : layer->spec.frequencies];
    for (int part = 0; part < max_int(1, dims->rope_parts); part++) {
        int first = part * dims->rotated;
        backend_rope(
            pass->model->backend,
            &(struct rope_args){
                .x = x,
                .positions = pass->positions,
                .inv_freq = table->inv_freq,
                .section_of = dims->rope_sections > 1 ? dims->rope_section + first / 2 : NULL,
                .sections = dims->rope_sections,
                .heads = heads,
                .head_dim = sizes.dim,
                .first = dims->latent.rank + first,
                .rotated = sizes.rotated,
                .interleaved = dims->rope_interleaved,
                .scale = table->scale,
                .growth = dims->query_growth,
                .grows_after = grows_after,
                .grows_ahead = dims->query_grows_ahead});
    }
}

void layer_rotate_queries_keys(const struct pass *pass, const struct layer *layer, struct tensor q,
                               struct tensor k) {
    const struct layer_heads sizes = stack_heads(pass->stack, &layer->spec);
    int heads = sizes.queries.n, kv_heads = sizes.keys.n,
        grows_after = layer->spec.grows ? pass->stack->dims.query_grows_after : 0;
    if (!layer->spec.rope) return;
    if (layer->spec.reuses) {
        layer_rotate_heads(pass, layer, q, heads, grows_after);
        return;
    }
    if (grows_after == 0) {
        struct tensor both = tensor_cols(pass->scratch.qkv, 0, (heads + kv_heads) * sizes.dim);
        layer_rotate_heads(pass, layer, both, heads + kv_heads, 0);
        return;
    }
    layer_rotate_heads(pass, layer, q, heads, grows_after);
    layer_rotate_heads(pass, layer, k, kv_heads, 0);
}
