/* retro/model/layer_clips.c: products whose rows are cut off at bounds, before and behind them. See
 * layer_private.h. */
#include "retro/model/layer_private.h"

static void clip_rows(const struct pass *pass, struct tensor y, struct tensor x,
                      struct tensor least, struct tensor most) {
    backend_clamp(pass->model->backend,
                  &(struct clamp_args){.y = y, .x = x, .least = least.data, .most = most.data});
}

/* y = clip(clip(x) W^T), by way of scratch.branch. */
static void project_clipped(const struct pass *pass, struct tensor y, struct tensor x,
                            const struct projection *projection, const struct clip_bounds *bounds) {
    struct tensor cut = tensor_cols(pass->scratch.branch, 0, x.cols);
    clip_rows(pass, cut, x, bounds->in_least, bounds->in_most);
    layer_project_rows(pass->model, y, cut, projection, ACTIVATION_NONE);
    clip_rows(pass, y, y, bounds->out_least, bounds->out_most);
}

void layer_project_clipped_heads(const struct pass *pass, const struct layer *layer,
                                 struct tensor q, struct tensor k, struct tensor v,
                                 struct tensor input) {
    project_clipped(pass, q, input, &layer->qkv, &layer->clips[CLIP_Q]);
    project_clipped(pass, k, input, &layer->keys, &layer->clips[CLIP_K]);
    project_clipped(pass, v, input, &layer->values, &layer->clips[CLIP_V]);
}

void layer_clip_row_parallel(const struct pass *pass, struct tensor x,
                             const struct projection *projection, const struct clip_bounds *bounds,
                             const struct norm_weights *after) {
    const struct model *model = pass->model;
    struct tensor branch = pass->scratch.branch;
    clip_rows(pass, x, x, bounds->in_least, bounds->in_most);
    layer_project_rows(model, branch, x, projection, ACTIVATION_NONE);
    comm_allreduce_sum(model->comm, model->backend, branch);
    clip_rows(pass, branch, branch, bounds->out_least, bounds->out_most);
    if (after->gamma) stack_norm(model, pass->stack, branch, branch, after);
}

void layer_clipped_mlp(const struct pass *pass, const struct layer *layer, struct tensor input,
                       int ffn) {
    struct tensor wide = tensor_cols(pass->scratch.wide, 0, 2 * ffn),
                  gated = tensor_cols(pass->scratch.gated, 0, ffn);
    project_clipped(pass, tensor_cols(wide, 0, ffn), input, &layer->fc1, &layer->clips[CLIP_GATE]);
    project_clipped(pass, tensor_cols(wide, ffn, ffn), input, &layer->up, &layer->clips[CLIP_UP]);
    backend_glu(pass->model->backend,
                &(struct glu_args){
                    .y = gated, .x = wide, .gating = {.activation = pass->stack->dims.activation}});
    layer_clip_row_parallel(pass, gated, &layer->fc2, &layer->clips[CLIP_FC2], &layer->norm_out);
}
