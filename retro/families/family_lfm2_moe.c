/* retro/families/family_lfm2_moe.c: LFM2 with experts as Hugging Face stores it: behind the first
 * layers the MLP is one of experts, which sigmoids and a bias choose. The rest is in
 * family_lfm2.c. */
#include "retro/families/lfm2.h"

/* The decoder's keys, and one that has no place in the spec. */
struct lfm2_expert_keys {
    struct huggingface_decoder decoder;
    int first_dense;
};

static const struct json_field expert_fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 32},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 4},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 1792},
    {"num_dense_layers", JSON_INT, JSON_AT(struct lfm2_expert_keys, first_dense), .min = 0,
     .max = MAX_LAYERS, .fallback = 2},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised), .fallback = true},
    {"use_expert_bias", JSON_BOOL, AT_DECODER(router_bias), .fallback = true},
    {"routed_scaling_factor", JSON_FLOAT, AT_DECODER(router_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
};
static const struct json_table expert_table = JSON_TABLE(expert_fields, .open = true);

static enum status read_lfm2_moe(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    struct lfm2_expert_keys keys = {.decoder = lfm2_start(spec, 2048, 7168)};
    if (lfm2_read(config, &keys.decoder, e) || spec_read(config, &expert_table, &keys, e))
        return e->status;
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->router_sigmoid = true;
    dims->router_epsilon = 1e-6f;
    for (int i = 0; i < min_int(keys.first_dense, dims->n_layers); i++)
        keys.decoder.spec.dense[i] = true;
    *spec = keys.decoder.spec;
    return spec_check(spec, e);
}

static const struct tensor_row layer_rows[] = {
    LFM2_MIXER_ROWS,
    LFM2_MLP_ROWS,
    {.place = offsetof(struct layer, router), .names = {"feed_forward.gate.weight"}},
    {.place = offsetof(struct layer, router_bias), .names = {"feed_forward.expert_bias"}},
    {.place = offsetof(struct layer, expert_fc1),
     .part = PART_GATE,
     .names = {"feed_forward.experts.#.w1.*"}},
    {.place = offsetof(struct layer, expert_fc1),
     .part = PART_UP,
     .names = {"feed_forward.experts.#.w3.*"}},
    {.place = offsetof(struct layer, expert_fc1),
     .names = {"feed_forward.experts.#.gate_up_proj.*"}},
    {.place = offsetof(struct layer, expert_fc2),
     .names = {"feed_forward.experts.#.w2.*", "feed_forward.experts.#.down_proj.*"}},
};

const struct family family_lfm2_moe = {LFM2_DECODER("lfm2_moe", read_lfm2_moe, layer_rows)};
