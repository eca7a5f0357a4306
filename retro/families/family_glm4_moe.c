/* retro/families/family_glm4_moe.c: GLM-4.5 to 4.7 with experts as Hugging Face stores them: as
 * Llama, with rotary positions on half of each head; behind the first layers the MLP is one of
 * experts, chosen as in DeepSeek-V3, beside one that all rows use. Relatives of it are in
 * family_solar_open.c. */
#include "retro/families/huggingface.h"

/* The spec, and keys of experts that have no place in it. */
struct grouped_keys {
    struct model_spec spec;
    int first_dense, shared;
};

static const struct json_field fields[] = {
    {"n_routed_experts|num_local_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1,
     .max = LIMIT_EXPERTS},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN},
    {"n_shared_experts", JSON_INT, JSON_AT(struct grouped_keys, shared), .min = 0, .max = 64},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised)},
    {"routed_scaling_factor", JSON_FLOAT, AT_DECODER(router_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
    {"n_group", JSON_INT, AT_DECODER(router_groups), .min = 1, .max = LIMIT_EXPERTS, .fallback = 1},
    {"topk_group", JSON_INT, AT_DECODER(router_groups_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 1},
    {"first_k_dense_replace", JSON_INT, JSON_AT(struct grouped_keys, first_dense), .min = 0,
     .max = MAX_LAYERS},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

enum status huggingface_read_grouped_experts(const struct json *config, int first_dense, int shared,
                                             struct model_spec *spec, struct error *e) {
    struct grouped_keys keys = {.spec = *spec, .first_dense = first_dense, .shared = shared};
    struct dims *dims = &keys.spec.stacks[STACK_DECODER];
    if (spec_read(config, &table, &keys, e)) return e->status;
    dims->mlp_bias = false;
    dims->shared_ffn = keys.shared * dims->expert_ffn;
    dims->router_sigmoid = dims->router_bias = true;
    for (int i = 0; i < min_int(keys.first_dense, dims->n_layers); i++) keys.spec.dense[i] = true;
    *spec = keys.spec;
    return spec_check(spec, e);
}

/* The decoder's keys, and one that has no place in the spec. */
struct glm4_moe_keys {
    struct huggingface_decoder decoder;
    bool qk_norm;
};
static const struct json_field glm_fields[] = {
    {"use_qk_norm", JSON_BOOL, JSON_AT(struct glm4_moe_keys, qk_norm)},
};
static const struct json_table glm_table = JSON_TABLE(glm_fields, .open = true);

static enum status read_glm4_moe(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    struct glm4_moe_keys keys = {
        .decoder = {.spec = *spec, .rope = {.base = 10000, .partial = 0.5}}};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    dims->experts = 128;
    dims->experts_used = 8;
    dims->expert_ffn = 1408;
    dims->experts_renormalised = true;
    if (huggingface_read_decoder(config, &keys.decoder, e) ||
        spec_read(config, &glm_table, &keys, e))
        return e->status;
    dims->proj_bias = false;
    dims->qk_norm = keys.qk_norm ? QK_NORM_HEAD : QK_NORM_NONE;
    keys.decoder.spec.window = 0;
    if (huggingface_read_grouped_experts(config, 1, 1, &keys.decoder.spec, e)) return e->status;
    *spec = keys.decoder.spec;
    return STATUS_OK;
}

const struct tensor_row huggingface_grouped_rows[HUGGINGFACE_GROUPED_LAYER_ROWS] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
    {.place = offsetof(struct layer, router_bias), .names = {"mlp.gate.e_score_correction_bias"}},
    HUGGINGFACE_SHARED_ROWS("mlp.shared_experts"),
};

const struct family family_glm4_moe = {
    HUGGINGFACE_DECODER("glm4_moe", read_glm4_moe, huggingface_layer, huggingface_grouped_rows),
    .further_layers = true};
