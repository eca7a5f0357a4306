/* retro/model/tensor_shapes.c: see tensor_shapes.h. */
#include "retro/model/tensor_shapes.h"

static const struct place_shape layer_shapes[] = {
    {offsetof(struct layer, norm_in), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_cross), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_mlp), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_attention), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_out), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_router), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_experts), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_experts_out), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_dense_out), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, norm_q), KIND_NORM, EXTENT_NORM_Q, EXTENT_ONE, SPLIT_ROWS},
    {offsetof(struct layer, norm_k), KIND_NORM, EXTENT_NORM_K, EXTENT_ONE, SPLIT_ROWS},
    {offsetof(struct layer, qkv), KIND_PROJECTION, EXTENT_QKV, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, proj), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_HEADS, SPLIT_COLS},
    {offsetof(struct layer, cross_q), KIND_PROJECTION, EXTENT_HEADS, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, cross_kv), KIND_PROJECTION, EXTENT_CROSS_KV, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, cross_proj), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_HEADS, SPLIT_COLS},
    {offsetof(struct layer, fc1), KIND_PROJECTION, EXTENT_FC1, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, fc2), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_FFN, SPLIT_COLS},
    {offsetof(struct layer, keys), KIND_PROJECTION, EXTENT_KEYS, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, values), KIND_PROJECTION, EXTENT_KEYS, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, up), KIND_PROJECTION, EXTENT_FFN, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, clips), KIND_TABLE, EXTENT_ONE, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, input_gate), KIND_MATRIX, EXTENT_LAYER_INPUT, EXTENT_HIDDEN,
     SPLIT_COPY},
    {offsetof(struct layer, input_proj), KIND_MATRIX, EXTENT_HIDDEN, EXTENT_LAYER_INPUT,
     SPLIT_COPY},
    {offsetof(struct layer, norm_input), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, scale), KIND_TABLE, EXTENT_ONE, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, xielu_positive), KIND_TABLE, EXTENT_ONE, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, xielu_negative), KIND_TABLE, EXTENT_ONE, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, xielu_slope), KIND_TABLE, EXTENT_ONE, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, xielu_least), KIND_TABLE, EXTENT_ONE, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, router), KIND_PROJECTION, EXTENT_EXPERTS, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct layer, router_bias), KIND_TABLE, EXTENT_ONE, EXTENT_EXPERTS, SPLIT_COPY},
    {offsetof(struct layer, router_scale), KIND_TABLE, EXTENT_ONE, EXTENT_EXPERTS, SPLIT_COPY},
    {offsetof(struct layer, expert_fc1), KIND_EXPERTS, EXTENT_EXPERT_FC1, EXTENT_EXPERT_WIDTH,
     SPLIT_ROWS},
    {offsetof(struct layer, expert_fc2), KIND_EXPERTS, EXTENT_EXPERT_WIDTH, EXTENT_EXPERT_FFN,
     SPLIT_COLS},
    {offsetof(struct layer, experts_in), KIND_PROJECTION, EXTENT_EXPERT_WIDTH, EXTENT_HIDDEN,
     SPLIT_COPY},
    {offsetof(struct layer, experts_out), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_EXPERT_WIDTH,
     SPLIT_COPY},
    {offsetof(struct layer, sinks), KIND_TABLE, EXTENT_ONE, EXTENT_HEAD_COUNT, SPLIT_COLS},
    {offsetof(struct layer, latent_in), KIND_PROJECTION, EXTENT_LATENT_IN, EXTENT_HIDDEN,
     SPLIT_COPY},
    {offsetof(struct layer, norm_latent), KIND_NORM, EXTENT_LATENT_RANK, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct layer, latent_query_in), KIND_PROJECTION, EXTENT_LATENT_QUERY_RANK,
     EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct layer, norm_latent_query), KIND_NORM, EXTENT_LATENT_QUERY_RANK, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct layer, latent_query), KIND_PROJECTION, EXTENT_LATENT_QUERIES,
     EXTENT_LATENT_QUERY_IN, SPLIT_ROWS},
    {offsetof(struct layer, latent_keys), KIND_HEADS, EXTENT_LATENT_RANK, EXTENT_LATENT_PLAIN,
     SPLIT_COPY},
    {offsetof(struct layer, latent_values), KIND_HEADS, EXTENT_LATENT_VALUE, EXTENT_LATENT_RANK,
     SPLIT_COPY},
    {offsetof(struct layer, state_in), KIND_PROJECTION, EXTENT_STATE_IN, EXTENT_HIDDEN, SPLIT_ROWS},
    {offsetof(struct layer, state_gates), KIND_PROJECTION, EXTENT_STATE_GATES, EXTENT_HIDDEN,
     SPLIT_ROWS},
    {offsetof(struct layer, state_out), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_STATE_VALUES,
     SPLIT_COLS},
    {offsetof(struct layer, state_filter), KIND_TABLE, EXTENT_STATE_CHANNELS, EXTENT_STATE_KERNEL,
     SPLIT_ROWS},
    {offsetof(struct layer, state_filter_bias), KIND_TABLE, EXTENT_STATE_CHANNELS, EXTENT_ONE,
     SPLIT_ROWS},
    {offsetof(struct layer, state_rate), KIND_TABLE, EXTENT_ONE, EXTENT_STATE_HEADS, SPLIT_COLS},
    {offsetof(struct layer, state_skip), KIND_TABLE, EXTENT_ONE, EXTENT_STATE_HEADS, SPLIT_COLS},
    {offsetof(struct layer, state_bias), KIND_TABLE, EXTENT_ONE, EXTENT_STATE_HEADS, SPLIT_COLS},
    {offsetof(struct layer, state_norm), KIND_NORM, EXTENT_STATE_NORM, EXTENT_ONE, SPLIT_ROWS},
    {offsetof(struct layer, shared_gate), KIND_MATRIX, EXTENT_ONE, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct layer, shared_fc1), KIND_PROJECTION, EXTENT_SHARED_FC1, EXTENT_HIDDEN,
     SPLIT_ROWS},
    {offsetof(struct layer, shared_fc2), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_SHARED_FFN,
     SPLIT_COLS},
};

