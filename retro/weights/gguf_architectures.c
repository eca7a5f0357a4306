/* retro/weights/gguf_architectures.c: GGUF's architectures: their keys, tensors and facts. See
 * gguf_architectures.h. */
#include "retro/weights/gguf_architectures.h"

#include <string.h>

#define ROWS(a) a, ARRAY_COUNT(a)

const struct key_row architecture_common_keys[] = {
    {"vocab_size", NULL, KEY_IGNORED, 0}, /* the word table tells */
    {"tensor_data_layout", NULL, KEY_IGNORED, 0},
    {"rope.scaling.finetuned", NULL, KEY_IGNORED, 0},
    {"pooling_type", NULL, KEY_IGNORED, 0}, /* of embedders: gguf_find_pooling */
    {"attention.causal", NULL, KEY_NEUTRAL, 1},
    {"use_parallel_residual", NULL, KEY_NEUTRAL, 0},
    {"expert_count", NULL, KEY_NEUTRAL, 0},
    {"expert_used_count", NULL, KEY_NEUTRAL, 0},
    {"expert_gating_func", NULL, KEY_NEUTRAL, 1}, /* softmax */
    {"expert_weights_scale", NULL, KEY_NEUTRAL, 1},
    {"attention.sliding_window", NULL, KEY_NEUTRAL, 0},
    {"attention.clamp_kqv", NULL, KEY_NEUTRAL, 0},
    {"attention.max_alibi_bias", NULL, KEY_NEUTRAL, 0},
    {"attn_logit_softcapping", NULL, KEY_NEUTRAL, 0},
    {"final_logit_softcapping", NULL, KEY_NEUTRAL, 0},
    {"embedding_scale", NULL, KEY_NEUTRAL, 1},
    {"residual_scale", NULL, KEY_NEUTRAL, 1},
    {"logit_scale", NULL, KEY_NEUTRAL, 1},
};
const size_t architecture_n_common = ARRAY_COUNT(architecture_common_keys);

/* Families know which kinds of scaling they have. */
const struct key_row architecture_scaling_keys[] = {
    {"rope.scaling.factor", "factor", KEY_FLOAT, 0},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", KEY_INT, 0},
    {"rope.scaling.yarn_beta_fast", "beta_fast", KEY_FLOAT, 0},
    {"rope.scaling.yarn_beta_slow", "beta_slow", KEY_FLOAT, 0},
    {"rope.scaling.attn_factor", NULL, KEY_NEUTRAL, 1},
    {"rope.scaling.yarn_attn_factor", NULL, KEY_NEUTRAL, 1},
    {"rope.scaling.yarn_ext_factor", NULL, KEY_NEUTRAL, 1},
};
const size_t architecture_n_scaling = ARRAY_COUNT(architecture_scaling_keys);

/* llama.cpp's base of RoPE is 10000 where a file does not tell; families differ. */
#define SIZES(epsilon, epsilon_name) \
    {"block_count", "num_hidden_layers", KEY_INT, 0}, \
        {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, \
        {"feed_forward_length", "intermediate_size", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.head_count_kv", "num_key_value_heads", KEY_INT, 0}, \
        {"attention.key_length", "head_dim", KEY_INT, 0}, \
        {"attention.value_length", NULL, KEY_HEAD, 0}, {epsilon, epsilon_name, KEY_FLOAT, 0}, { \
        "rope.freq_base", "rope_theta", KEY_FLOAT, 10000 \
    }
#define WHOLE_HEADS \
    { "rope.dimension_count", NULL, KEY_HEAD, 0 }
#define RMS_SIZES SIZES("attention.layer_norm_rms_epsilon", "rms_norm_eps")

static const struct key_row llama_keys[] = {RMS_SIZES, WHOLE_HEADS};
static const struct key_row qwen_vl_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"rope.dimension_sections", "mrope_section", KEY_SECTIONS, 0},
};
static const struct key_row starcoder2_keys[] = {
    SIZES("attention.layer_norm_epsilon", "norm_epsilon"), WHOLE_HEADS};
