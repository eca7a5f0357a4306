/* retro/weights/gguf_hybrids.c: GGUF's architectures whose layers are of several kinds: with states
 * in place of attention, with experts behind dense layers, with attention over latents. See
 * gguf_architectures.h. */
#include "retro/weights/gguf_rows.h"

/* Sizes of heads with states, by Qwen's names. */
#define DELTA_KEYS \
    {"ssm.conv_kernel", "linear_conv_kernel_dim", KEY_INT, 0}, \
        {"ssm.state_size", "linear_key_head_dim", KEY_INT, 0}, \
        {"ssm.group_count", "linear_num_key_heads", KEY_INT, 0}, \
        {"ssm.time_step_rank", "linear_num_value_heads", KEY_INT, 0}, \
        {"ssm.inner_size", "linear_value_head_dim", KEY_PER_HEAD, 0}, \
        {"full_attention_interval", "full_attention_interval", KEY_INT, 0}, { \
        "attention.recurrent_layers", NULL, KEY_STATES, 0 \
    }
#define PARTIAL_ROPE \
    { "rope.dimension_count", "partial_rotary_factor", KEY_SHARE, 0 }
/* Of a model without a tower they say nothing: the three positions of a row of text are one. */
#define SECTIONS \
    { "rope.dimension_sections", "mrope_section", KEY_SECTIONS, 0 }
#define QWEN_EXPERTS \
    EXPERTS("num_experts"), {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0}, { \
        "expert_shared_feed_forward_length", "shared_expert_intermediate_size", KEY_INT, 0 \
    }
/* Experts that sigmoids choose. */
#define SIGMOID \
    { "expert_gating_func", NULL, KEY_NEUTRAL, 2 }

static const struct key_row qwen_next_keys[] = {RMS_SIZES, QWEN_EXPERTS, PARTIAL_ROPE, DELTA_KEYS};
static const struct key_row qwen35_keys[] = {RMS_SIZES, PARTIAL_ROPE, DELTA_KEYS, SECTIONS};
static const struct key_row qwen35_moe_keys[] = {RMS_SIZES, QWEN_EXPERTS, PARTIAL_ROPE, DELTA_KEYS,
                                                 SECTIONS};
static const struct fact_row qwen_next_facts[] = {TIED,
                                                  AROUND_ONE,
                                                  PLAIN_RATE,
                                                  {"attention_bias", "blk.#.attn_q.bias", false},
                                                  {"norm_topk_prob", "", .absent = true}};

/* DeepSeek's experts; one group of them where a file does not tell. */
#define GROUPED_EXPERTS \
    EXPERTS("n_routed_experts"), \
        {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0}, \
        {"expert_shared_count", "n_shared_experts", KEY_INT, 0}, \
        {"leading_dense_block_count", "first_k_dense_replace", KEY_COUNT, 0}, \
        {"expert_weights_scale", "routed_scaling_factor", KEY_FLOAT, 1}, \
        {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, 0}, \
        {"expert_group_count", "n_group", KEY_INT, 1}, { \
        "expert_group_used_count", "topk_group", KEY_INT, 1 \
    }