/* The word table is whole on every rank, because it embeds; the output matrix is split by rows. */
static const struct place_shape outer_shapes[] = {
    {offsetof(struct model, embedding.word), KIND_MATRIX, EXTENT_VOCAB, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, layer_inputs.words), KIND_MATRIX, EXTENT_INPUT_VOCAB,
     EXTENT_LAYER_INPUTS, SPLIT_COPY},
    {offsetof(struct model, layer_inputs.projection), KIND_MATRIX, EXTENT_LAYER_INPUTS,
     EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, layer_inputs.norm), KIND_NORM, EXTENT_LAYER_INPUT, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct model, embedding.position), KIND_TABLE, EXTENT_POSITIONS, EXTENT_HIDDEN,
     SPLIT_COPY},
    {offsetof(struct model, embedding.type), KIND_TABLE, EXTENT_TYPES, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, embedding.norm), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct model, stacks[STACK_DECODER].final_norm), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct model, stacks[STACK_ENCODER].final_norm), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct model, stacks[STACK_TOWER].final_norm), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct model, tower.patch), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_PATCH, SPLIT_COPY},
    {offsetof(struct model, tower.mean), KIND_TABLE, EXTENT_CHANNELS, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct model, tower.deviation), KIND_TABLE, EXTENT_CHANNELS, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct model, tower.class_token), KIND_TABLE, EXTENT_CLASS_TOKENS, EXTENT_HIDDEN,
     SPLIT_COPY},
    {offsetof(struct model, tower.position), KIND_TABLE, EXTENT_PATCH_POSITIONS, EXTENT_HIDDEN,
     SPLIT_COPY},
    {offsetof(struct model, tower.norm_before), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct model, tower.norm_head), KIND_NORM, EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct model, tower.probe), KIND_TABLE, EXTENT_ONE, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, tower.probe_qkv), KIND_PROJECTION, EXTENT_QKV, EXTENT_HIDDEN,
     SPLIT_ROWS},
    {offsetof(struct model, tower.probe_proj), KIND_PROJECTION, EXTENT_HIDDEN, EXTENT_HEADS,
     SPLIT_COLS},
    {offsetof(struct model, tower.shift), KIND_TABLE, EXTENT_ONE, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, tower.stretch), KIND_TABLE, EXTENT_ONE, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, newline), KIND_TABLE, EXTENT_ONE, EXTENT_PROJECTOR_OUT, SPLIT_COPY},
    {offsetof(struct model, joint), KIND_PROJECTION, EXTENT_JOINT, EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, projector.norm), KIND_NORM, EXTENT_PROJECTOR_NORM, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct model, projector.merge), KIND_PROJECTION, EXTENT_PROJECTOR_MERGED,
     EXTENT_PROJECTOR_IN, SPLIT_COPY},
    {offsetof(struct model, projector.fc1), KIND_PROJECTION, EXTENT_PROJECTOR_FC1,
     EXTENT_PROJECTOR_MERGED, SPLIT_COPY},
    {offsetof(struct model, projector.fc2), KIND_PROJECTION, EXTENT_PROJECTOR_OUT,
     EXTENT_PROJECTOR_FFN, SPLIT_COPY},
    {offsetof(struct model, deepstack[0].norm), KIND_NORM, EXTENT_PROJECTOR_NORM, EXTENT_ONE,
     SPLIT_COPY},
    {offsetof(struct model, deepstack[0].fc1), KIND_PROJECTION, EXTENT_PROJECTOR_FC1,
     EXTENT_PROJECTOR_MERGED, SPLIT_COPY},
    {offsetof(struct model, deepstack[0].fc2), KIND_PROJECTION, EXTENT_PROJECTOR_OUT,
     EXTENT_PROJECTOR_FFN, SPLIT_COPY},
    {offsetof(struct model, stacks[STACK_DECODER].relative), KIND_RELATIVE, EXTENT_BUCKETS,
     EXTENT_HEAD_COUNT, SPLIT_COLS},
    {offsetof(struct model, stacks[STACK_ENCODER].relative), KIND_RELATIVE, EXTENT_BUCKETS,
     EXTENT_HEAD_COUNT, SPLIT_COLS},
    {offsetof(struct model, stacks[STACK_ENCODER].distances), KIND_TABLE, EXTENT_DISTANCES,
     EXTENT_HIDDEN, SPLIT_COPY},
    {offsetof(struct model, stacks[STACK_ENCODER].norm_distances), KIND_NORM, EXTENT_HIDDEN,
     EXTENT_ONE, SPLIT_COPY},
    {offsetof(struct model, output), KIND_PROJECTION, EXTENT_VOCAB, EXTENT_HIDDEN, SPLIT_ROWS},
};

