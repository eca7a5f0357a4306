/* retro/model/model_private.h: a loaded model, for the files of retro/ that compute with it. */
#pragma once

#include "retro/model/model.h"
#include "retro/model/spec.h"

/* One rank's part of a row of things: n of them from `first` on. */
struct portion {
    int first, n;
};

/* Layers of one shape that run one after the other. */
struct stack {
    struct dims dims;
    struct portion heads, kv_heads, ffn;                /* this rank's */
    struct portion wide_heads, wide_kv_heads, wide_ffn; /* of layers that are wide */
    struct portion state_keys, state_heads; /* its key and value heads of mixers with states */
    struct portion expert_ffn, shared_ffn;  /* its columns of each expert, and of the shared one */
    struct portion kept;  /* the layers of this rank's stage; of an encoder all or none */
    struct layer *layers; /* [dims.n_layers] */
    int prefix;           /* the spelling of the layers' tensors: of tensor_rows.prefixes */
    struct norm_weights final_norm; /* gamma NULL without */
    struct tensor relative; /* f32 [local H, 2 max_distance + 1], a bias by key minus query; data
                               NULL without */
    /* Of dims.distances: the table, f32 [2 span, d], and its norm, gamma NULL without; and the row
     * of each distance from -farthest to farthest, on the device. Data NULL without. */
    struct tensor distances;
    struct norm_weights norm_distances;
    int32_t *distance_columns;
};

/* Rows of token ids become rows of d; all stacks that read ids share it. */
struct embedding {
    struct weight word;           /* [V, d], whole on every rank */
    struct tensor position, type; /* f32 tables; data NULL without */
    struct norm_weights norm;     /* gamma NULL without */
};

/* Tables of inputs that a row's token gives each layer, of dims.layer_input columns, which are
 * (norm(projection x / sqrt(d)) + sqrt(columns) words[token]) / sqrt(2), where x are the embedded
 * rows, and the norm is of one layer's columns; without `words`, norm(projection x / sqrt(d)). */
struct layer_inputs {
    struct weight words; /* [input_vocab, layers columns], whole on every rank; data NULL without */
    struct weight projection; /* [layers columns, d] */
    struct norm_weights norm;
};

/* The weights of a tower beside its layers (spec.h). */
struct tower_weights {
    struct projection patch; /* [d, 3 P P] */
    struct tensor mean,
        deviation;             /* f32 [3, 1], of pixels; without data where they come normalised */
    struct tensor class_token; /* f32 [class tokens, d] */
    struct tensor
        position; /* f32, of class tokens where these have positions, then of the table's patches */
    struct norm_weights norm_before, norm_head;
    struct tensor shift, stretch; /* f32 [1, d], of averaged rows: (x - shift) stretch; without data
                                     where these stay as they are */
    struct tensor probe; /* f32 [1, d], and its attention over a picture's rows; without data where
                            there is none */
    struct projection probe_qkv, probe_proj;
};
struct projector_weights {
    struct norm_weights norm;
    struct projection merge;    /* before fc1; without data where projector_spec.merged is 0 */
    struct projection fc1, fc2; /* fc2's data NULL where there is one product */
};

struct model {
    struct model_info info;
    struct model_spec spec;
    const struct family *family;
    struct backend *backend;
    struct comm *comm;
    struct stack stacks[STACK_COUNT];
    struct embedding embedding;
    struct layer_inputs layer_inputs; /* without data where dims.layer_input is 0 */
    struct tower_weights tower;
    struct projector_weights projector;
    struct projector_weights deepstack[MAX_DEEPSTACK]; /* of the first tower.n_deepstack */
    struct tensor
        newline; /* f32 [1, projector.out], the row behind a line of tiles; data NULL without */
    struct projection joint; /* [joint, d] of the pooled row of a text; data NULL without */
    struct projection
        output; /* [local V, d]; the weight's data is word's when tied on one rank, NULL without */
    struct portion vocab; /* this rank's logit columns */
    /* Pipeline stages of Retro: the neighbour encoder is on the stage of the first retro layer;
     * stages from there to that of the last one keep neighbours' keys and values. Both are -1
     * without retro layers. */
    int encodes, reads;
    struct weights *mapped; /* owns the data of all matrices when they lie in model.packed */
    bool fetches_experts;   /* then it owns those of experts alone: see model_options */
    /* As struct layer's, of the outer rows: of each part that is another family's, then of the
     * model's own. */
    uint64_t absent[STACK_COUNT + 1];
    bool rows_only; /* no output matrix */
    bool opened;    /* its layers exist: there may be weights to release */
};

