/* retro/weights/gguf_architectures.c: GGUF's architectures: their keys, tensors and facts. See
 * gguf_architectures.h. */
#include "retro/weights/gguf_rows.h"

#include <stdio.h>
#include <string.h>

#include "config/base/text.h"

const struct key_row architecture_common_keys[] = {
    {"vocab_size", NULL, KEY_IGNORED, 0}, /* the word table tells */
    {"tensor_data_layout", NULL, KEY_IGNORED, 0},
    {"rope.scaling.finetuned", NULL, KEY_IGNORED, 0},
    {"pooling_type", NULL, KEY_IGNORED, 0}, /* of embedders: gguf_find_pooling */
    {"classifier.output_labels", NULL, KEY_IGNORED, 0},
    {"nextn_predict_layers", NULL, KEY_IGNORED, 0}, /* architecture_layers */
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

static const struct key_row llama_keys[] = {RMS_SIZES, WHOLE_HEADS};
static const struct key_row qwen_vl_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"rope.dimension_sections", "mrope_section", KEY_SECTIONS, 0},
};
/* How many layers the tower adds rows behind: the tower's file tells again (gguf_tower.c). */
#define QWEN3_VL_KEYS \
    {"rope.dimension_sections", "mrope_section", KEY_SECTIONS, 0}, { \
        "n_deepstack_layers", NULL, KEY_IGNORED, 0 \
    }
static const struct key_row qwen3_vl_keys[] = {RMS_SIZES, WHOLE_HEADS, QWEN3_VL_KEYS};
static const struct key_row starcoder2_keys[] = {
    SIZES("attention.layer_norm_epsilon", "norm_epsilon"), WHOLE_HEADS};
#define GRANITE_KEYS \
    RMS_SIZES, WHOLE_HEADS, {"attention.scale", "attention_multiplier", KEY_FLOAT, 0}, \
        {"embedding_scale", "embedding_multiplier", KEY_FLOAT, 0}, \
        {"residual_scale", "residual_multiplier", KEY_FLOAT, 0}, { \
        "logit_scale", "logits_scaling", KEY_FLOAT, 0 \
    }