/* Sizes of heads are in several keys: gguf_write_latents. */
#define LATENT_KEYS \
    {"block_count", "num_hidden_layers", KEY_LAYERS, 0}, \
        {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, \
        {"feed_forward_length", "intermediate_size", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.head_count_kv", NULL, KEY_IGNORED, 0}, \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_FLOAT, 0}, \
        {"rope.freq_base", "rope_theta", KEY_FLOAT, 10000}, \
        {"attention.q_lora_rank", "q_lora_rank", KEY_OR_NULL, 0}, \
        {"attention.kv_lora_rank", "kv_lora_rank", KEY_INT, 0}, \
        {"rope.dimension_count", "qk_rope_head_dim", KEY_INT, 0}, \
        {"attention.key_length", NULL, KEY_IGNORED, 0}, \
        {"attention.value_length", NULL, KEY_IGNORED, 0}, \
        {"attention.key_length_mla", NULL, KEY_IGNORED, 0}, { \
        "attention.value_length_mla", NULL, KEY_IGNORED, 0 \
    }
static const struct key_row deepseek2_keys[] = {LATENT_KEYS, GROUPED_EXPERTS};
static const struct key_row deepseek3_keys[] = {LATENT_KEYS, GROUPED_EXPERTS, SIGMOID};
static const struct key_row deepseek_scaling[] = {
    {"rope.scaling.yarn_log_multiplier", "mscale", KEY_MSCALE, 0.1}};
static const struct fact_row tied_facts[] = {TIED};

static const struct key_row glm4_moe_keys[] = {RMS_SIZES, GROUPED_EXPERTS, SIGMOID, PARTIAL_ROPE};
static const struct key_row dots1_keys[] = {RMS_SIZES, WHOLE_HEADS, GROUPED_EXPERTS, SIGMOID};
static const struct fact_row glm4_moe_facts[] = {
    TIED,
    {"attention_bias", "blk.0.attn_q.bias", false},
    {"use_qk_norm", "blk.0.attn_q_norm.weight", false},
};

/* The expert that all rows use is as wide as so many of the others. */
static const struct key_row ernie_moe_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"expert_count", "moe_num_experts", KEY_INT, 0},
    {"expert_used_count", "moe_k", KEY_INT, 0},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"expert_shared_count", "moe_num_shared_experts", KEY_COUNT, 0},
    {"expert_shared_feed_forward_length", NULL, KEY_IGNORED, 0},
    {"leading_dense_block_count", "moe_layer_start_index", KEY_COUNT, 0},
    {"interleave_moe_layer_step", "moe_layer_interval", KEY_INT, 1},
};

static const struct key_row minimax_keys[] = {
    RMS_SIZES,
    EXPERTS("num_local_experts"),
    SIGMOID,
    {"expert_feed_forward_length", NULL, KEY_IGNORED, 0}, /* as feed_forward_length */
    {"rope.dimension_count", "rotary_dim", KEY_INT, 0},
};

