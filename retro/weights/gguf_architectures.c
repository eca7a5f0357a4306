/* retro/weights/gguf_architectures.c: GGUF's architectures: their keys, tensors and facts. See gguf_architectures.h. */
#include "retro/weights/gguf_architectures.h"

#include <string.h>

#define ROWS(a) a, ARRAY_COUNT(a)

static bool span_is(struct text_span s, const char *text) {
    return s.size == strlen(text) && memcmp(s.text, text, s.size) == 0;
}

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
    {"block_count", "num_hidden_layers", KEY_INT, 0}, {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, {"feed_forward_length", "intermediate_size", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.head_count_kv", "num_key_value_heads", KEY_INT, 0}, \
        {"attention.key_length", "head_dim", KEY_INT, 0}, {"attention.value_length", NULL, KEY_HEAD, 0}, \
        {epsilon, epsilon_name, KEY_FLOAT, 0}, { \
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
static const struct key_row starcoder2_keys[] = {SIZES("attention.layer_norm_epsilon", "norm_epsilon"), WHOLE_HEADS};
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
    {"attention.head_count_kv", "num_key_value_heads", KEY_WRITTEN, 0}, /* the shape of attn_qkv is checked */
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

static const struct name_row llama_outer[] = {
    {"token_embd", "model.embed_tokens", ORDER_SAME},
    {"output_norm", "model.norm", ORDER_SAME},
    {"output", "lm_head", ORDER_SAME},
};

/* llama.cpp's converter puts the queries and keys of Llama's kin in pairs; others stay as they are. */
#define ATTENTION(order_of_queries) \
    {"attn_q", "self_attn.q_proj", order_of_queries}, {"attn_k", "self_attn.k_proj", order_of_queries}, \
        {"attn_v", "self_attn.v_proj", ORDER_SAME}, { \
        "attn_output", "self_attn.o_proj", ORDER_SAME \
    }
#define HEAD_NORMS \
    {"attn_q_norm", "self_attn.q_norm", ORDER_SAME}, { "attn_k_norm", "self_attn.k_norm", ORDER_SAME }
#define NORMS_BEFORE \
    {"attn_norm", "input_layernorm", ORDER_SAME}, { "ffn_norm", "post_attention_layernorm", ORDER_SAME }
#define GATED_MLP \
    {"ffn_gate", "mlp.gate_proj", ORDER_SAME}, {"ffn_up", "mlp.up_proj", ORDER_SAME}, { \
        "ffn_down", "mlp.down_proj", ORDER_SAME \
    }

static const struct name_row llama_layer[] = {NORMS_BEFORE, ATTENTION(ORDER_PAIRED), GATED_MLP};
static const struct name_row mixtral_layer[] = {
    NORMS_BEFORE,
    ATTENTION(ORDER_PAIRED),
    {"ffn_gate_inp", "block_sparse_moe.gate", ORDER_SAME},
    {"ffn_gate_exps", "block_sparse_moe.experts.#.w1", ORDER_SAME},
    {"ffn_up_exps", "block_sparse_moe.experts.#.w3", ORDER_SAME},
    {"ffn_down_exps", "block_sparse_moe.experts.#.w2", ORDER_SAME},
};
static const struct name_row qwen_layer[] = {NORMS_BEFORE, ATTENTION(ORDER_SAME), HEAD_NORMS, GATED_MLP};
static const struct name_row qwen_moe_layer[] = {
    NORMS_BEFORE,
    ATTENTION(ORDER_SAME),
    HEAD_NORMS,
    {"ffn_gate_inp", "mlp.gate", ORDER_SAME},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj", ORDER_SAME},
    {"ffn_up_exps", "mlp.experts.#.up_proj", ORDER_SAME},
    {"ffn_gate_up_exps", "mlp.experts.#.gate_up_proj", ORDER_SAME},
    {"ffn_down_exps", "mlp.experts.#.down_proj", ORDER_SAME},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", ORDER_ROW},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", ORDER_SAME},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", ORDER_SAME},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", ORDER_SAME},
};
static const struct name_row olmo2_layer[] = {
    ATTENTION(ORDER_SAME),
    HEAD_NORMS,
    {"post_attention_norm", "post_attention_layernorm", ORDER_SAME},
    GATED_MLP,
    {"post_ffw_norm", "post_feedforward_layernorm", ORDER_SAME},
};
static const struct name_row gemma_layer[] = {
    {"attn_norm", "input_layernorm", ORDER_SAME},
    ATTENTION(ORDER_SAME),
    HEAD_NORMS,
    {"post_attention_norm", "post_attention_layernorm", ORDER_SAME},
    {"ffn_norm", "pre_feedforward_layernorm", ORDER_SAME},
    GATED_MLP,
    {"post_ffw_norm", "post_feedforward_layernorm", ORDER_SAME},
};
static const struct name_row phi3_layer[] = {
    NORMS_BEFORE,
    {"attn_qkv", "self_attn.qkv_proj", ORDER_SAME},
    {"attn_output", "self_attn.o_proj", ORDER_SAME},
    {"ffn_up", "mlp.gate_up_proj", ORDER_SAME},
    {"ffn_down", "mlp.down_proj", ORDER_SAME},
};
static const struct name_row starcoder2_layer[] = {
    NORMS_BEFORE,
    ATTENTION(ORDER_SAME),
    {"ffn_up", "mlp.c_fc", ORDER_SAME},
    {"ffn_down", "mlp.c_proj", ORDER_SAME},
};

