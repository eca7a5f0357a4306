/* retro/families/family_mellum.c: Mellum 2 as Hugging Face stores it: as Qwen3 with experts, with
 * windows in the layers that layer_types names, which turn by frequencies of their own. */
#include "retro/families/huggingface.h"

/* The keys that have no place in the spec. */
struct mellum_keys {
    struct huggingface_decoder decoder;
    const struct json *mlp_types;
};

static const struct json_field fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1,
     .max = LIMIT_EXPERTS},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised), .fallback = true},
    {"mlp_layer_types", JSON_RAW, JSON_AT(struct mellum_keys, mlp_types)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_mellum(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    struct rope_rules rope = {.base = 500000, .local_base = 10000, .local_fixed = true};
    struct mellum_keys keys = {.decoder = {.spec = *spec, .rope = rope}};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 4;
    dims->head_dim = 128;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    dims->experts = 64;
    dims->experts_used = 8;
    dims->expert_ffn = 896;
    keys.decoder.spec.window = 1024;
    keys.decoder.window_pattern = 1; /* no layer has it, where layer_types is silent */
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        huggingface_read_windows(&keys.decoder, e) ||
        huggingface_read_mlp_types(&keys.decoder.spec, keys.mlp_types, 0, e))
        return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    *spec = keys.decoder.spec;
    return spec_check(spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
};

/* Published folders have a layer that foretells tokens. */
const struct family family_mellum = {
    .model_type = "mellum",
    .read = read_mellum,
    .inspect = huggingface_find_output,
    .layer = huggingface_local_layer,
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, huggingface_outer_rows, HUGGINGFACE_OUTER_ROWS},
    .ignores = huggingface_ignores_foretelling};
