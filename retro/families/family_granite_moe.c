/* retro/families/family_granite_moe.c: Granite 3 with experts as Hugging Face stores it: as Granite
 * (family_granite.c), with experts in all layers, beside an MLP that all rows use or alone. */
#include "retro/families/huggingface.h"

static const struct json_field expert_fields[] = {
    {"num_local_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 8},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 2},
};
static const struct json_table expert_table = JSON_TABLE(expert_fields, .open = true);

static const struct json_field shared_fields[] = {
    {"shared_intermediate_size", JSON_INT, AT_DECODER(shared_ffn), .min = 0, .max = LIMIT_FFN},
};
static const struct json_table shared_table = JSON_TABLE(shared_fields, .open = true);

enum status huggingface_read_granite_experts(const struct json *config, bool shared,
                                             struct model_spec *spec, struct error *e) {
    struct dims *dims = &spec->stacks[STACK_DECODER];
    if (spec_read(config, &expert_table, spec, e) ||
        (shared && spec_read(config, &shared_table, spec, e)))
        return e->status;
    dims->mlp_bias = false;
    dims->expert_ffn = dims->ffn;
    dims->experts_renormalised = true; /* a softmax of the chosen alone is that of all, divided */
    return spec_check(spec, e);
}

static enum status read_experts(const struct json *config, bool shared, struct model_spec *spec,
                                struct error *e) {
    struct model_spec read = *spec;
    if (family_granite.read(config, &read, e) ||
        huggingface_read_granite_experts(config, shared, &read, e))
        return e->status;
    *spec = read;
    return STATUS_OK;
}

static enum status read_moe(const struct json *config, struct model_spec *spec, struct error *e) {
    return read_experts(config, false, spec, e);
}

static enum status read_moe_shared(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    return read_experts(config, true, spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_GRANITE_EXPERT_ROWS,
};

const struct family family_granite_moe = {
    HUGGINGFACE_DECODER("granitemoe", read_moe, huggingface_layer, layer_rows)};

const struct family family_granite_moe_shared = {
    HUGGINGFACE_DECODER("granitemoeshared", read_moe_shared, huggingface_layer, layer_rows)};