static const struct key_row granite_keys[] = {
    GRANITE_KEYS,
    /* Of Granite 4 without state spaces and experts, whose files have the keys of both. */
    {"ssm.conv_kernel", NULL, KEY_IGNORED, 0},
    {"ssm.state_size", NULL, KEY_IGNORED, 0},
    {"ssm.group_count", NULL, KEY_IGNORED, 0},
    {"ssm.inner_size", NULL, KEY_IGNORED, 0},
    {"ssm.time_step_rank", NULL, KEY_IGNORED, 0},
    {"expert_shared_feed_forward_length", NULL, KEY_IGNORED, 0}, /* as feed_forward_length */
};
static const struct key_row granite_moe_keys[] = {
    GRANITE_KEYS,
    EXPERTS("num_local_experts"),
    {"expert_feed_forward_length", NULL, KEY_IGNORED, 0}, /* as feed_forward_length */
    {"expert_shared_feed_forward_length", "shared_intermediate_size", KEY_INT, 0},
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
    {"attention.sliding_window", "sliding_window", KEY_OR_NULL, 0},
    {"attention.sliding_window_pattern", "sliding_window_pattern", KEY_PATTERN, 6},
    {"rope.freq_base_swa", "rope_local_base_freq", KEY_FLOAT, 10000},
    {"final_logit_softcapping", "final_logit_softcapping", KEY_FLOAT, 0},
};
/* EmbeddingGemma. The shapes of the matrices behind the mean tell their sizes again. */
static const struct key_row gemma_embedding_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
    {"attention.sliding_window_pattern", "sliding_window_pattern", KEY_PATTERN, 6},
    {"rope.freq_base_swa", "rope_local_base_freq", KEY_FLOAT, 10000},
    {"attention.causal", NULL, KEY_NEUTRAL, 0},
    {"dense_2_feat_in", NULL, KEY_IGNORED, 0},
    {"dense_2_feat_out", NULL, KEY_IGNORED, 0},
    {"dense_3_feat_in", NULL, KEY_IGNORED, 0},
    {"dense_3_feat_out", NULL, KEY_IGNORED, 0},
};
static const struct key_row phi3_keys[] = {
    RMS_SIZES,
    {"rope.dimension_count", "partial_rotary_factor", KEY_SHARE, 0},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", KEY_INT, 0},
    {"rope.scaling.attn_factor", "attention_factor", KEY_WRITTEN, 0}, /* read with the factors */
    {"attention.sliding_window", "sliding_window", KEY_OR_NULL, 0},
};
/* GLM-4: half of each head turns. */
static const struct key_row glm4_keys[] = {
    RMS_SIZES,
    {"rope.dimension_count", "partial_rotary_factor", KEY_SHARE, 0},
};
/* OLMo 3 is OLMo 2 with windows. */
static const struct key_row olmo3_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
    {"attention.sliding_window_pattern", "sliding_window_pattern", KEY_PATTERN, 4},
    {"rope.freq_base_swa", "rope_local_base_freq", KEY_FLOAT, 0},
};
/* Models without a window have no pattern either. */
static const struct key_row exaone4_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"attention.sliding_window", "sliding_window", KEY_OR_NULL, 0},
    {"attention.sliding_window_pattern", "sliding_window_pattern", KEY_PATTERN, 4},
};
/* The converter writes the epsilon twice. */
static const struct key_row nemotron_keys[] = {
    SIZES("attention.layer_norm_epsilon", "norm_eps"),
    {"attention.layer_norm_rms_epsilon", NULL, KEY_IGNORED, 0},
    {"rope.dimension_count", "partial_rotary_factor", KEY_SHARE, 0},
};
static const struct key_row cohere2_keys[] = {
    SIZES("attention.layer_norm_epsilon", "layer_norm_eps"),
    WHOLE_HEADS,
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
    {"attention.sliding_window_pattern", "sliding_window_pattern", KEY_PATTERN, 4},
    {"logit_scale", "logit_scale", KEY_FLOAT, 0},
};
static const struct key_row ministral3_keys[] = {RMS_SIZES, WHOLE_HEADS};
static const struct key_row ministral3_scaling[] = {
    {"rope.scaling.yarn_log_multiplier", NULL, KEY_MSCALE, 1},
    {"attention.temperature_scale", "llama_4_scaling_beta", KEY_FLOAT, 0},
};
static const struct key_row gptneox_keys[] = {
    SIZES("attention.layer_norm_epsilon", "layer_norm_eps"),
    {"rope.dimension_count", "rotary_pct", KEY_SHARE, 0},
    {"use_parallel_residual", "use_parallel_residual", KEY_BOOL, 1},
};
static const struct key_row mixtral_keys[] = {RMS_SIZES, WHOLE_HEADS, EXPERTS("num_local_experts")};
static const struct key_row olmoe_keys[] = {RMS_SIZES, WHOLE_HEADS, EXPERTS("num_experts")};
static const struct key_row qwen_moe_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    EXPERTS("num_experts"),
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", KEY_INT, 0},
};
static const struct key_row qwen3_vl_moe_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    QWEN3_VL_KEYS,
    EXPERTS("num_experts"),
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
};

/* All layers have experts, whose shape the tensors tell too. */
static const struct key_row gpt_oss_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    EXPERTS("num_local_experts"),
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_WRITTEN, 0},
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
};

static const struct key_row bert_keys[] = {
    ENCODER_SIZES,
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_FLOAT, 0},
};
static const struct key_row nomic_keys[] = {
    ENCODER_SIZES,
    {"attention.key_length", "head_dim", KEY_INT, 0},
    {"attention.value_length", NULL, KEY_HEAD, 0},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_FLOAT, 0},
    {"rope.freq_base", "rope_theta", KEY_FLOAT, 10000},
};
/* The folder's norms have "norm_eps", which the converter takes for that of an RMS norm. Its
 * "layer_norm_eps" is not used. */
