/* retro/families/family_nemotron_h.c: Nemotron-H as Hugging Face stores it: each layer is one thing
 * behind one norm: a state space, attention without rotary positions, an MLP without gate, or
 * experts of such, chosen as in DeepSeek-V3, beside one that all rows use. */
#include "retro/families/nemotron_layers.h"

#include <math.h>

struct nemotron_keys {
    struct huggingface_decoder decoder;
    int space_activation; /* of convolved channels */
};

#define AT_STATE(member) AT_DECODER(state.member)
#define AT_KEYS(member) JSON_AT(struct nemotron_keys, member)
static const struct json_choice silu[] = {
    {"silu", ACTIVATION_SILU}, {"swish", ACTIVATION_SILU}, {NULL, 0}};
static const struct json_field fields[] = {
    {"layer_norm_epsilon", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"mlp_hidden_act", JSON_CHOICE, AT_DECODER(activation), .choices = huggingface_activations},
    {"mamba_num_heads", JSON_INT, AT_STATE(value_heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 128},
    {"mamba_head_dim", JSON_INT, AT_STATE(value_dim), .min = 1, .max = DELTA_MAX_HEAD,
     .fallback = 64},
    {"mamba_n_groups|n_groups", JSON_INT, AT_STATE(key_heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 8},
    {"ssm_state_size", JSON_INT, AT_STATE(key_dim), .min = 1, .max = DELTA_MAX_HEAD,
     .fallback = 128},
    {"mamba_d_conv|conv_kernel", JSON_INT, AT_STATE(kernel), .min = 1, .max = DELTA_MAX_KERNEL,
     .fallback = 4},
    {"mamba_conv_bias|use_conv_bias", JSON_BOOL, AT_STATE(filter_bias), .fallback = true},
    {"use_bias", JSON_BOOL, AT_STATE(proj_bias)},
    {"mamba_dt_min|time_step_min", JSON_FLOAT, AT_STATE(least), .min = 0, .max = 1e30,
     .fallback = 0.001},
    {"mamba_hidden_act", JSON_CHOICE, AT_KEYS(space_activation), .choices = silu},
    {"moe_latent_size", JSON_INT, AT_DECODER(expert_width), .min = 1, .max = LIMIT_WIDTH},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 7688},
    {"moe_shared_expert_intermediate_size", JSON_INT, AT_DECODER(shared_ffn), .min = 1,
     .max = LIMIT_FFN, .fallback = 7688},
    {"n_routed_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1,
     .max = LIMIT_EXPERTS, .fallback = 8},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 2},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised), .fallback = true},
    {"routed_scaling_factor", JSON_FLOAT, AT_DECODER(router_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
    {"n_group", JSON_INT, AT_DECODER(router_groups), .min = 1, .max = LIMIT_EXPERTS, .fallback = 1},
    {"topk_group", JSON_INT, AT_DECODER(router_groups_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 1},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static void start_keys(struct nemotron_keys *keys) {
    struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    keys->decoder.rope = (struct rope_rules){.none = true};
    keys->decoder.spec.vocab = 131072;
    dims->n_layers = 1; /* until their kinds are read */
    dims->hidden = 4096;
    dims->heads = 32;
    dims->kv_heads = 8;
    dims->head_dim = 128;
    dims->ffn = 21504;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_RELU_SQUARED;
    dims->state.mixer = MIXER_SPACE;
    dims->state.most = INFINITY;
}

static enum status read_nemotron(const struct json *config, struct model_spec *model_spec,
                                 struct error *e) {
    struct nemotron_keys keys = {.decoder = {.spec = *model_spec}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    bool experts = false;
    start_keys(&keys);
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        nemotron_read_layers(config, spec, &experts, e))
        return e->status;
    dims->gated = false;
    dims->qkv_bias = dims->proj_bias = false;
    dims->router_sigmoid = dims->router_bias = true;
    spec->window = 0;
    dims->shared_bias = dims->mlp_bias;
    if (!experts)
        dims->experts = dims->experts_used = dims->expert_ffn = dims->shared_ffn =
            dims->expert_width = dims->router_groups = dims->router_groups_used = 0;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"norm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"mixer.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"mixer.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"mixer.v_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"mixer.o_proj.*"}},
    HUGGINGFACE_SPACE_ROWS("mixer"),
    {.place = offsetof(struct layer, norm_mlp), .names = {"norm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mixer.up_proj.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mixer.down_proj.*"}},
    {.place = offsetof(struct layer, router), .names = {"mixer.gate.weight"}},
    {.place = offsetof(struct layer, router_bias), .names = {"mixer.gate.e_score_correction_bias"}},
    {.place = offsetof(struct layer, expert_fc1), .names = {"mixer.experts.#.up_proj.*"}},
    {.place = offsetof(struct layer, expert_fc2), .names = {"mixer.experts.#.down_proj.*"}},
    {.place = offsetof(struct layer, experts_in), .names = {"mixer.fc1_latent_proj.*"}},
    {.place = offsetof(struct layer, experts_out), .names = {"mixer.fc2_latent_proj.*"}},
    {.place = offsetof(struct layer, shared_fc1), .names = {"mixer.shared_experts.up_proj.*"}},
    {.place = offsetof(struct layer, shared_fc2), .names = {"mixer.shared_experts.down_proj.*"}},
};

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"backbone.embeddings.weight", "model.embeddings.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"backbone.norm_f.*", "model.norm_f.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

const struct family family_nemotron_h = {
    .model_type = "nemotron_h",
    .read = read_nemotron,
    .inspect = huggingface_find_output,
    .layer = huggingface_layer,
    .stacks[STACK_DECODER] = {{"backbone.layers.#.", "model.layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = huggingface_ignores_foretelling};
