/* retro/families/family_afmoe.c: Arcee's Trinity as Hugging Face stores it: norms before and after
 * branches and of each head's queries and keys, heads that are weighed by sigmoids, a window and
 * rotary positions in three of four layers and neither in the others; behind the first layers
 * experts, chosen by sigmoids and a bias, beside one that all rows use. */
#include "retro/families/huggingface.h"

#include <math.h>

/* The decoder's keys, and those that have no place in the spec. */
struct afmoe_keys {
    struct huggingface_decoder decoder;
    int first_dense, shared;
    bool scaled; /* mup_enabled: words are multiplied by the root of the hidden size */
};

#define AT_KEYS(member) JSON_AT(struct afmoe_keys, member)
static const struct json_field fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 64},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 6},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 1408},
    {"num_shared_experts", JSON_INT, AT_KEYS(shared), .min = 1, .max = 64, .fallback = 2},
    {"num_dense_layers", JSON_INT, AT_KEYS(first_dense), .min = 0, .max = MAX_LAYERS,
     .fallback = 1},
    {"route_scale", JSON_FLOAT, AT_DECODER(router_scale), .min = 1e-30, .max = 1e30, .fallback = 1},
    {"global_attn_every_n_layers", JSON_INT, AT_KEYS(decoder.window_pattern), .min = 1,
     .max = MAX_LAYERS, .fallback = 4},
    {"mup_enabled", JSON_BOOL, AT_KEYS(scaled)},
    {.name = "attention_bias", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_afmoe(const struct json *config, struct model_spec *model_spec,
                              struct error *e) {
    struct afmoe_keys keys = {.decoder = {.spec = *model_spec, .rope = {.base = 10000}}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->head_dim = 128;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    spec->window = 1024;
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        huggingface_read_windows(&keys.decoder, e))
        return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    dims->head_gate = dims->head_dim;
    dims->shared_ffn = keys.shared * dims->expert_ffn;
    dims->experts_renormalised = dims->router_sigmoid = dims->router_bias = true;
    spec->embedding_scale = keys.scaled ? sqrtf((float)dims->hidden) : 1;
    for (int i = 0; i < dims->n_layers; i++) {
        spec->dense[i] = i < keys.first_dense;
        spec->unrotated[i] = !spec->windowed[i];
    }
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, qkv), .part = PART_FOURTH, .names = {"self_attn.gate_proj.*"}},
    {.place = offsetof(struct layer, norm_attention), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"pre_mlp_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    {.place = offsetof(struct layer, router), .names = {"mlp.router.gate.weight"}},
    {.place = offsetof(struct layer, router_bias), .names = {"mlp.expert_bias"}},
    HUGGINGFACE_EXPERT_PRODUCTS,
    HUGGINGFACE_SHARED_ROWS("mlp.shared_experts"),
    {.place = offsetof(struct layer, norm_out), .names = {"post_mlp_layernorm.*"}},
};

const struct family family_afmoe = {
    HUGGINGFACE_DECODER("afmoe", read_afmoe, huggingface_layer, layer_rows)};
