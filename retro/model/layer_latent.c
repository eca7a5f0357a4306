/* retro/model/layer_latent.c: attention over latents (struct latent_dims). Queries are taken to the
 * latents' space, where keys and values are one row for all heads, and what they find back to
 * values (DeepSeek-V2, arXiv 2405.04434, 2.1.2): a step reads the latents and no more. */
#include "retro/model/layer_private.h"

/* In place, each row to the length that the products behind it are made for. */
static void norm_latents(const struct pass *pass, struct tensor x,
                         const struct norm_weights *weights) {
    const struct dims *dims = &pass->stack->dims;
    backend_norm(pass->model->backend, &(struct norm_args){.y = x,
                                                           .x = x,
                                                           .gamma = weights->gamma,
                                                           .beta = weights->beta,
                                                           .epsilon = dims->latent.epsilon,
                                                           .kind = dims->norm});
}

/* The columns that do not turn grow with those that do: as pairs whose angle is none. */
static void grow_plain_columns(const struct pass *pass, struct tensor q, int heads) {
    static const float still[ATTENTION_MAX_HEAD / 2];
    const struct dims *dims = &pass->stack->dims;
    backend_rope(pass->model->backend, &(struct rope_args){.x = q,
                                                           .positions = pass->positions,
                                                           .inv_freq = still,
                                                           .heads = heads,
                                                           .head_dim = dims->head_dim,
                                                           .rotated = dims->latent.rank,
                                                           .growth = dims->query_growth,
                                                           .grows_after = dims->query_grows_after,
                                                           .grows_ahead = dims->query_grows_ahead});
}

/* Queries that meet latents: [rows, H (rank + rope)], rotated. */
static struct tensor latent_queries(const struct pass *pass, const struct layer *layer,
                                    struct tensor input) {
    const struct model *model = pass->model;
    const struct latent_dims *latent = &pass->stack->dims.latent;
    const struct latent_columns at = stack_latent_columns(pass->stack);
    int heads = pass->stack->heads.n;
    struct tensor all = pass->scratch.qkv,
                  own = tensor_cols(all, at.wide, heads * (latent->plain + latent->rope)),
                  q = tensor_cols(all, at.queries, at.row - at.queries);
    if (latent->query_rank > 0) {
        struct tensor rows = tensor_cols(all, 0, latent->query_rank);
        layer_project_rows(model, rows, input, &layer->latent_query_in, ACTIVATION_NONE);
        norm_latents(pass, rows, &layer->norm_latent_query);
        input = rows;
    }
    layer_project_rows(model, own, input, &layer->latent_query, ACTIVATION_NONE);
    backend_linear_heads(
        model->backend,
        &(struct linear_heads_args){.y = q,
                                    .x = own,
                                    .weights = layer->latent_keys + pass->stack->heads.first,
                                    .heads = heads,
                                    .kept = latent->rope});
    if (layer->spec.rope)
        layer_rotate_heads(pass, layer, q, heads, pass->stack->dims.query_grows_after);
    if (pass->stack->dims.query_grows_after > 0) grow_plain_columns(pass, q, heads);
    return q;
}

void layer_latent_attention(const struct pass *pass, const struct layer *layer,
                            struct tensor input) {
    const struct model *model = pass->model;
    const struct stack *stack = pass->stack;
    const struct latent_columns at = stack_latent_columns(stack);
    int heads = stack->heads.n, h = stack->dims.head_dim;
    struct tensor q = latent_queries(pass, layer, input),
                  row = tensor_cols(pass->scratch.qkv, at.row, h),
                  values =
                      tensor_cols(pass->scratch.qkv, at.wide, heads * stack->dims.latent.value);
    layer_project_rows(model, row, input, &layer->latent_in, ACTIVATION_NONE);
    norm_latents(pass, tensor_cols(row, 0, stack->dims.latent.rank), &layer->norm_latent);
    if (layer->spec.rope) layer_rotate_heads(pass, layer, row, 1, 0);

    bool cached = pass->cache.rows != NULL;
    if (cached) layer_store_rows(pass, pass->cache.k, pass->cache.k_scales, row);
    struct attention_args attention =
        layer_attention_args(pass, layer, q, cached ? pass->cache.k : row);
    layer_attend(pass, &attention, pass->self_shares);
    backend_linear_heads(model->backend, &(struct linear_heads_args){
                                             .y = values,
                                             .x = attention.out,
                                             .weights = layer->latent_values + stack->heads.first,
                                             .heads = heads});
    layer_project_row_parallel(pass, values, &layer->proj, &layer->norm_attention);
}
