/* retro/families/megatron.c: the keys of config.json and the tensors that GPT, Retro and T5 share
 * in Megatron's words (docs/model-format.md, docs/spec/retro-model.md 1). */
#include "retro/families/megatron.h"

#include <math.h>
#include <string.h>

enum positions { POSITIONS_LEARNED, POSITIONS_ROPE, POSITIONS_NONE, POSITIONS_RELATIVE };

struct megatron_keys {
    struct model_spec spec;
    enum positions positions;
    float rotary_percent, rotary_base;
};

static const struct json_choice position_names[] = {{"learned_absolute", POSITIONS_LEARNED},
                                                    {"rope", POSITIONS_ROPE},
                                                    {"none", POSITIONS_NONE},
                                                    {"relative", POSITIONS_RELATIVE},
                                                    {NULL, 0}};

const struct json_choice megatron_activations[] = {{"gelu_tanh", ACTIVATION_GELU_TANH},
                                                   {"gelu_erf", ACTIVATION_GELU_ERF},
                                                   {"silu", ACTIVATION_SILU},
                                                   {"relu", ACTIVATION_RELU},
                                                   {"squared_relu", ACTIVATION_RELU_SQUARED},
                                                   {"quick_gelu", ACTIVATION_QUICK_GELU},
                                                   {"fast_gelu", ACTIVATION_GELU_TANH},
                                                   {"swiglu", ACTIVATION_SILU | MLP_GATED},
                                                   {"geglu", ACTIVATION_GELU_TANH | MLP_GATED},
                                                   {"geglu_tanh", ACTIVATION_GELU_TANH | MLP_GATED},
                                                   {"geglu_erf", ACTIVATION_GELU_ERF | MLP_GATED},
                                                   {NULL, 0}};

const struct json_choice megatron_norms[] = {
    {"LayerNorm", NORM_LAYER}, {"RMSNorm", NORM_RMS}, {NULL, 0}};

/* The keys of a stack's layers. */
struct shape_keys {
    struct dims dims;
    int mlp;
    bool qkv_bias;
};

#define AT_SHAPE(member) JSON_AT(struct shape_keys, dims.member)
static const struct json_field shape_fields[] = {
    {"hidden_size", JSON_INT, AT_SHAPE(hidden), .min = 1, .max = LIMIT_WIDTH, .required = true},
    {"num_attention_heads", JSON_INT, AT_SHAPE(heads), .min = 1, .max = LIMIT_HEADS,
     .required = true},
    {"num_query_groups", JSON_INT, AT_SHAPE(kv_heads), .min = 1, .max = LIMIT_HEADS},
    {"kv_channels", JSON_INT, AT_SHAPE(head_dim), .min = 1, .max = LIMIT_HEADS},
    {"ffn_hidden_size", JSON_INT, AT_SHAPE(ffn), .min = 1, .max = LIMIT_FFN},
    {"add_bias_linear", JSON_BOOL, AT_SHAPE(mlp_bias), .fallback = true},
    {"add_qkv_bias", JSON_BOOL, JSON_AT(struct shape_keys, qkv_bias)},
    {"activation", JSON_CHOICE, JSON_AT(struct shape_keys, mlp), .choices = megatron_activations,
     .required = true},
    {"normalization", JSON_CHOICE, AT_SHAPE(norm), .choices = megatron_norms,
     .fallback = NORM_LAYER},
    {"layernorm_epsilon", JSON_FLOAT, AT_SHAPE(epsilon), .fallback = 1e-5},
    {"layernorm_zero_centered_gamma", JSON_BOOL, AT_SHAPE(zero_centered_gamma)},
};
static const struct json_table shape_table = JSON_TABLE(shape_fields, .open = true);

static const struct json_field fields[] = {
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = true},
    {"padded_vocab_size", JSON_INT, AT_SPEC(padded_vocab), .min = 1, .max = LIMIT_IDS},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied), .fallback = true},
    {"eod_token_id", JSON_INT, AT_SPEC(eod), .min = 0, .max = LIMIT_IDS},
    {"position_embedding_type", JSON_CHOICE, JSON_AT(struct megatron_keys, positions),
     .choices = position_names, .required = true},
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .required = true},
    {"rotary_percent", JSON_FLOAT, JSON_AT(struct megatron_keys, rotary_percent), .fallback = 1},
    {"rotary_base", JSON_FLOAT, JSON_AT(struct megatron_keys, rotary_base), .fallback = 10000},
    {"rotary_interleaved", JSON_BOOL, AT_DECODER(rope_interleaved)},
    {"relative_attention_num_buckets", JSON_INT, AT_DECODER(buckets), .min = 4,
     .max = LIMIT_BUCKETS, .fallback = 32},
    {"relative_attention_max_distance", JSON_INT, AT_DECODER(max_distance), .min = 2,
     .max = LIMIT_BUCKETS, .fallback = 128},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Sizes that follow from others where they are absent. */