static const struct name_row gpt2_outer[] = {
    {"token_embd", "transformer.wte", ORDER_SAME},
    {"position_embd", "transformer.wpe", ORDER_SAME},
    {"output_norm", "transformer.ln_f", ORDER_SAME},
    {"output", "lm_head", ORDER_SAME},
};
static const struct name_row gpt2_layer[] = {
    {"attn_norm", "ln_1", ORDER_SAME},
    {"attn_qkv", "attn.c_attn", ORDER_TURNED},
    {"attn_output", "attn.c_proj", ORDER_TURNED},
    {"ffn_norm", "ln_2", ORDER_SAME},
    {"ffn_up", "mlp.c_fc", ORDER_TURNED},
    {"ffn_down", "mlp.c_proj", ORDER_TURNED},
};

static const struct name_row gptneox_outer[] = {
    {"token_embd", "gpt_neox.embed_in", ORDER_SAME},
    {"output_norm", "gpt_neox.final_layer_norm", ORDER_SAME},
    {"output", "embed_out", ORDER_SAME},
};
static const struct name_row gptneox_layer[] = {
    NORMS_BEFORE,
    {"attn_qkv", "attention.query_key_value", ORDER_APART},
    {"attn_output", "attention.dense", ORDER_SAME},
    {"ffn_up", "mlp.dense_h_to_4h", ORDER_SAME},
    {"ffn_down", "mlp.dense_4h_to_h", ORDER_SAME},
};

static const struct name_row bert_outer[] = {
    {"token_embd", "embeddings.word_embeddings", ORDER_SAME},
    {"position_embd", "embeddings.position_embeddings", ORDER_SAME},
    {"token_types", "embeddings.token_type_embeddings", ORDER_SAME},
    {"token_embd_norm", "embeddings.LayerNorm", ORDER_SAME},
};
static const struct name_row bert_layer[] = {
    {"attn_q", "attention.self.query", ORDER_SAME},
    {"attn_k", "attention.self.key", ORDER_SAME},
    {"attn_v", "attention.self.value", ORDER_SAME},
    {"attn_output", "attention.output.dense", ORDER_SAME},
    {"attn_output_norm", "attention.output.LayerNorm", ORDER_SAME},
    {"ffn_up", "intermediate.dense", ORDER_SAME},
    {"ffn_down", "output.dense", ORDER_SAME},
    {"layer_output_norm", "output.LayerNorm", ORDER_SAME},
};

/* GGUF's and Hugging Face's name, keys, facts, names of tensors in layers. */
#define LLAMA_KIN(kind, type, keys_of, facts_of, names) \
    .name = (kind), .model_type = (type), .keys = (keys_of), .n_keys = ARRAY_COUNT(keys_of), .facts = (facts_of), \
    .n_facts = ARRAY_COUNT(facts_of), .layers = "model.layers.#.", .outer = {ROWS(llama_outer)}, \
    .layer = {ROWS(names)}