static const struct place_shape *find_shape(const struct place_shape *shapes, size_t n,
                                            size_t place) {
    for (size_t i = 0; i < n; i++)
        if (shapes[i].place == place) return &shapes[i];
    CHECK(!"a family's row names a place that exists");
}

bool layer_place_is_clip(size_t place) {
    size_t first = offsetof(struct layer, clips);
    return place >= first && place < first + CLIP_COUNT * sizeof(struct clip_bounds);
}

/* All bounds have the shape of the first. */
const struct place_shape *layer_shape(size_t place) {
    if (layer_place_is_clip(place)) place = offsetof(struct layer, clips);
    return find_shape(layer_shapes, ARRAY_COUNT(layer_shapes), place);
}

const struct place_shape *outer_shape(size_t place) {
    return find_shape(outer_shapes, ARRAY_COUNT(outer_shapes), place);
}

/* The projector's first product: its only one has the rows of its output. */
static int projector_columns(const struct projector_spec *spec) {
    if (spec->ffn == 0) return spec->out;
    return spec->gated ? 2 * spec->ffn : spec->ffn;
}

/* Columns of the norm before the first product, and of the rows that fc1 reads. */
static int projector_normed(const struct model_spec *spec) {
    return spec->projector.normed_apart ? spec->stacks[STACK_TOWER].hidden : spec->projector.in;
}

static int projector_merged(const struct projector_spec *spec) {
    return spec->merged > 0 ? spec->merged : spec->in;
}

static int patch_positions(const struct tower_spec *tower) {
    return tower->table_h * tower->table_w + (tower->class_positions ? tower->class_tokens : 0);
}

/* The blocks of the rows of places with states (struct layer), in heads. */
enum state_block { BLOCK_KEYS, BLOCK_VALUES, BLOCK_HEADS };
struct state_blocks {
    enum state_block blocks[SHARE_BLOCKS];
    int n;
};