/* Layers with states have no key/value heads. */
#define HYBRID_SIZES(epsilon, epsilon_name) \
    {"block_count", "num_hidden_layers", KEY_LAYERS, 0}, \
        {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, \
        {"feed_forward_length", "intermediate_size", KEY_UNEVEN, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.head_count_kv", "num_key_value_heads", KEY_UNEVEN, 0}, \
        {"attention.key_length", "head_dim", KEY_INT, 0}, \
        {"attention.value_length", NULL, KEY_HEAD, 0}, {epsilon, epsilon_name, KEY_FLOAT, 0}, { \
        "rope.freq_base", "rope_theta", KEY_FLOAT, 10000 \
    }
#define LFM2_KEYS \
    HYBRID_SIZES("attention.layer_norm_rms_epsilon", "norm_eps"), WHOLE_HEADS, { \
        "shortconv.l_cache", "conv_L_cache", KEY_INT, 0 \
    }
static const struct key_row lfm2_keys[] = {LFM2_KEYS};
static const struct key_row lfm2_moe_keys[] = {
    LFM2_KEYS,
    EXPERTS("num_experts"),
    SIGMOID,
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"leading_dense_block_count", "num_dense_layers", KEY_COUNT, 0},
};
/* The file has the size of the MLP as it is. */
static const struct fact_row lfm2_facts[] = {TIED,
                                             {"block_auto_adjust_ff_dim", "", false},
                                             {"conv_bias", "blk.#.shortconv.conv.bias", false}};

static const struct key_row granite_hybrid_keys[] = {
    HYBRID_SIZES("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    WHOLE_HEADS,
    {"attention.scale", "attention_multiplier", KEY_FLOAT, 0},
    {"embedding_scale", "embedding_multiplier", KEY_FLOAT, 0},
    {"residual_scale", "residual_multiplier", KEY_FLOAT, 0},
    {"logit_scale", "logits_scaling", KEY_FLOAT, 0},
    {"rope.scaling.finetuned", "position_embedding_type", KEY_TURNS, 0},
    {"ssm.conv_kernel", "mamba_d_conv", KEY_INT, 0},
    {"ssm.state_size", "mamba_d_state", KEY_INT, 0},
    {"ssm.group_count", "mamba_n_groups", KEY_INT, 0},
    {"ssm.time_step_rank", "mamba_n_heads", KEY_INT, 0},
    {"ssm.inner_size", "mamba_d_head", KEY_PER_HEAD, 0},
    {"expert_count", "num_local_experts", KEY_COUNT, 0},
    {"expert_used_count", "num_experts_per_tok", KEY_COUNT, 0},
    {"expert_shared_feed_forward_length", "shared_intermediate_size", KEY_INT, 0},
};
static const struct fact_row granite_hybrid_facts[] = {
    TIED,
    PLAIN_RATE,
    {"attention_bias", "blk.#.attn_q.bias", false},
    {"mamba_conv_bias", "blk.#.ssm_conv1d.bias", false},
    {"mamba_proj_bias", "blk.#.ssm_in.bias", false},
};

/* Most of what tells layers apart is in several keys: gguf_write_wide. */
static const struct key_row gemma4_keys[] = {
    {"block_count", "num_hidden_layers", KEY_LAYERS, 0},
    {"context_length", "max_position_embeddings", KEY_INT, 0},
    {"embedding_length", "hidden_size", KEY_INT, 0},
    {"feed_forward_length", NULL, KEY_IGNORED, 0},
    {"attention.head_count", "num_attention_heads", KEY_INT, 0},
    {"attention.head_count_kv", NULL, KEY_IGNORED, 0},
    {"attention.key_length", NULL, KEY_IGNORED, 0},
    {"attention.value_length", NULL, KEY_HEAD, 0},
    {"attention.key_length_swa", "head_dim", KEY_INT, 0},
    {"attention.value_length_swa", NULL, KEY_IGNORED, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_FLOAT, 0},
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
    {"attention.sliding_window_pattern", NULL, KEY_IGNORED, 0},
    {"attention.shared_kv_layers", "num_kv_shared_layers", KEY_COUNT, 0},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input", KEY_COUNT, 0},
    {"final_logit_softcapping", "final_logit_softcapping", KEY_FLOAT, 0},
    {"rope.dimension_count", NULL, KEY_HEAD, 0},
    {"rope.dimension_count_swa", NULL, KEY_IGNORED, 0},
    {"rope.freq_base", NULL, KEY_IGNORED, 0},
    {"rope.freq_base_swa", NULL, KEY_IGNORED, 0},
    {"expert_count", "num_experts", KEY_INT, 0},
    {"expert_used_count", "top_k_experts", KEY_INT, 0},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
};
static const struct fact_row gemma4_facts[] = {
    TIED,
    {"attention_bias", "blk.#.attn_q.bias", false},
    {"enable_moe_block", "blk.#.ffn_gate_inp.weight", false},
};

/* llama.cpp has the lengths of chunks and of texts from which queries grow, the step of layers
 * without RoPE, and that the model of 128 experts norms no heads, as constants. */
static const struct key_row llama4_keys[] = {
    {"block_count", "num_hidden_layers", KEY_LAYERS, 0},
    {"context_length", "max_position_embeddings", KEY_INT, 0},
    {"embedding_length", "hidden_size", KEY_INT, 0},
    {"feed_forward_length", "intermediate_size_mlp", KEY_INT, 0},
    {"attention.head_count", "num_attention_heads", KEY_INT, 0},
    {"attention.head_count_kv", "num_key_value_heads", KEY_INT, 0},
    {"attention.key_length", "head_dim", KEY_INT, 0},
    {"attention.value_length", NULL, KEY_HEAD, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_FLOAT, 0},
    {"attention.sliding_window", NULL, KEY_NEUTRAL, 8192},
    {"rope.freq_base", "rope_theta", KEY_FLOAT, 10000},
    WHOLE_HEADS,
    {"expert_count", "use_qk_norm", KEY_DIFFERS, 128},
    {"expert_count", "num_local_experts", KEY_INT, 0},
    {"expert_used_count", "num_experts_per_tok", KEY_INT, 0},
    {"expert_feed_forward_length", "intermediate_size", KEY_INT, 0},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", KEY_INT, 0},
    {"expert_gating_func", NULL, KEY_NEUTRAL, 2},
};
static const struct fact_row biased_facts[] = {TIED,
                                               {"attention_bias", "blk.0.attn_q.bias", false}};

/* The base of RoPE is stretched already. */
static const struct key_row hunyuan_moe_keys[] = {
    RMS_SIZES,
    WHOLE_HEADS,
    {"expert_count", "num_experts", KEY_INT, 0},
    {"expert_used_count", "moe_topk", KEY_INT, 0},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"expert_shared_count", "num_shared_expert", KEY_INT, 0},
    {"expert_shared_feed_forward_length", NULL, KEY_IGNORED, 0}, /* as feed_forward_length */
};

#define NEMOTRON_KEYS \
    HYBRID_SIZES("attention.layer_norm_epsilon", "layer_norm_epsilon"), \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_FLOAT, 0}, \
        {"rope.dimension_count", NULL, KEY_IGNORED, 0}, \
        {"ssm.conv_kernel", "conv_kernel", KEY_INT, 0}, \
        {"ssm.state_size", "ssm_state_size", KEY_INT, 0}, \
        {"ssm.group_count", "n_groups", KEY_INT, 0}, \
        {"ssm.time_step_rank", "mamba_num_heads", KEY_INT, 0}, { \
        "ssm.inner_size", "mamba_head_dim", KEY_PER_HEAD, 0 \
    }
