/* retro/families/family_olmoe.c: OLMoE as Hugging Face stores it: as Llama, with norms of queries
 * and keys over all heads at once, and experts in all layers. */
#include "retro/families/huggingface.h"

/* The decoder's keys, and one that has no place in the spec. */
struct olmoe_keys {
    struct huggingface_decoder decoder;
    const struct json *clip; /* clip_qkv */
};

static const struct json_field fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 64},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 8},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised)},
    {"clip_qkv", JSON_RAW, JSON_AT(struct olmoe_keys, clip)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_olmoe(const struct json *config, struct model_spec *model_spec,
                              struct error *e) {
    struct olmoe_keys keys = {.decoder = {.spec = *model_spec, .rope = {.base = 10000}}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e))
        return e->status;
    if (!json_is_absent(keys.clip))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"clip_qkv\" is not supported: leave it out or send null");
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_WHOLE;
    dims->expert_ffn = dims->ffn;
    spec->window = 0;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_EXPERT_ROWS,
};

const struct family family_olmoe = {
    HUGGINGFACE_DECODER("olmoe", read_olmoe, huggingface_layer, layer_rows)};