static struct state_blocks list_state_blocks(const struct state_dims *state, enum extent extent) {
    static const struct state_blocks
        delta_in = {{BLOCK_KEYS, BLOCK_KEYS, BLOCK_VALUES, BLOCK_VALUES}, 4},
        delta_channels = {{BLOCK_KEYS, BLOCK_KEYS, BLOCK_VALUES}, 3},
        delta_gates = {{BLOCK_HEADS, BLOCK_HEADS}, 2},
        space_in = {{BLOCK_VALUES, BLOCK_VALUES, BLOCK_KEYS, BLOCK_KEYS, BLOCK_HEADS}, 5},
        space_channels = {{BLOCK_VALUES, BLOCK_KEYS, BLOCK_KEYS}, 3},
        three = {{BLOCK_VALUES, BLOCK_VALUES, BLOCK_VALUES}, 3}, values = {{BLOCK_VALUES}, 1},
        heads = {{BLOCK_HEADS}, 1};
    bool delta = state->mixer == MIXER_DELTA, space = state->mixer == MIXER_SPACE;
    switch (extent) {
        case EXTENT_STATE_IN: return delta ? delta_in : space ? space_in : three;
        case EXTENT_STATE_CHANNELS: return delta ? delta_channels : space ? space_channels : values;
        case EXTENT_STATE_GATES: return delta_gates;
        case EXTENT_STATE_HEADS: return heads;
        default: return values;
    }
}

/* Rows of one block, of so many key and value heads. */
static int block_size(const struct state_dims *state, enum state_block block, int keys, int heads) {
    switch (block) {
        case BLOCK_KEYS: return keys * state->key_dim;
        case BLOCK_VALUES: return heads * state->value_dim;
        default: return heads;
    }
}

static int count_state_blocks(const struct state_dims *state, enum extent extent,
                              int sizes[SHARE_BLOCKS]) {
    const struct state_blocks blocks = list_state_blocks(state, extent);
    for (int i = 0; i < blocks.n; i++)
        sizes[i] = block_size(state, blocks.blocks[i], state->key_heads, state->value_heads);
    return blocks.n;
}

static int state_size(const struct state_dims *state, enum extent extent) {
    int sizes[SHARE_BLOCKS], size = 0;
    if (extent == EXTENT_STATE_KERNEL) return state->kernel;
    if (extent == EXTENT_STATE_NORM && state->mixer == MIXER_DELTA) return state->value_dim;
    int n = count_state_blocks(state, extent, sizes);
    for (int i = 0; i < n; i++) size += sizes[i];
    return size;
}

static int latent_size(const struct dims *dims, enum extent extent) {
    const struct latent_dims *latent = &dims->latent;
    switch (extent) {
        case EXTENT_LATENT_IN: return latent->rank + latent->rope;
        case EXTENT_LATENT_RANK: return latent->rank;
        case EXTENT_LATENT_QUERY_RANK: return latent->query_rank;
        case EXTENT_LATENT_QUERY_IN:
            return latent->query_rank > 0 ? latent->query_rank : dims->hidden;
        case EXTENT_LATENT_QUERIES: return dims->heads * (latent->plain + latent->rope);
        case EXTENT_LATENT_PLAIN: return latent->plain;
        case EXTENT_LATENT_VALUE: return latent->value;
        default: return state_size(&dims->state, extent);
    }
}

static int extent_size(const struct model *model, const struct dims *dims, enum extent extent) {
    switch (extent) {
        case EXTENT_ONE: return 1;
        case EXTENT_HIDDEN: return dims->hidden;
        case EXTENT_QKV:
            return (dims->heads + 2 * dims->kv_heads) * dims->head_dim +
                   dims->heads * dims->head_gate;
        case EXTENT_NORM_Q:
            return dims->qk_norm == QK_NORM_HEAD ? dims->head_dim : dims->heads * dims->head_dim;
        case EXTENT_NORM_K:
            return dims->qk_norm == QK_NORM_HEAD ? dims->head_dim : dims->kv_heads * dims->head_dim;
        case EXTENT_KEYS: return dims->kv_heads * dims->head_dim;
        case EXTENT_HEADS: return dims->heads * dims_value(dims);
        case EXTENT_CROSS_KV: return 2 * dims->heads * dims->head_dim;
        case EXTENT_FC1: return dims->gated ? 2 * dims->ffn : dims->ffn;
        case EXTENT_FFN: return dims->ffn;
        case EXTENT_EXPERTS: return dims->experts;
        case EXTENT_EXPERT_FC1: return (dims->gated ? 2 : 1) * dims->expert_ffn;
        case EXTENT_EXPERT_FFN: return dims->expert_ffn;
        case EXTENT_EXPERT_WIDTH: return dims_expert_width(dims);
        case EXTENT_SHARED_FC1: return (dims->gated ? 2 : 1) * dims->shared_ffn;
        case EXTENT_SHARED_FFN: return dims->shared_ffn;
        case EXTENT_VOCAB: return model->spec.padded_vocab;
        case EXTENT_POSITIONS: return model->spec.max_positions;
        case EXTENT_TYPES: return model->spec.type_vocab;
        case EXTENT_BUCKETS: return dims->buckets;
        case EXTENT_DISTANCES: return 2 * dims->distances.span;
        case EXTENT_HEAD_COUNT: return dims->heads;
        case EXTENT_CHANNELS: return 3;
        case EXTENT_CLASS_TOKENS: return model->spec.tower.class_tokens;
        case EXTENT_PATCH_POSITIONS: return patch_positions(&model->spec.tower);
        case EXTENT_PATCH: return tower_spec_values(&model->spec.tower);
        case EXTENT_PROJECTOR_IN: return model->spec.projector.in;
        case EXTENT_PROJECTOR_NORM: return projector_normed(&model->spec);
        case EXTENT_PROJECTOR_MERGED: return projector_merged(&model->spec.projector);
        case EXTENT_PROJECTOR_FC1: return projector_columns(&model->spec.projector);
        case EXTENT_PROJECTOR_FFN: return model->spec.projector.ffn;
        case EXTENT_PROJECTOR_OUT: return model->spec.projector.out;
        case EXTENT_JOINT: return model->spec.joint;
        case EXTENT_LAYER_INPUT: return dims->layer_input;
        case EXTENT_LAYER_INPUTS: return dims->n_layers * dims->layer_input;
        case EXTENT_INPUT_VOCAB: return model->spec.input_vocab;
        default: return latent_size(dims, extent);
    }
}

