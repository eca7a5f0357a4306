/* retro/families/family_glm4_moe.c: GLM-4.5 to 4.7 with experts as Hugging Face stores them: as
 * Llama, with rotary positions on half of each head; behind the first layers the MLP is one of
 * experts, chosen as in DeepSeek-V3, beside one that all rows use. */
#include "retro/families/huggingface.h"

/* The decoder's keys, and those of experts that have no place in the spec. */
struct glm4_moe_keys {
    struct huggingface_decoder decoder;
    int first_dense, shared;
    bool qk_norm;
};

static const struct json_field fields[] = {
    {"n_routed_experts|num_local_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1,
     .max = LIMIT_EXPERTS, .fallback = 128},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 8},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 1408},
    {"n_shared_experts", JSON_INT, JSON_AT(struct glm4_moe_keys, shared), .min = 0, .max = 64,
     .fallback = 1},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised), .fallback = true},
    {"routed_scaling_factor", JSON_FLOAT, AT_DECODER(router_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
    {"n_group", JSON_INT, AT_DECODER(router_groups), .min = 1, .max = LIMIT_EXPERTS, .fallback = 1},
    {"topk_group", JSON_INT, AT_DECODER(router_groups_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 1},
    {"first_k_dense_replace", JSON_INT, JSON_AT(struct glm4_moe_keys, first_dense), .min = 0,
     .max = MAX_LAYERS, .fallback = 1},
    {"use_qk_norm", JSON_BOOL, JSON_AT(struct glm4_moe_keys, qk_norm)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_glm4_moe(const struct json *config, struct model_spec *model_spec,
                                 struct error *e) {
    struct glm4_moe_keys keys = {
        .decoder = {.spec = *model_spec, .rope = {.base = 10000, .partial = 0.5}}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e))
        return e->status;
    dims->proj_bias = dims->mlp_bias = false;
    dims->qk_norm = keys.qk_norm ? QK_NORM_HEAD : QK_NORM_NONE;
    dims->shared_ffn = keys.shared * dims->expert_ffn;
    dims->router_sigmoid = dims->router_bias = true;
    for (int i = 0; i < min_int(keys.first_dense, dims->n_layers); i++) spec->dense[i] = true;
    spec->window = 0;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
    {.place = offsetof(struct layer, router_bias), .names = {"mlp.gate.e_score_correction_bias"}},
    HUGGINGFACE_SHARED_ROWS("mlp.shared_experts"),
};

const struct family family_glm4_moe = {
    HUGGINGFACE_DECODER("glm4_moe", read_glm4_moe, huggingface_layer, layer_rows),
    .further_layers = true};
