/* retro/families/family_qwen_moe.c: Qwen2 and Qwen3 with experts as Hugging Face stores them:
 * attention as in Qwen2 and Qwen3; the MLP of most layers is one of experts, in Qwen2 beside an
 * expert that all rows use. */
#include "retro/families/huggingface.h"

/* The decoder's keys, and those of experts that have no place in the spec. */
struct moe_keys {
    struct huggingface_decoder decoder;
    bool qkv_bias;
    int sparse_step;          /* every so many layers has experts */
    const struct json *dense; /* mlp_only_layers: numbers of layers without */
};

/* The caller fills in what an absent size stands for. */
static const struct json_field qwen_fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1,
     .max = LIMIT_EXPERTS},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised)},
    {"decoder_sparse_step", JSON_INT, JSON_AT(struct moe_keys, sparse_step), .min = 1,
     .max = MAX_LAYERS, .fallback = 1},
    {"mlp_only_layers", JSON_RAW, JSON_AT(struct moe_keys, dense)},
};
static const struct json_table qwen_table = JSON_TABLE(qwen_fields, .open = true);

static const struct json_field shared_fields[] = {
    {"shared_expert_intermediate_size", JSON_INT, AT_DECODER(shared_ffn), .min = 1,
     .max = LIMIT_FFN},
    {"qkv_bias", JSON_BOOL, JSON_AT(struct moe_keys, qkv_bias)},
};
static const struct json_table shared_table = JSON_TABLE(shared_fields, .open = true);

static struct dims *start_keys(struct moe_keys *keys, const struct model_spec *spec, int kv_heads,
                               double base) {
    *keys = (struct moe_keys){
        .decoder = {.spec = *spec, .rope = {.base = base}, .max_window_layers = 28}};
    struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = kv_heads;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    return dims;
}

/* The keys that Qwen's two share. */
static enum status read_qwen(const struct json *config, struct moe_keys *keys, struct error *e) {
    keys->decoder.spec.window = 4096;
    if (huggingface_read_decoder(config, &keys->decoder, e) ||
        spec_read(config, &qwen_table, keys, e) ||
        huggingface_read_dense(&keys->decoder.spec, keys->sparse_step, keys->dense, e))
        return e->status;
    keys->decoder.spec.stacks[STACK_DECODER].mlp_bias = false;
    if (!keys->decoder.use_window) keys->decoder.spec.window = 0;
    return STATUS_OK;
}

/* Where layer_types is silent, every other layer has the window, from the first to
 * max_window_layers. */
static enum status read_qwen2_moe(const struct json *config, struct model_spec *model_spec,
                                  struct error *e) {
    struct moe_keys keys;
    struct dims *dims = start_keys(&keys, model_spec, 16, 10000);
    struct model_spec *spec = &keys.decoder.spec;
    dims->experts = 60;
    dims->experts_used = 4;
    dims->expert_ffn = 1408;
    dims->shared_ffn = 5632;
    dims->shared_gated = true;
    keys.qkv_bias = true;
    keys.decoder.zero_window = true;
    if (read_qwen(config, &keys, e) || spec_read(config, &shared_table, &keys, e)) return e->status;
    dims->qkv_bias = keys.qkv_bias;
    dims->proj_bias = false;

    bool listed = !json_is_absent(keys.decoder.layer_types);
    if (listed && huggingface_read_layer_types(&keys.decoder, dims->n_layers, e)) return e->status;
    for (int i = 0; i < min_int(dims->n_layers, keys.decoder.max_window_layers) && !listed; i += 2)
        spec->windowed[i] = spec->window > 0;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

/* All layers have the window, where there is one. */
enum status huggingface_read_qwen3_moe(const struct json *config,
                                       struct huggingface_decoder *decoder, struct error *e) {
    struct moe_keys keys = {.decoder = *decoder};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->qk_norm = QK_NORM_HEAD;
    if (read_qwen(config, &keys, e)) return e->status;
    for (int i = 0; i < dims->n_layers; i++)
        keys.decoder.spec.windowed[i] = keys.decoder.spec.window > 0;
    *decoder = keys.decoder;
    return spec_check(&decoder->spec, e);
}

static enum status read_qwen3_moe(const struct json *config, struct model_spec *spec,
                                  struct error *e) {
    struct moe_keys keys;
    struct dims *dims = start_keys(&keys, spec, 4, 10000);
    dims->experts = 128;
    dims->experts_used = 8;
    dims->expert_ffn = 768;
    if (huggingface_read_qwen3_moe(config, &keys.decoder, e)) return e->status;
    *spec = keys.decoder.spec;
    return STATUS_OK;
}

/* Of layers with experts and without, and with a shared expert and without. Where transformers 5
 * stacks the experts, gate and up are one tensor. */
static const struct tensor_row qwen_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
    {.place = offsetof(struct layer, shared_gate), .names = {"mlp.shared_expert_gate.*"}},
    HUGGINGFACE_SHARED_ROWS("mlp.shared_expert"),
};

/* Qwen3-VL's: as published each expert is [in, out], as transformers writes them [out, in]. GGUF
 * files have gate and up apart. */
static const struct tensor_row turned_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    {.place = offsetof(struct layer, router), .names = {"mlp.gate.weight"}},
    HUGGINGFACE_GATE_UP_ROWS(expert_fc1, "mlp.experts.#"),
    {.place = offsetof(struct layer, expert_fc1),
     .names = {"mlp.experts.#.gate_up_proj.*"},
     .turned_if_so = true},
    {.place = offsetof(struct layer, expert_fc2),
     .names = {"mlp.experts.#.down_proj.*"},
     .turned_if_so = true},
};

const struct family family_qwen3_turned_moe = {
    HUGGINGFACE_DECODER("qwen3_vl_moe_text", read_qwen3_moe, huggingface_layer, turned_rows)};

const struct family family_qwen2_moe = {
    HUGGINGFACE_DECODER("qwen2_moe", read_qwen2_moe, huggingface_layer, qwen_rows)};

const struct family family_qwen3_moe = {
    HUGGINGFACE_DECODER("qwen3_moe", read_qwen3_moe, huggingface_layer, qwen_rows)};
