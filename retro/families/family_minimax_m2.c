/* retro/families/family_minimax_m2.c: MiniMax-M2 as Hugging Face stores it: as Llama, with norms of
 * queries and keys over all heads, rotary positions on a part of each head, and experts in all
 * layers, chosen by sigmoids and a bias. */
#include "retro/families/huggingface.h"

/* The decoder's keys, and one that has no place in the spec. */
struct minimax_keys {
    struct huggingface_decoder decoder;
    int rotary; /* dimensions of a head that turn; 0: config.json says it in another way */
};

static const struct json_field fields[] = {
    {"num_local_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 256},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 8},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static const struct json_field head_fields[] = {
    {"head_dim", JSON_INT, AT_DECODER(head_dim), .min = 1, .max = LIMIT_HEADS, .fallback = 128},
    {"rotary_dim", JSON_INT, JSON_AT(struct minimax_keys, rotary), .min = 1, .max = LIMIT_HEADS},
};
static const struct json_table head_table = JSON_TABLE(head_fields, .open = true);

static enum status read_minimax(const struct json *config, struct model_spec *model_spec,
                                struct error *e) {
    struct minimax_keys keys = {
        .decoder = {.spec = *model_spec, .rope = {.base = 5e6, .partial = 1}}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    if (spec_read(config, &head_table, &keys, e)) return e->status;
    if (keys.rotary > 0) keys.decoder.rope.partial = (double)keys.rotary / dims->head_dim;
    dims->kv_heads = 8;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &keys.decoder, e) ||
        spec_read(config, &table, &keys.decoder, e))
        return e->status;
    dims_set_bias(dims, false);
    dims->qk_norm = QK_NORM_WHOLE;
    dims->expert_ffn = dims->ffn;
    dims->experts_renormalised = true;
    dims->router_sigmoid = dims->router_bias = true;
    spec->window = 0;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MIXTRAL_ROWS,
    {.place = offsetof(struct layer, router_bias),
     .names = {"block_sparse_moe.e_score_correction_bias", "mlp.e_score_correction_bias"}},
    {.place = offsetof(struct layer, expert_fc1), .names = {"mlp.experts.#.gate_up_proj.*"}},
    {.place = offsetof(struct layer, expert_fc2),
     .names = {"block_sparse_moe.experts.#.w2.*", "mlp.experts.#.down_proj.*"}},
};

const struct family family_minimax_m2 = {
    HUGGINGFACE_DECODER("minimax_m2", read_minimax, huggingface_layer, layer_rows),
    .further_layers = true};