static int count_blocks(const struct model *model, const struct dims *dims, enum extent out,
                        int blocks[SHARE_BLOCKS]) {
    int q = dims->heads * dims->head_dim, k = dims->kv_heads * dims->head_dim;
    switch (out) {
        case EXTENT_QKV:
            blocks[0] = q;
            blocks[1] = blocks[2] = k;
            blocks[3] = dims->heads * dims->head_gate;
            return dims->head_gate > 0 ? 4 : 3;
        case EXTENT_STATE_IN:
        case EXTENT_STATE_GATES:
        case EXTENT_STATE_CHANNELS: return count_state_blocks(&dims->state, out, blocks);
        case EXTENT_CROSS_KV: blocks[0] = blocks[1] = q; return 2;
        case EXTENT_FC1: blocks[0] = blocks[1] = dims->ffn; return dims->gated ? 2 : 1;
        case EXTENT_EXPERT_FC1:
            blocks[0] = blocks[1] = dims->expert_ffn;
            return dims->gated ? 2 : 1;
        case EXTENT_SHARED_FC1:
            blocks[0] = blocks[1] = dims->shared_ffn;
            return dims->gated ? 2 : 1;
        case EXTENT_PROJECTOR_FC1:
            blocks[0] = extent_size(model, dims, out);
            if (model->spec.projector.gated) blocks[0] = blocks[1] = model->spec.projector.ffn;
            return model->spec.projector.gated ? 2 : 1;
        default: blocks[0] = extent_size(model, dims, out); return 1;
    }
}

/* A norm of one head serves them all. */
static bool is_shared(const struct dims *dims, enum extent extent) {
    if (extent == EXTENT_STATE_NORM) return dims->state.mixer == MIXER_DELTA;
    return (extent == EXTENT_NORM_Q || extent == EXTENT_NORM_K) && dims->qk_norm == QK_NORM_HEAD;
}

static struct portion portion_times(struct portion portion, int unit) {
    return (struct portion){portion.first * unit, portion.n * unit};
}

static struct portion find_state_portion(const struct stack *stack, enum extent extent, int i) {
    const struct state_dims *state = &stack->dims.state;
    enum state_block block = list_state_blocks(state, extent).blocks[i];
    struct portion heads = block == BLOCK_KEYS ? stack->state_keys : stack->state_heads;
    return portion_times(heads, block_size(state, block, 1, 1));
}