static const struct architecture architectures[] = {
    {LLAMA_KIN("llama", "mixtral", mixtral_keys, llama_facts, mixtral_layer), .told_by = "blk.0.ffn_gate_inp.weight"},
    {LLAMA_KIN("llama", "llama", llama_keys, llama_facts, llama_layer)},
    {LLAMA_KIN("smollm3", "smollm3", llama_keys, llama_facts, llama_layer)},
    {LLAMA_KIN("granite", "granite", granite_keys, llama_facts, llama_layer)},
    {LLAMA_KIN("qwen2", "qwen2", llama_keys, plain_facts, qwen_layer)},
    {LLAMA_KIN("qwen2vl", "qwen2_vl", qwen_vl_keys, plain_facts, qwen_layer)}, /* without the tower */
    {LLAMA_KIN("qwen3", "qwen3", llama_keys, llama_facts, qwen_layer)},
    {LLAMA_KIN("qwen2moe", "qwen2_moe", qwen_moe_keys, qwen2_moe_facts, qwen_moe_layer)},
    {LLAMA_KIN("qwen3moe", "qwen3_moe", qwen_moe_keys, qwen3_moe_facts, qwen_moe_layer)},
    {LLAMA_KIN("phi3", "phi3", phi3_keys, plain_facts, phi3_layer)},
    {LLAMA_KIN("olmo2", "olmo2", llama_keys, llama_facts, olmo2_layer)},
    {LLAMA_KIN("gemma2", "gemma2", gemma2_keys, gemma_facts, gemma_layer), .divisor = "query_pre_attn_scalar",
     .divided_layers = 46},
    {LLAMA_KIN("gemma3", "gemma3_text", gemma3_keys, gemma_facts, gemma_layer), .divisor = "query_pre_attn_scalar",
     .divided_layers = 62},
    {LLAMA_KIN("starcoder2", "starcoder2", starcoder2_keys, plain_facts, starcoder2_layer)},
    {.name = "gpt2",
     .model_type = "gpt2",
     .keys = ROWS(gpt2_keys),
     .facts = ROWS(plain_facts),
     .layers = "transformer.h.#.",
     .outer = {ROWS(gpt2_outer)},
     .layer = {ROWS(gpt2_layer)}},
    /* RoBERTa's files too: what its positions skip, the converter has cut off. */
    {.name = "bert",
     .model_type = "bert",
     .keys = ROWS(bert_keys),
     .layers = "encoder.layer.#.",
     .outer = {ROWS(bert_outer)},
     .layer = {ROWS(bert_layer)},
     .activation = "gelu"},
    {.name = "gptneox",
     .model_type = "gpt_neox",
     .keys = ROWS(gptneox_keys),
     .facts = ROWS(plain_facts),
     .layers = "gpt_neox.layers.#.",
     .outer = {ROWS(gptneox_outer)},
     .layer = {ROWS(gptneox_layer)}},
};

const struct architecture *architecture_of_type(const char *model_type) {
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++)
        if (strcmp(architectures[i].model_type, model_type) == 0) return &architectures[i];
    return NULL;
}

const struct key_row *architecture_key(const struct architecture *a, const char *name) {
    for (size_t i = 0; i < a->n_keys; i++)
        if (a->keys[i].name && strcmp(a->keys[i].name, name) == 0) return &a->keys[i];
    return NULL;
}

const struct fact_row *architecture_fact(const struct architecture *a, const char *name) {
    for (size_t i = 0; i < a->n_facts; i++)
        if (strcmp(a->facts[i].name, name) == 0) return &a->facts[i];
    return NULL;
}

const struct name_row *name_of_file(const struct rows_of_names *names, struct text_span from) {
    for (size_t i = 0; i < names->n; i++)
        if (span_is(from, names->rows[i].from)) return &names->rows[i];
    return NULL;
}

const struct name_row *name_of_folder(const struct rows_of_names *names, struct text_span to) {
    for (size_t i = 0; i < names->n; i++)
        if (span_is(to, names->rows[i].to)) return &names->rows[i];
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

enum status architecture_find(const struct gguf *g, const struct architecture **out, struct error *e) {
    struct text_span name;
    if (!gguf_text(gguf_value_find(g, "general.architecture"), &name))
        return error_set(e, STATUS_CORRUPT, "%s: general.architecture is missing or no text", gguf_name(g));
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        *out = &architectures[i];
        const char *known = (*out)->name, *told_by = (*out)->told_by;
        bool named = name.size == strlen(known) && memcmp(name.text, known, name.size) == 0;
        if (named && (told_by == NULL || gguf_find(g, told_by))) return STATUS_OK;
    }
    struct buffer known = {0};
    list_names(&known);
    error_set(e, STATUS_UNSUPPORTED, "%s: general.architecture \"%.*s\" is unknown; known: %s", gguf_name(g),
              (int)(name.size < 60 ? name.size : 60), name.text, known.data);
    buffer_free(&known);
    return e->status;
}
