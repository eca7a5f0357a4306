/* retro/families/family_mixtral.c: Mixtral as Hugging Face stores it: attention as in Mistral, and
 * in every layer an MLP of experts. */
#include "retro/families/huggingface.h"

static const struct json_field mixtral_fields[] = {
    {"num_local_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 8},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 2},
};
static const struct json_table mixtral_table = JSON_TABLE(mixtral_fields, .open = true);

/* All layers have the window, where there is one. */
static enum status read_mixtral(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 1e6}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &decoder, e) ||
        spec_read(config, &mixtral_table, &decoder, e))
        return e->status;
    dims_set_bias(dims, false);
    dims->expert_ffn = dims->ffn;
    dims->experts_renormalised = true;
    for (int i = 0; i < dims->n_layers; i++) decoder.spec.windowed[i] = decoder.spec.window > 0;
    *spec = decoder.spec;
    return spec_check(spec, e);
}

/* Where transformers 5 stacks the experts, gate and up are one tensor. */
static const struct tensor_row mixtral_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MIXTRAL_ROWS,
    {.place = offsetof(struct layer, expert_fc1),
     .names = {"mlp.experts.#.gate_up_proj.*", "block_sparse_moe.experts.#.gate_up_proj.*"}},
    {.place = offsetof(struct layer, expert_fc2),
     .names = {"block_sparse_moe.experts.#.w2.*", "mlp.experts.#.down_proj.*",
               "block_sparse_moe.experts.#.down_proj.*"}},
};

const struct family family_mixtral = {
    HUGGINGFACE_DECODER("mixtral", read_mixtral, huggingface_layer, mixtral_rows)};