/* This rank's rows of a block, or its columns. */
static struct portion find_portion(const struct model *model, const struct stack *stack,
                                   enum extent extent, int block) {
    switch (extent) {
        case EXTENT_QKV:
            if (block == 3) return portion_times(stack->heads, stack->dims.head_gate);
            return portion_times(block == 0 ? stack->heads : stack->kv_heads, stack->dims.head_dim);
        case EXTENT_STATE_IN:
        case EXTENT_STATE_GATES:
        case EXTENT_STATE_VALUES:
        case EXTENT_STATE_CHANNELS:
        case EXTENT_STATE_HEADS:
        case EXTENT_STATE_NORM: return find_state_portion(stack, extent, block);
        case EXTENT_KEYS:
        case EXTENT_NORM_K: return portion_times(stack->kv_heads, stack->dims.head_dim);
        case EXTENT_NORM_Q:
        case EXTENT_CROSS_KV: return portion_times(stack->heads, stack->dims.head_dim);
        case EXTENT_HEADS: return portion_times(stack->heads, dims_value(&stack->dims));
        case EXTENT_LATENT_QUERIES:
            return portion_times(stack->heads, stack->dims.latent.plain + stack->dims.latent.rope);
        case EXTENT_HEAD_COUNT: return stack->heads;
        case EXTENT_FC1:
        case EXTENT_FFN: return stack->ffn;
        case EXTENT_EXPERT_FC1:
        case EXTENT_EXPERT_FFN: return stack->expert_ffn;
        case EXTENT_SHARED_FC1:
        case EXTENT_SHARED_FFN: return stack->shared_ffn;
        case EXTENT_VOCAB: return model->vocab;
        default: CHECK(!"an extent that is not split");
    }
}

/* Key/value heads, as the last block of keys and values counts them. */
static int units_of(const struct dims *dims, const struct share *share) {
    int last = share->n_blocks > 3 ? share->n_blocks - 2 : share->n_blocks - 1;
    return dims->head_dim > 0 ? share->blocks[last] / dims->head_dim : 0;
}

/* The stack as if all of its layers had the shape of this one. */
static struct stack shape_layer(const struct stack *stack, const struct layer_spec *layer) {
    struct stack shaped = *stack;
    struct layer_heads heads = stack_heads(stack, layer);
    if (layer->wide_heads) shaped.dims.kv_heads = stack->dims.wide_kv_heads;
    if (layer->wide_mlp) shaped.dims.ffn = stack->dims.wide_ffn;
    shaped.dims.head_dim = heads.dim;
    shaped.heads = heads.queries;
    shaped.kv_heads = heads.keys;
    shaped.ffn = stack_ffn(stack, layer);
    return shaped;
}

/* Blocks of the first product of self attention, or of the MLP, that the layer has not. */
static void drop_blocks(struct share *share, const struct layer_spec *layer, bool attends) {
    int n = share->n_blocks;
    if (layer->clipped || (attends && layer->reuses))
        n = 1;
    else if (attends && layer->values_are_keys)
        n = 2;
    while (share->n_blocks > n) {
        share->n_blocks--;
        share->whole_rows -= share->blocks[share->n_blocks];
    }
}

struct share share_make(const struct model *model, enum stack_id stack,
                        const struct layer_spec *layer, const struct place_shape *shape) {
    const struct stack *whole = &model->stacks[stack];
    const struct stack shaped = layer ? shape_layer(whole, layer) : *whole, *of = &shaped;
    const struct dims *dims = &of->dims;
    struct share share = {.whole_rows = extent_size(model, dims, shape->out)};
    share.n_blocks = count_blocks(model, dims, shape->out, share.blocks);
    share.whole_cols = share.cols = extent_size(model, dims, shape->in);
    bool attends = shape->out == EXTENT_QKV;
    if (layer && (attends || shape->out == EXTENT_FC1)) drop_blocks(&share, layer, attends);
    bool delta = shape->out == EXTENT_STATE_IN || shape->out == EXTENT_STATE_GATES;
    share.head = dims->head_dim;
    share.units = delta ? dims->state.key_heads : units_of(dims, &share);

    if (shape->split == SPLIT_COLS) {
        struct portion mine = find_portion(model, of, shape->in, 0);
        share.cols = mine.n;
        share.first_col = mine.first;
    }
    for (int b = 0; b < share.n_blocks; b++) {
        bool split = shape->split == SPLIT_ROWS && !is_shared(dims, shape->out);
        share.mine[b] =
            split ? find_portion(model, of, shape->out, b) : (struct portion){0, share.blocks[b]};
        share.rows += share.mine[b].n;
    }
    return share;
}

int share_row(const struct share *share, int i) {
    int kept = 0;
    for (int b = 0; b < share->n_blocks; b++) {
        int at = i - share->mine[b].first;
        if (i < share->blocks[b]) return at >= 0 && at < share->mine[b].n ? kept + at : -1;
        i -= share->blocks[b];
        kept += share->mine[b].n;
    }
    return -1;
}
