/* retro/families/family_ernie.c: ERNIE 4.5 as Hugging Face stores it: as Llama, with rotary
 * positions on pairs of neighbours, a tied output matrix and one key for all biases. The larger
 * ones have experts, chosen by a softmax and a bias, beside one that all rows use. */
#include <limits.h>

#include "retro/families/huggingface.h"

/* The decoder's keys, and those that have no place in the spec. */
struct ernie_keys {
    struct huggingface_decoder decoder;
    bool bias;
    int shared, first, last, interval; /* of the layers with experts */
};

static const struct json_field fields[] = {
    {"use_bias", JSON_BOOL, JSON_AT(struct ernie_keys, bias)}};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_keys(const struct json *config, struct ernie_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    spec->tied = true;
    keys->decoder.rope.base = 500000;
    if (huggingface_read_decoder(config, &keys->decoder, e) || spec_read(config, &table, keys, e))
        return e->status;
    dims_set_bias(dims, keys->bias);
    dims->rope_interleaved = true;
    spec->window = 0;
    return STATUS_OK;
}

static enum status read_ernie(const struct json *config, struct model_spec *spec, struct error *e) {
    struct ernie_keys keys = {.decoder.spec = *spec};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 2;
    dims->head_dim = 128;
    if (read_keys(config, &keys, e)) return e->status;
    *spec = keys.decoder.spec;
    return STATUS_OK;
}

/* Experts. */

static const struct json_field moe_fields[] = {
    {"moe_num_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 64},
    {"moe_k|num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1,
     .max = LIMIT_EXPERTS, .fallback = 6},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 1536},
    {"moe_num_shared_experts", JSON_INT, JSON_AT(struct ernie_keys, shared), .min = 0, .max = 64,
     .fallback = 2},
    {"moe_layer_start_index", JSON_INT, JSON_AT(struct ernie_keys, first), .min = 0,
     .max = MAX_LAYERS, .fallback = 1},
    {"moe_layer_end_index", JSON_INT, JSON_AT(struct ernie_keys, last), .min = -1,
     .max = MAX_LAYERS, .fallback = -1},
    {"moe_layer_interval", JSON_INT, JSON_AT(struct ernie_keys, interval), .min = 1,
     .max = MAX_LAYERS, .fallback = 1},
};
static const struct json_table moe_table = JSON_TABLE(moe_fields, .open = true);

static enum status read_ernie_moe(const struct json *config, struct model_spec *model_spec,
                                  struct error *e) {
    struct ernie_keys keys = {.decoder.spec = *model_spec};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->kv_heads = 4;
    if (read_keys(config, &keys, e) || spec_read(config, &moe_table, &keys, e)) return e->status;
    dims->shared_bias = spec->output_bias = keys.bias;
    dims->shared_ffn = keys.shared * dims->expert_ffn;
    dims->experts_renormalised = true;
    dims->router_bias = true;
    int last = keys.last < 0 ? INT_MAX : keys.last;
    for (int i = 0; i < dims->n_layers; i++)
        spec->dense[i] = (i + 1) % keys.interval != 0 || i < keys.first || i > last;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row moe_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
    {.place = offsetof(struct layer, router_bias),
     .names = {"mlp.moe_statics.e_score_correction_bias",
               "mlp.gate.moe_statics.e_score_correction_bias"}},
    HUGGINGFACE_SHARED_ROWS("mlp.shared_experts"),
};

const struct family family_ernie = {
    HUGGINGFACE_DECODER("ernie4_5", read_ernie, huggingface_layer, huggingface_layer_rows)};

const struct family family_ernie_moe = {
    HUGGINGFACE_DECODER("ernie4_5_moe", read_ernie_moe, huggingface_layer, moe_rows),
    .further_layers = true};