static void derive_sizes(struct dims *dims) {
    if (dims->kv_heads == 0) dims->kv_heads = dims->heads;
    if (dims->head_dim == 0) dims->head_dim = max_int(1, dims->hidden / dims->heads);
    if (dims->ffn == 0) dims->ffn = 4 * dims->hidden;
    dims->score_scale = 1.0f / sqrtf((float)dims->head_dim);
}

static void apply_positions(struct model_spec *spec, struct dims *dims, enum positions positions,
                            float percent) {
    spec->learned_positions = positions == POSITIONS_LEARNED;
    if (positions == POSITIONS_ROPE)
        dims->rotated = percent >= 1 ? dims->head_dim : (int)((float)dims->head_dim * percent);
    if (positions != POSITIONS_RELATIVE) dims->buckets = dims->max_distance = 0;
}

enum status megatron_read_shape(const struct json *config, struct dims *dims, struct error *e) {
    struct shape_keys keys = {.dims = *dims};
    if (spec_read(config, &shape_table, &keys, e)) return e->status;
    *dims = keys.dims;
    derive_sizes(dims);
    dims_set_mlp(dims, keys.mlp);
    dims_set_bias(dims, dims->mlp_bias);
    dims->qkv_bias = dims->qkv_bias || keys.qkv_bias;
    return STATUS_OK;
}

enum status spec_read_megatron(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    struct megatron_keys keys = {.spec = *spec};
    struct dims *dims = &spec->stacks[STACK_DECODER];
    if (megatron_read_shape(config, &keys.spec.stacks[STACK_DECODER], e) ||
        spec_read(config, &table, &keys, e))
        return e->status;
    if (!(keys.rotary_percent > 0 && keys.rotary_percent <= 1) || !(keys.rotary_base > 0))
        return error_set(e, STATUS_INVALID,
                         "config.json: rotary_percent must be in (0, 1] and rotary_base positive");

    *spec = keys.spec;
    if (spec->padded_vocab == 0) spec->padded_vocab = spec->vocab;
    apply_positions(spec, dims, keys.positions, keys.rotary_percent);
    if (dims->rotated <= ATTENTION_MAX_HEAD) dims_set_rope(dims, ROPE_GLOBAL, keys.rotary_base);
    return spec_check_id(spec, "eod_token_id", spec->eod, e);
}

const struct tensor_row megatron_outer_rows[MEGATRON_OUTER_ROWS] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"embedding.word_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.position),
     .names = {"embedding.position_embeddings.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"decoder.final_layernorm.*"}},
    {.place = offsetof(struct model, output), .names = {"output_layer.*"}},
};

/* Transformer Engine's names first, then those of local specs (spec 9.3); encoder layer 0 norms
 * under a third. */
const struct tensor_row megatron_layer_rows[MEGATRON_LAYER_ROWS] = {
    {.place = offsetof(struct layer, norm_in),
     .names = {"self_attention.linear_qkv.layer_norm_*", "input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv),
     .part = PART_BY_HEAD,
     .names = {"self_attention.linear_qkv.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attention.linear_proj.*"}},
    {.place = offsetof(struct layer, norm_cross), .names = {"pre_cross_attn_layernorm.*"}},
    {.place = offsetof(struct layer, cross_q), .names = {"cross_attention.attn.linear_q.*"}},
    {.place = offsetof(struct layer, cross_kv),
     .part = PART_BY_HEAD,
     .names = {"cross_attention.attn.linear_kv.*"}},
    {.place = offsetof(struct layer, cross_proj), .names = {"cross_attention.attn.linear_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp),
     .names = {"mlp.linear_fc1.layer_norm_*", "pre_mlp_layernorm.*", "pre_mlp_layernorm.norm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.linear_fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.linear_fc2.*"}},
};

bool ignore_megatron_state(const char *name) {
    const char *suffix = "._extra_state";
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}
