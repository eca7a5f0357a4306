/* retro/families/family_llama.c: Llama and Qwen2 as Hugging Face stores them: RMS norms, RoPE, grouped key/value heads
 * and a gated MLP. Qwen2 is the same with biases on queries, keys and values. */
#include <string.h>

#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct llama_keys {
    struct model_spec spec;
    bool attention_bias, mlp_bias;
    float base; /* rope_theta */
    struct rope_keys parameters, scaling;
};

static const struct json_field fields[] = {
    {"num_hidden_layers", JSON_INT, AT_DECODER(n_layers), .min = 1, .max = MAX_LAYERS, .required = true},
    {"hidden_size", JSON_INT, AT_DECODER(hidden), .min = 1, .max = LIMIT_WIDTH, .required = true},
    {"num_attention_heads", JSON_INT, AT_DECODER(heads), .min = 1, .max = LIMIT_HEADS, .required = true},
    {"num_key_value_heads", JSON_INT, AT_DECODER(kv_heads), .min = 1, .max = LIMIT_HEADS},
    {"head_dim", JSON_INT, AT_DECODER(head_dim), .min = 1, .max = LIMIT_HEADS},
    {"intermediate_size", JSON_INT, AT_DECODER(ffn), .min = 1, .max = LIMIT_FFN, .required = true},
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = true},
    {.name = "eos_token_id", .type = JSON_PARSED, .parse = huggingface_parse_eos},
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS},
    {"rms_norm_eps", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-6},
    {"hidden_act", JSON_CHOICE, AT_DECODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_SILU},
    {"attention_bias", JSON_BOOL, JSON_AT(struct llama_keys, attention_bias)},
    {"mlp_bias", JSON_BOOL, JSON_AT(struct llama_keys, mlp_bias)},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied)},
    {"rope_theta", JSON_FLOAT, JSON_AT(struct llama_keys, base), .fallback = 10000},
    {"rope_parameters", JSON_STRUCT, JSON_AT(struct llama_keys, parameters), .table = &rope_parameters_table},
    {"rope_scaling", JSON_STRUCT, JSON_AT(struct llama_keys, scaling), .table = &rope_scaling_table},
    {.name = "use_sliding_window", .type = JSON_MUST_BE_FALSE},
    {.name = "quantization_config", .type = JSON_EMPTY},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_llama(const struct json *config, struct model_spec *s, struct error *e) {
    struct llama_keys keys = {.spec = *s};
    if (spec_read(config, &table, &keys, e)) return e->status;
    *s = keys.spec;

    struct dims *d = &s->stacks[STACK_DECODER];
    if (huggingface_derive(s, d, e)) return e->status;
    d->norm = NORM_RMS;
    d->gated = true;
    d->final_norm = true;
    d->qkv_bias = d->proj_bias = keys.attention_bias;
    d->mlp_bias = keys.mlp_bias;
    d->rotated = d->head_dim;
    float base = keys.parameters.base != 0 ? keys.parameters.base : keys.base;
    if (!(base > 0))
        return error_set(e, STATUS_INVALID, "config.json: the base of RoPE is %g, must be positive", (double)base);
    if (d->rotated <= ATTENTION_MAX_HEAD) dims_set_rope(d, ROPE_GLOBAL, base);
    return spec_check(s, e);
}

/* No key decides on Qwen2's biases. */
static enum status read_qwen2(const struct json *config, struct model_spec *s, struct error *e) {
    if (read_llama(config, s, e)) return e->status;
    dims_set_bias(&s->stacks[STACK_DECODER], false);
    s->stacks[STACK_DECODER].qkv_bias = true;
    return STATUS_OK;
}

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word), .names = {"model.embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm), .names = {"model.norm.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.o_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, fc1), .part = PART_GATE, .names = {"mlp.gate_proj.*"}},
    {.place = offsetof(struct layer, fc1), .part = PART_UP, .names = {"mlp.up_proj.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.down_proj.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *s, enum stack_id stack, int i) {
    (void)s, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_CAUSAL, .rope = true};
}

/* Old checkpoints hold the frequencies of RoPE in every layer. */
static bool ignore_frequencies(const char *name) { return strstr(name, ".rotary_emb.inv_freq") != NULL; }

const struct family family_llama = {
    .model_type = "llama",
    .read = read_llama,
    .inspect = huggingface_find_output,
    .layer = describe_layer,
    .stacks[STACK_DECODER] = {{"model.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_frequencies,
};

const struct family family_qwen2 = {
    .model_type = "qwen2",
    .read = read_qwen2,
    .inspect = huggingface_find_output,
    .layer = describe_layer,
    .stacks[STACK_DECODER] = {{"model.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_frequencies,
};
