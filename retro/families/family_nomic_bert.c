/* retro/families/family_nomic_bert.c: Nomic's BERT as its authors publish it and as transformers 5
 * writes it (Nussbaum et al. 2024): BERT with rotary positions and a gated MLP, without biases. An
 * encoder alone. */
#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct nomic_keys {
    struct model_spec spec;
    const struct json *stretch;
};
#define AT_KEYS(member) JSON_AT(struct nomic_keys, member)

static const struct json_choice activations[] = {
    {"swiglu", ACTIVATION_SILU}, {"silu", ACTIVATION_SILU}, {NULL, 0}};

static const struct json_field fields[] = {
    {"n_layer|num_hidden_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS,
     .required = true},
    {"n_embd|hidden_size", JSON_INT, AT_ENCODER(hidden), .min = 1, .max = LIMIT_WIDTH,
     .required = true},
    {"n_head|num_attention_heads", JSON_INT, AT_ENCODER(heads), .min = 1, .max = LIMIT_HEADS,
     .required = true},
    {"n_inner|intermediate_size", JSON_INT, AT_ENCODER(ffn), .min = 1, .max = LIMIT_FFN,
     .required = true},
    {"head_dim", JSON_INT, AT_ENCODER(head_dim), .min = 1, .max = LIMIT_HEADS},
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = true},
    {"n_positions|max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1,
     .max = LIMIT_POSITIONS, .required = true},
    {"type_vocab_size", JSON_INT, AT_SPEC(type_vocab), .min = 1, .max = 1 << 16, .fallback = 2},
    {"layer_norm_epsilon|layer_norm_eps", JSON_FLOAT, AT_ENCODER(epsilon), .fallback = 1e-12},
    {"activation_function|hidden_act", JSON_CHOICE, AT_ENCODER(activation), .choices = activations,
     .required = true},
    {"rotary_scaling_factor", JSON_RAW, AT_KEYS(stretch)},
    {.name = "rotary_emb_interleaved", .type = JSON_MUST_BE_FALSE},
    {.name = "prenorm", .type = JSON_MUST_BE_FALSE},
    {.name = "parallel_block", .type = JSON_MUST_BE_FALSE},
    {.name = "use_rms_norm", .type = JSON_MUST_BE_FALSE},
    {.name = "causal", .type = JSON_MUST_BE_FALSE},
    {.name = "qkv_proj_bias", .type = JSON_MUST_BE_FALSE},
    {.name = "mlp_fc1_bias", .type = JSON_MUST_BE_FALSE},
    {.name = "mlp_fc2_bias", .type = JSON_MUST_BE_FALSE},
    {.name = "rotary_emb_fraction", .type = JSON_NEUTRAL, .min = 1},
    {.name = "num_experts", .type = JSON_NEUTRAL, .min = 0},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_nomic(const struct json *config, struct model_spec *spec, struct error *e) {
    static const struct rope_rules rope = {.base = 1000, .neox_names = true};
    struct nomic_keys keys = {.spec = *spec};
    struct dims *dims = &keys.spec.stacks[STACK_ENCODER];
    if (spec_read(config, &table, &keys, e)) return e->status;
    if (!json_is_absent(keys.stretch))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"rotary_scaling_factor\" turns a token by the length of its "
            "text, which is not supported; a folder with null (as v1.5) has none");
    if (huggingface_derive(&keys.spec, dims, e)) return e->status;

    if (huggingface_read_rope(config, &rope, &keys.spec, dims, e)) return e->status;
    dims->norm = NORM_LAYER;
    dims->gated = true;
    keys.spec.tied = true;
    *spec = keys.spec;
    return spec_check(spec, e);
}

/* A checkpoint of the encoder alone, or of a model around it. */
#define OUTER_NAMES(name) \
    { name, "nomic_bert." name, "bert." name }

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = OUTER_NAMES("embeddings.word_embeddings.weight")},
    {.place = offsetof(struct model, embedding.type),
     .names = OUTER_NAMES("embeddings.token_type_embeddings.weight")},
    {.place = offsetof(struct model, embedding.norm),
     .names = {"emb_ln.*", "embeddings.LayerNorm.*", "nomic_bert.embeddings.LayerNorm.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}},
    {.place = offsetof(struct layer, qkv), .names = {"attn.Wqkv.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attn.out_proj.*", "self_attn.o_proj.*"}},
    {.place = offsetof(struct layer, norm_in), .names = {"norm1.*", "post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, fc1),
     .part = PART_GATE,
     .names = {"mlp.fc12.*", "mlp.gate_proj.*"}},
    {.place = offsetof(struct layer, fc1),
     .part = PART_UP,
     .names = {"mlp.fc11.*", "mlp.up_proj.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.fc2.*", "mlp.down_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"norm2.*", "post_mlp_layernorm.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.post_norm = true, .mask = MASK_NONE, .rope = true};
}

const struct family family_nomic_bert = {
    HUGGINGFACE_ENCODER("nomic_bert", read_nomic, describe_layer, "nomic_bert.",
                        "encoder.layers.#.", layer_rows, outer_rows)};
