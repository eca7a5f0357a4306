/* retro/model/layer_private.h: what the files that compute a layer share. */
#pragma once

#include "retro/model/layer.h"

/* y = activation(x W^T + bias) */
void layer_project_rows(const struct model *model, struct tensor y, struct tensor x,
                        const struct projection *projection, enum activation activation);
/* branch = x W^T summed over ranks. Its bias waits until the branch is added, unless the norm
 * `after` the branch is there: then rank 0 adds it. */
void layer_project_row_parallel(const struct pass *pass, struct tensor x,
                                const struct projection *projection,
                                const struct norm_weights *after);
/* Queries and keys of this rank in place, where the layer norms them; keys of layers that have
 * some.
 */
void layer_norm_queries_keys(const struct pass *pass, const struct layer *layer, struct tensor q,
                             struct tensor k);
/* Values that are keys are taken from what keys are made of, so before keys are normed. */
void layer_norm_values(const struct pass *pass, const struct layer *layer, struct tensor k,
                       struct tensor v);
/* Turns queries and keys, which lie side by side, in place; at once where nothing tells them apart.
 */
void layer_rotate_queries_keys(const struct pass *pass, const struct layer *layer, struct tensor q,
                               struct tensor k);
/* Turns heads of dims.head_dim in place; `grows_after` is 0 for keys. */
void layer_rotate_heads(const struct pass *pass, const struct layer *layer, struct tensor x,
                        int heads, int grows_after);
/* New keys and values are written to the cache first, then everything is read from there, so a row
 * sees the same (rounded) keys whichever step brought them. `scales` are those of int8 rows. */
void layer_store_rows(const struct pass *pass, struct tensor to, struct tensor scales,
                      struct tensor x);
/* Self attention of a rank's queries to scratch.mixed, over keys that are values too. */
struct attention_args layer_attention_args(const struct pass *pass, const struct layer *layer,
                                           struct tensor q, struct tensor k);
/* Whether products of attention are in f32: queries and weights of a model in bf16 or less are no
 * more exact than bf16. */
static inline bool layer_attends_exactly(const struct model *model) {
    return model->info.dtype == DTYPE_F32 || model->info.dtype == DTYPE_F16;
}
/* Attention, and what some rows give to groups of keys where that is asked. */
void layer_attend(const struct pass *pass, const struct attention_args *args,
                  const struct pass_shares *told);

/* y = x W^T, a rank's part of a sum; rank 0 adds the bias. */
void layer_project_part(const struct model *model, struct tensor y, struct tensor x,
                        const struct projection *projection);
/* y = experts(x), and the shared expert's rows with them; where dims.expert_width says so
 * y = experts_out(experts(experts_in(x))) + those rows (layer_experts.c). A rank has its columns'
 * part of the sum. */
void layer_run_experts(const struct pass *pass, const struct layer *layer,
                       const struct experts_args *args);

/* branch = norm_attention(SelfAttention(input)) over latents (layer_latent.c). A prompt's rows are
 * computed as a step's, so that the two agree in every bit. */
void layer_latent_attention(const struct pass *pass, const struct layer *layer,
                            struct tensor input);

/* Of layers whose products are clipped (layer_clips.c): queries, keys and values; branch =
 * after(clip(clip(x) W^T)), where x is cut off in place; and branch = norm_out(MLP(input)) of a
 * gated MLP. `input` is not in scratch.branch. */
void layer_project_clipped_heads(const struct pass *pass, const struct layer *layer,
                                 struct tensor q, struct tensor k, struct tensor v,
                                 struct tensor input);
void layer_clip_row_parallel(const struct pass *pass, struct tensor x,
                             const struct projection *projection, const struct clip_bounds *bounds,
                             const struct norm_weights *after);
void layer_clipped_mlp(const struct pass *pass, const struct layer *layer, struct tensor input,
                       int ffn);