/* The part of the family whose rows name a stack's tensors. */
static inline struct model_part model_part_of(const struct model *model, enum stack_id id) {
    struct model_part part = model->spec.parts[id];
    return part.family ? part : (struct model_part){.family = model->family, .roots = {""}};
}
/* Layers [first, first + n) of the stack that keep states. */
static inline int stack_count_states(const struct stack *stack, int first, int n) {
    int count = 0;
    for (int i = first; i < first + n; i++)
        count += stack->layers && mixer_keeps_state(stack->layers[i].spec.mixer);
    return count;
}
/* This rank's heads of a layer's self attention. */
struct layer_heads {
    struct portion queries, keys;
    int dim, rotated;
};
static inline struct layer_heads stack_heads(const struct stack *stack,
                                             const struct layer_spec *spec) {
    const struct dims *dims = &stack->dims;
    if (spec->wide_heads)
        return (struct layer_heads){stack->wide_heads, stack->wide_kv_heads, dims->wide_head_dim,
                                    dims->wide_head_dim};
    return (struct layer_heads){stack->heads, stack->kv_heads, dims->head_dim, dims->rotated};
}
static inline struct portion stack_ffn(const struct stack *stack, const struct layer_spec *spec) {
    return spec->wide_mlp ? stack->wide_ffn : stack->ffn;
}
/* Whether the layer keeps keys and values of its own. */
static inline bool layer_keeps_keys(const struct layer *layer) {
    return layer->spec.mixer == MIXER_ATTENTION && !layer->spec.reuses;
}
/* Those with self attention. */
static inline int stack_count_attention(const struct stack *stack, int first, int n) {
    int count = 0;
    for (int i = first; i < first + n; i++)
        count += stack->layers == NULL || stack->layers[i].spec.mixer == MIXER_ATTENTION;
    return count;
}
/* Channels that are convolved, of so many key and value heads. */
static inline size_t state_channels(const struct state_dims *dims, int keys, int heads) {
    return 2 * (size_t)keys * (size_t)dims->key_dim + (size_t)heads * (size_t)dims->value_dim;
}
/* Numbers of a layer's state: the rows that the convolution reads again, and the matrices of heads.
 * 0 where no layer keeps one. */
static inline size_t state_columns(const struct state_dims *dims, int keys, int heads) {
    if (dims->kernel == 0) return 0;
    return (size_t)(dims->kernel - 1) * state_channels(dims, keys, heads) +
           (size_t)heads * (size_t)dims->key_dim * (size_t)dims->value_dim;
}
/* Bytes of a row of keys, or of values, in a cache: int8 rows have a scale of bf16 for each head.
 */
static inline size_t cache_row_bytes(enum dtype dtype, size_t heads, size_t head_dim) {
    size_t scales = dtype == DTYPE_INT8 ? heads * dtype_bytes(DTYPE_BF16) : 0;
    return heads * head_dim * dtype_bytes(dtype) + scales;
}
/* Parts of a layer's rows in a cache: keys and values, or latents, which are both. */
static inline int stack_cache_parts(const struct stack *stack) {
    return stack->dims.latent.rank > 0 ? 1 : 2;
}
static inline const struct stack *model_decoder(const struct model *model) {
    return &model->stacks[STACK_DECODER];
}
static inline bool model_has_stack(const struct model *model, enum stack_id id) {
    return model->stacks[id].dims.n_layers > 0;
}
/* Columns of a picture's row as a decoder reads it: those in the place of a word, then those that
 * are added behind each of the first layers (tower_spec.deepstack). */
static inline int model_given_columns(const struct model *model) {
    return model_decoder(model)->dims.hidden * (1 + model->spec.tower.n_deepstack);
}
/* Whether the model writes text: it has a decoder with an output matrix, whose tokens see none
 * behind them. */
static inline bool model_writes(const struct model *model) {
    return model_has_stack(model, STACK_DECODER) && !model->spec.two_sided;
}

/* model_split.c: this rank's share of the stacks, and its layers. STATUS_INVALID where the model is
 * too small for so many ranks, STATUS_UNSUPPORTED where it is not cut as they ask. */
enum status model_split(struct model *model, struct error *e);

/* model_options.c. Whether keys and values can be int8: they have a scale for each key head, of
 * which latents have one for all heads, and only the kernels of the CPU read them. Then a refusal
 * of options that ask for it all the same, STATUS_UNSUPPORTED. */
bool model_cache_narrows(const struct model *model);
enum status model_check_cache(const struct model *model, const struct model_options *options,
                              struct error *e);

/* loader.c: fills m's stacks and everything else that holds weights from the weights, or with
 * random numbers when the weights is NULL. */
enum status model_load_weights(struct model *model, const struct weights *weights,
                               const struct model_options *options, struct error *e);
void model_release_weights(struct model *model);