static const struct key_row granite_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"attention.scale", "attention_multiplier", KEY_FLOAT, 0},
    {"embedding_scale", "embedding_multiplier", KEY_FLOAT, 0},
    {"residual_scale", "residual_multiplier", KEY_FLOAT, 0},
    {"logit_scale", "logits_scaling", KEY_FLOAT, 0},
};
static const struct key_row gemma2_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
    {"attn_logit_softcapping", "attn_logit_softcapping", KEY_FLOAT, 0},
    {"final_logit_softcapping", "final_logit_softcapping", KEY_FLOAT, 0},
};
static const struct key_row gemma3_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"attention.sliding_window", "sliding_window", KEY_WINDOW, 0},
    {"attention.sliding_window_pattern", "sliding_window_pattern", KEY_PATTERN, 6},
    {"rope.freq_base_swa", "rope_local_base_freq", KEY_FLOAT, 10000},
    {"final_logit_softcapping", "final_logit_softcapping", KEY_FLOAT, 0},
};
static const struct key_row phi3_keys[] = {
    RMS_SIZES,
    {"rope.dimension_count", "partial_rotary_factor", KEY_SHARE, 0},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", KEY_INT, 0},
    {"rope.scaling.attn_factor", "attention_factor", KEY_WRITTEN, 0}, /* read with the factors */
    {"attention.sliding_window", "sliding_window", KEY_WINDOW, 0},
};
static const struct key_row gptneox_keys[] = {
    SIZES("attention.layer_norm_epsilon", "layer_norm_eps"),
    {"rope.dimension_count", "rotary_pct", KEY_SHARE, 0},
    {"use_parallel_residual", "use_parallel_residual", KEY_BOOL, 1},
};
#define EXPERTS(count) \
    {"expert_count", count, KEY_INT, 0}, { "expert_used_count", "num_experts_per_tok", KEY_INT, 0 }
static const struct key_row mixtral_keys[] = {RMS_SIZES, WHOLE_HEADS, EXPERTS("num_local_experts")};
static const struct key_row qwen_moe_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    EXPERTS("num_experts"),
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", KEY_INT, 0},
};

/* All layers have experts, whose shape the tensors tell too. */
static const struct key_row gpt_oss_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    EXPERTS("num_local_experts"),
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_WRITTEN, 0},
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
};

/* Qwen3-Next: the experts' keys, and those of delta nets. */
static const struct key_row qwen_next_keys[] = {
    RMS_SIZES,
    EXPERTS("num_experts"),
    {"rope.dimension_count", "partial_rotary_factor", KEY_SHARE, 0},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", KEY_INT, 0},
    {"ssm.conv_kernel", "linear_conv_kernel_dim", KEY_INT, 0},
    {"ssm.state_size", "linear_key_head_dim", KEY_INT, 0},
    {"ssm.group_count", "linear_num_key_heads", KEY_INT, 0},
    {"ssm.time_step_rank", "linear_num_value_heads", KEY_INT, 0},
    {"ssm.inner_size", "linear_value_head_dim", KEY_PER_HEAD, 0},
    {"full_attention_interval", "full_attention_interval", KEY_INT, 0},
    {"attention.recurrent_layers", NULL, KEY_STATES, 0},
    {"nextn_predict_layers", NULL, KEY_NEUTRAL, 0},
};

static const struct key_row bert_keys[] = {
    {"block_count", "num_hidden_layers", KEY_INT, 0},
    {"context_length", "max_position_embeddings", KEY_INT, 0},
    {"embedding_length", "hidden_size", KEY_INT, 0},
    {"feed_forward_length", "intermediate_size", KEY_INT, 0},
    {"attention.head_count", "num_attention_heads", KEY_INT, 0},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_FLOAT, 0},
    {"attention.causal", NULL, KEY_NEUTRAL, 0},
};
static const struct key_row gpt2_keys[] = {
    {"block_count", "n_layer", KEY_INT, 0},
    {"context_length", "n_positions", KEY_INT, 0},
    {"embedding_length", "n_embd", KEY_INT, 0},
    {"feed_forward_length", "n_inner", KEY_INT, 0},
    {"attention.head_count", "n_head", KEY_INT, 0},
    {"attention.head_count_kv", "num_key_value_heads", KEY_WRITTEN,
     0}, /* the shape of attn_qkv is checked */
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", KEY_FLOAT, 0},
};

#define TIED \
    { "tie_word_embeddings", "output.weight", .absent = true }

static const struct fact_row llama_facts[] = {
    TIED,
    {"attention_bias", "blk.0.attn_q.bias", false},
    {"mlp_bias", "blk.0.ffn_gate.bias", false},
};
static const struct fact_row plain_facts[] = {TIED};
/* llama.cpp's converter adds the 1 to the weights of norms. */
static const struct fact_row gemma_facts[] = {TIED, {"zero_centered_norms", "", false}};
static const struct fact_row qwen2_moe_facts[] = {
    TIED, {"qkv_bias", "blk.0.attn_q.bias", false}, {"norm_topk_prob", "", false}};
static const struct fact_row qwen3_moe_facts[] = {
    TIED, {"attention_bias", "blk.0.attn_q.bias", false}, {"norm_topk_prob", "", .absent = true}};

/* Its converter also writes the decay of delta nets as the rate that it is. */
static const struct fact_row qwen_next_facts[] = {TIED,
                                                  {"attention_bias", "blk.0.attn_q.bias", false},
                                                  {"norm_topk_prob", "", .absent = true},
                                                  {"zero_centered_norms", "", false},
                                                  {"logarithmic_decay", "", false}};