static const struct key_row modernbert_keys[] = {
    ENCODER_SIZES,
    {"attention.layer_norm_rms_epsilon", "norm_eps", KEY_FLOAT, 0},
    {"attention.layer_norm_epsilon", NULL, KEY_IGNORED, 0},
    {"attention.sliding_window", "local_attention", KEY_INT, 0},
    {"attention.sliding_window_pattern", "global_attn_every_n_layers", KEY_INT, 3},
    {"rope.freq_base", "global_rope_theta", KEY_FLOAT, 10000},
    {"rope.freq_base_swa", "local_rope_theta", KEY_FLOAT, 0},
    {"hidden_activation", "hidden_activation", KEY_WORD, 0},
    {"classifier.pooling_type", NULL, KEY_IGNORED, 0},
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

static const struct fact_row llama_facts[] = {
    TIED,
    {"attention_bias", "blk.0.attn_q.bias", false},
    {"mlp_bias", "blk.0.ffn_gate.bias", false},
};
static const struct fact_row plain_facts[] = {TIED};
static const struct fact_row olmoe_facts[] = {
    TIED, {"attention_bias", "blk.0.attn_q.bias", false}, {"norm_topk_prob", "", false}};
#define GATELESS_BIASES \
    {"attention_bias", "blk.0.attn_q.bias", false}, { "mlp_bias", "blk.0.ffn_up.bias", false }
static const struct fact_row arcee_facts[] = {TIED, GATELESS_BIASES};
static const struct fact_row nemotron_facts[] = {TIED, AROUND_ONE, GATELESS_BIASES};
static const struct fact_row gemma_facts[] = {TIED, AROUND_ONE};
static const struct fact_row gemma_embedding_facts[] = {
    AROUND_ONE, {"use_bidirectional_attention", "", .absent = true}};
static const struct fact_row seed_oss_facts[] = {
    TIED,
    {"attention_bias", "blk.0.attn_q.bias", false},
    {"attention_out_bias", "blk.0.attn_output.bias", false},
    {"mlp_bias", "blk.0.ffn_gate.bias", false},
};
static const struct fact_row ernie_facts[] = {TIED, {"use_bias", "blk.0.attn_q.bias", false}};
static const struct fact_row qwen2_moe_facts[] = {
    TIED, {"qkv_bias", "blk.0.attn_q.bias", false}, {"norm_topk_prob", "", false}};
static const struct fact_row qwen3_moe_facts[] = {
    TIED, {"attention_bias", "blk.0.attn_q.bias", false}, {"norm_topk_prob", "", .absent = true}};

/* llama.cpp's converter puts the queries and keys of Llama's kin in pairs; others stay as they are.
 */
static const struct architecture architectures[] = {
    {ARCHITECTURE("llama", "mixtral", mixtral_keys, llama_facts), .paired = true,
     .told_by = "blk.0.ffn_gate_inp.weight"},
    {ARCHITECTURE("llama", "llama", llama_keys, llama_facts), .paired = true},
    {ARCHITECTURE("smollm3", "smollm3", llama_keys, llama_facts), .paired = true},
    {ARCHITECTURE("granite", "granite", granite_keys, llama_facts), .paired = true},
    {ARCHITECTURE("granitemoe", "granitemoeshared", granite_moe_keys, llama_facts), .paired = true,
     .told_by = "blk.0.ffn_gate_shexp.weight"},
    {ARCHITECTURE("granitemoe", "granitemoe", granite_moe_keys, llama_facts), .paired = true},
    {ARCHITECTURE("qwen2", "qwen2", llama_keys, plain_facts)},
    {ARCHITECTURE("qwen2vl", "qwen2_vl", qwen_vl_keys, plain_facts),
     .named_as = "qwen2"}, /* without the tower */
    {ARCHITECTURE("qwen3", "qwen3", llama_keys, llama_facts), .headed = true},
    {ARCHITECTURE("qwen3vl", "qwen3_vl_text", qwen3_vl_keys, llama_facts), .whole = "qwen3_vl",
     .named_as = "qwen3"},
    {ARCHITECTURE("qwen3vlmoe", "qwen3_vl_moe_text", qwen3_vl_moe_keys, qwen3_moe_facts),
     .whole = "qwen3_vl_moe", .named_as = "qwen3_moe"},
    {ARCHITECTURE("qwen2moe", "qwen2_moe", qwen_moe_keys, qwen2_moe_facts)},
    {ARCHITECTURE("qwen3moe", "qwen3_moe", qwen_moe_keys, qwen3_moe_facts)},
    {ARCHITECTURE("gpt-oss", "gpt_oss", gpt_oss_keys, llama_facts), .untruncated = true,
     .mlp_norm = "post_attention_norm"},
    {ARCHITECTURE("phi3", "phi3", phi3_keys, plain_facts)},
    {ARCHITECTURE("olmo2", "olmo3", olmo3_keys, llama_facts),
     .told_key = "attention.sliding_window"},
    {ARCHITECTURE("olmo2", "olmo2", llama_keys, llama_facts)},
    {ARCHITECTURE("olmoe", "olmoe", olmoe_keys, olmoe_facts)},
    {ARCHITECTURE("exaone4", "exaone4", exaone4_keys, plain_facts)},
    {ARCHITECTURE("arcee", "arcee", llama_keys, arcee_facts), .paired = true},
    {ARCHITECTURE("nemotron", "nemotron", nemotron_keys, nemotron_facts)},
    {ARCHITECTURE("glm4", "glm4", glm4_keys, llama_facts)},
    {ARCHITECTURE("cohere2", "cohere2", cohere2_keys, plain_facts)},
    {ARCHITECTURE("mistral3", "ministral3", ministral3_keys, llama_facts),
     .scaling = ROWS(ministral3_scaling), .paired = true,
     .told_key = "attention.temperature_scale"},
    {ARCHITECTURE("mistral3", "llama", llama_keys, llama_facts), .paired = true},
    {ARCHITECTURE("seed_oss", "seed_oss", llama_keys, seed_oss_facts)},
    {ARCHITECTURE("ernie4_5", "ernie4_5", llama_keys, ernie_facts)},
    {ARCHITECTURE("hunyuan-dense", "hunyuan_v1_dense", llama_keys, llama_facts)},
    {ARCHITECTURE("gemma2", "gemma2", gemma2_keys, gemma_facts), .divisor = "query_pre_attn_scalar",
     .divided_layers = 46},
    {ARCHITECTURE("gemma3", "gemma3_text", gemma3_keys, gemma_facts),
     .divisor = "query_pre_attn_scalar", .divided_layers = 62},
    {ARCHITECTURE("starcoder2", "starcoder2", starcoder2_keys, plain_facts)},
    {ARCHITECTURE("gpt2", "gpt2", gpt2_keys, plain_facts)},
    {ARCHITECTURE("gptneox", "gpt_neox", gptneox_keys, plain_facts)},
    /* RoBERTa's files too: what its positions skip, the converter has cut off. */
    {.name = "bert",
     .model_type = "bert",
     .keys = ROWS(bert_keys),
     .activation = "gelu",
     .headed = true},
    {.name = "nomic-bert",
     .model_type = "nomic_bert",
     .keys = ROWS(nomic_keys),
     .activation = "silu"},
    {.name = "modern-bert", .model_type = "modernbert", .keys = ROWS(modernbert_keys)},
    {ARCHITECTURE("gemma-embedding", "gemma3_text", gemma_embedding_keys, gemma_embedding_facts),
     .divisor = "query_pre_attn_scalar", .headed = true},
};

/* Those of this file, then the hybrids. */
static const struct architecture *architecture_at(size_t i) {
    size_t own = ARRAY_COUNT(architectures);
    if (i < own) return &architectures[i];
    return i - own < architecture_n_hybrids ? &architecture_hybrids[i - own] : NULL;
}

const struct architecture *architecture_of_type(const char *model_type) {
    const struct architecture *architecture = architecture_at(0);
    for (size_t i = 1; architecture && strcmp(architecture->model_type, model_type) != 0; i++)
        architecture = architecture_at(i);
    return architecture;
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

bool architecture_has_tensor(const struct gguf *gguf, const char *tensor) {
    const char *number = strchr(tensor, '#');
    if (number == NULL) return gguf_find(gguf, tensor) != NULL;
    bool found = false;
    for (int i = 0; i < ARCHITECTURE_LAYERS && !found; i++) {
        char name[GGUF_NAME + 1];
        snprintf(name, sizeof name, "%.*s%d%s", (int)(number - tensor), tensor, i, number + 1);
        found = gguf_find(gguf, name) != NULL;
    }
    return found;
}

const struct gguf_value *architecture_value(const struct gguf *gguf,
                                            const struct architecture *architecture,
                                            const char *key) {
    char name[100];
    snprintf(name, sizeof name, "%s.%s", architecture->name, key);
    return gguf_value_find(gguf, name);
}

/* Whether the file is of this one of the architectures that share a name. */
static bool is_told(const struct gguf *gguf, const struct architecture *architecture) {
    double number = 0;
    if (architecture->told_by) return architecture_has_tensor(gguf, architecture->told_by);
    if (architecture->told_key == NULL) return true;
    gguf_number(architecture_value(gguf, architecture, architecture->told_key), &number);
    return number != 0;
}

static void list_names(struct buffer *known) {
    const char *last = "";
    const struct architecture *architecture = architecture_at(0);
    for (size_t i = 1; architecture; i++) {
        const char *name = architecture->name;
        if (strcmp(name, last) != 0) buffer_printf(known, "%s%s", i > 1 ? ", " : "", name);
        last = name;
        architecture = architecture_at(i);
    }
}

enum status architecture_find(const struct gguf *gguf, const struct architecture **out,
                              struct error *e) {
    struct text_span name;
    if (!gguf_text(gguf_value_find(gguf, "general.architecture"), &name))
        return error_set(e, STATUS_CORRUPT, "%s: general.architecture is missing or no text",
                         gguf_name(gguf));
    *out = architecture_at(0);
    for (size_t i = 1; *out; i++) {
        if (span_is(name, (*out)->name) && is_told(gguf, *out)) return STATUS_OK;
        *out = architecture_at(i);
    }
    struct buffer known = {0};
    list_names(&known);
    error_set(e, STATUS_UNSUPPORTED, "%s: general.architecture \"%.*s\" is unknown; known: %s",
              gguf_name(gguf), (int)(name.size < 60 ? name.size : 60), name.text, known.data);
    buffer_free(&known);
    return e->status;
}