static const struct key_row nemotron_keys[] = {NEMOTRON_KEYS};
static const struct key_row nemotron_moe_keys[] = {
    NEMOTRON_KEYS,
    EXPERTS("n_routed_experts"),
    SIGMOID,
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_INT, 0},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size", KEY_INT, 0},
    {"moe_latent_size", "moe_latent_size", KEY_INT, 0},
    {"expert_shared_count", NULL, KEY_NEUTRAL, 1},
    {"expert_weights_scale", "routed_scaling_factor", KEY_FLOAT, 1},
    {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, 0},
    {"expert_group_count", "n_group", KEY_INT, 1},
    {"expert_group_used_count", "topk_group", KEY_INT, 1},
};
static const struct fact_row nemotron_facts[] = {
    TIED,
    PLAIN_RATE,
    {"mlp_bias", "blk.#.ffn_up.bias", false},
    {"use_conv_bias", "blk.#.ssm_conv1d.bias", false},
    {"use_bias", "blk.#.ssm_in.bias", false},
};

const struct architecture architecture_hybrids[] = {
    {ARCHITECTURE("qwen3next", "qwen3_next", qwen_next_keys, qwen_next_facts)},
    {ARCHITECTURE("qwen35", "qwen3_5_text", qwen35_keys, qwen_next_facts), .tiled = true},
    {ARCHITECTURE("qwen35moe", "qwen3_5_moe_text", qwen35_moe_keys, qwen_next_facts),
     .tiled = true},
    {ARCHITECTURE("deepseek2", "deepseek_v3", deepseek3_keys, tied_facts),
     .told_by = "blk.#.exp_probs_b.bias", .scaling = ROWS(deepseek_scaling), .latent = true},
    {ARCHITECTURE("deepseek2", "deepseek_v2", deepseek2_keys, tied_facts),
     .scaling = ROWS(deepseek_scaling), .latent = true},
    {ARCHITECTURE("glm4moe", "glm4_moe", glm4_moe_keys, glm4_moe_facts)},
    {ARCHITECTURE("dots1", "dots1", dots1_keys, biased_facts)},
    {ARCHITECTURE("ernie4_5-moe", "ernie4_5_moe", ernie_moe_keys, tied_facts)},
    {ARCHITECTURE("minimax-m2", "minimax_m2", minimax_keys, tied_facts)},
    {ARCHITECTURE("gemma4", "gemma4_text", gemma4_keys, gemma4_facts), .wide = true},
    {ARCHITECTURE("llama4", "llama4_text", llama4_keys, biased_facts)},
    {ARCHITECTURE("hunyuan-moe", "hunyuan_v1_moe", hunyuan_moe_keys, biased_facts)},
    {ARCHITECTURE("lfm2", "lfm2", lfm2_keys, lfm2_facts), .kinds_key = "layer_types",
     .state_kind = "conv"},
    {ARCHITECTURE("lfm2moe", "lfm2_moe", lfm2_moe_keys, lfm2_facts), .kinds_key = "layer_types",
     .state_kind = "conv"},
    {ARCHITECTURE("granitehybrid", "granitemoehybrid", granite_hybrid_keys, granite_hybrid_facts),
     .paired = true, .kinds_key = "layer_types", .state_kind = "mamba"},
    {ARCHITECTURE("nemotron_h", "nemotron_h", nemotron_keys, nemotron_facts),
     .kinds_key = "layers_block_type", .state_kind = "mamba", .mlp_kind = "mlp"},
    {ARCHITECTURE("nemotron_h_moe", "nemotron_h", nemotron_moe_keys, nemotron_facts),
     .kinds_key = "layers_block_type", .state_kind = "mamba", .mlp_kind = "moe"},
};
const size_t architecture_n_hybrids = ARRAY_COUNT(architecture_hybrids);