/* GGUF's and Hugging Face's name, keys, facts. */
#define ARCHITECTURE(kind, type, keys_of, facts_of) \
    .name = (kind), .model_type = (type), .keys = (keys_of), .n_keys = ARRAY_COUNT(keys_of), \
    .facts = (facts_of), .n_facts = ARRAY_COUNT(facts_of)

/* llama.cpp's converter puts the queries and keys of Llama's kin in pairs; others stay as they are.
 */
static const struct architecture architectures[] = {
    {ARCHITECTURE("llama", "mixtral", mixtral_keys, llama_facts), .paired = true,
     .told_by = "blk.0.ffn_gate_inp.weight"},
    {ARCHITECTURE("llama", "llama", llama_keys, llama_facts), .paired = true},
    {ARCHITECTURE("smollm3", "smollm3", llama_keys, llama_facts), .paired = true},
    {ARCHITECTURE("granite", "granite", granite_keys, llama_facts), .paired = true},
    {ARCHITECTURE("qwen2", "qwen2", llama_keys, plain_facts)},
    {ARCHITECTURE("qwen2vl", "qwen2_vl", qwen_vl_keys, plain_facts),
     .named_as = "qwen2"}, /* without the tower */
    {ARCHITECTURE("qwen3", "qwen3", llama_keys, llama_facts)},
    {ARCHITECTURE("qwen2moe", "qwen2_moe", qwen_moe_keys, qwen2_moe_facts)},
    {ARCHITECTURE("qwen3moe", "qwen3_moe", qwen_moe_keys, qwen3_moe_facts)},
    {ARCHITECTURE("qwen3next", "qwen3_next", qwen_next_keys, qwen_next_facts)},
    {ARCHITECTURE("gpt-oss", "gpt_oss", gpt_oss_keys, llama_facts), .untruncated = true},
    {ARCHITECTURE("phi3", "phi3", phi3_keys, plain_facts)},
    {ARCHITECTURE("olmo2", "olmo2", llama_keys, llama_facts)},
    {ARCHITECTURE("gemma2", "gemma2", gemma2_keys, gemma_facts), .divisor = "query_pre_attn_scalar",
     .divided_layers = 46},
    {ARCHITECTURE("gemma3", "gemma3_text", gemma3_keys, gemma_facts),
     .divisor = "query_pre_attn_scalar", .divided_layers = 62},
    {ARCHITECTURE("starcoder2", "starcoder2", starcoder2_keys, plain_facts)},
    {ARCHITECTURE("gpt2", "gpt2", gpt2_keys, plain_facts)},
    {ARCHITECTURE("gptneox", "gpt_neox", gptneox_keys, plain_facts)},
    /* RoBERTa's files too: what its positions skip, the converter has cut off. */
    {.name = "bert", .model_type = "bert", .keys = ROWS(bert_keys), .activation = "gelu"},
};

const struct architecture *architecture_of_type(const char *model_type) {
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++)
        if (strcmp(architectures[i].model_type, model_type) == 0) return &architectures[i];
    return NULL;
}

const struct key_row *architecture_key(const struct architecture *architecture, const char *name) {
    for (size_t i = 0; i < architecture->n_keys; i++)
        if (architecture->keys[i].name && strcmp(architecture->keys[i].name, name) == 0)
            return &architecture->keys[i];
    return NULL;
}

const struct fact_row *architecture_fact(const struct architecture *architecture,
                                         const char *name) {
    for (size_t i = 0; i < architecture->n_facts; i++)
        if (strcmp(architecture->facts[i].name, name) == 0) return &architecture->facts[i];
    return NULL;
}

static void list_names(struct buffer *known) {
    const char *last = "";
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        const char *name = architectures[i].name;
        if (strcmp(name, last) != 0) buffer_printf(known, "%s%s", i ? ", " : "", name);
        last = name;
    }
}

enum status architecture_find(const struct gguf *gguf, const struct architecture **out,
                              struct error *e) {
    struct text_span name;
    if (!gguf_text(gguf_value_find(gguf, "general.architecture"), &name))
        return error_set(e, STATUS_CORRUPT, "%s: general.architecture is missing or no text",
                         gguf_name(gguf));
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        *out = &architectures[i];
        const char *known = (*out)->name, *told_by = (*out)->told_by;
        bool named = name.size == strlen(known) && memcmp(name.text, known, name.size) == 0;
        if (named && (told_by == NULL || gguf_find(gguf, told_by))) return STATUS_OK;
    }
    struct buffer known = {0};
    list_names(&known);
    error_set(e, STATUS_UNSUPPORTED, "%s: general.architecture \"%.*s\" is unknown; known: %s",
              gguf_name(gguf), (int)(name.size < 60 ? name.size : 60), name.text, known.data);
    buffer_free(&known);
    return e->status;
}
