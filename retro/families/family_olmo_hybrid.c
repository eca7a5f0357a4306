/* retro/families/family_olmo_hybrid.c: OLMo Hybrid as Hugging Face stores it: in three of four
 * layers gated delta nets behind a norm, in the others OLMo's attention, without norms before the
 * branches. Published models have no rotary positions. */
#include "retro/families/huggingface.h"

/* The keys that have no place in the spec. */
struct olmo_hybrid_keys {
    struct huggingface_decoder decoder;
    bool doubles; /* what is written may be more than what is missing */
};

#define AT_DELTA(member) AT_DECODER(state.member)
#define AT_KEYS(member) JSON_AT(struct olmo_hybrid_keys, member)
static const struct json_field fields[] = {
    {"linear_num_key_heads", JSON_INT, AT_DELTA(key_heads), .min = 1, .max = LIMIT_HEADS},
    {"linear_num_value_heads", JSON_INT, AT_DELTA(value_heads), .min = 1, .max = LIMIT_HEADS},
    {"linear_key_head_dim", JSON_INT, AT_DELTA(key_dim), .min = 1, .max = DELTA_MAX_HEAD},
    {"linear_value_head_dim", JSON_INT, AT_DELTA(value_dim), .min = 1, .max = DELTA_MAX_HEAD},
    {"linear_conv_kernel_dim", JSON_INT, AT_DELTA(kernel), .min = 1, .max = DELTA_MAX_KERNEL,
     .fallback = 4},
    {"linear_allow_neg_eigval", JSON_BOOL, AT_KEYS(doubles), .fallback = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Every fourth layer has attention; the last one where there are fewer. */
static enum status read_layers(struct huggingface_decoder *decoder, struct error *e) {
    static const char *const names[] = {"linear_attention", NULL};
    struct model_spec *spec = &decoder->spec;
    int n = spec->stacks[STACK_DECODER].n_layers;
    if (!json_is_absent(decoder->layer_types))
        return huggingface_read_mixers(decoder, names, MIXER_DELTA, e);
    for (int i = 0; i < n; i++)
        spec->mixers[i] = i % 4 == 3 || (n < 4 && i == n - 1) ? MIXER_ATTENTION : MIXER_DELTA;
    return STATUS_OK;
}

/* Heads as many as attention has, keys of three quarters of the rows, values twice as long. */
static enum status read_delta(const struct json *config, struct olmo_hybrid_keys *keys,
                              struct error *e) {
    struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    struct state_dims *state = &dims->state;
    state->mixer = MIXER_DELTA;
    state->key_heads = state->value_heads = dims->heads;
    if (spec_read(config, &table, keys, e)) return e->status;
    if (state->key_dim == 0) state->key_dim = (int)(0.75 * dims->hidden / state->key_heads);
    if (state->value_dim == 0) state->value_dim = 2 * state->key_dim;
    state->write_scale = keys->doubles ? 2 : 1;
    state->epsilon = 1e-5f;
    return STATUS_OK;
}

/* A base of null says that nothing turns. */
static bool is_unrotated(const struct json *config) {
    const struct json *parameters = json_member(config, "rope_parameters");
    const struct json *base =
        json_member(json_is_absent(parameters) ? config : parameters, "rope_theta");
    return base && json_is_absent(base);
}

static enum status read_olmo_hybrid(const struct json *config, struct model_spec *spec,
                                    struct error *e) {
    struct olmo_hybrid_keys keys = {
        .decoder = {.spec = *spec, .rope = {.none = is_unrotated(config), .base = 10000}}};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &keys.decoder, e) || read_layers(&keys.decoder, e) ||
        read_delta(config, &keys, e))
        return e->status;
    if (dims->activation != ACTIVATION_SILU)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"hidden_act\" must be silu, for the delta nets' sake");
    keys.decoder.spec.window = 0;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_WHOLE;
    *spec = keys.decoder.spec;
    return spec_check(spec, e);
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    struct layer_spec layer_spec = huggingface_layer(spec, stack, i);
    layer_spec.reads_bare = layer_spec.mixer == MIXER_ATTENTION;
    layer_spec.leaves_bare = layer_spec.mixer == MIXER_DELTA;
    return layer_spec;
}

#define IN(member) .place = offsetof(struct layer, member)
#define DELTA(name) .names = {"linear_attn." name}
static const struct tensor_row layer_rows[] = {
    {IN(norm_in), .names = {"input_layernorm.*", "attention_layer_norm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {IN(norm_attention), .names = {"post_attention_layernorm.*", "feedforward_layer_norm.*"}},
    {IN(state_in), .part = PART_FIRST, DELTA("q_proj.*")},
    {IN(state_in), .part = PART_SECOND, DELTA("k_proj.*")},
    {IN(state_in), .part = PART_THIRD, DELTA("v_proj.*")},
    {IN(state_in), .part = PART_FOURTH, DELTA("g_proj.*")},
    {IN(state_gates), .part = PART_FIRST, DELTA("b_proj.*")},
    {IN(state_gates), .part = PART_SECOND, DELTA("a_proj.*")},
    {IN(state_filter), .part = PART_FIRST, DELTA("q_conv1d.weight")},
    {IN(state_filter), .part = PART_SECOND, DELTA("k_conv1d.weight")},
    {IN(state_filter), .part = PART_THIRD, DELTA("v_conv1d.weight")},
    {IN(state_filter), DELTA("conv1d.weight")},
    {IN(state_rate), DELTA("A_log")},
    {IN(state_bias), DELTA("dt_bias")},
    {IN(state_norm), DELTA("o_norm.*")},
    {IN(state_out), DELTA("o_proj.*")},
    {IN(norm_mlp), .names = {"post_attention_layernorm.*", "feedforward_layer_norm.*"}},
    HUGGINGFACE_MLP_ROWS,
    {IN(norm_out), .names = {"post_feedforward_layernorm.*"}},
};

const struct family family_olmo_hybrid = {
    HUGGINGFACE_DECODER("olmo_hybrid", read_olmo_hybrid, describe_layer, layer_rows)};
