/* retro/families/family_granite_hybrid.c: Granite 4 as Hugging Face stores it: layers are state
 * spaces or attention, which need not turn, with an MLP or with experts beside one that all tokens
 * use; and Granite's multipliers (family_granite.c). */
#include "retro/families/huggingface.h"

#include <math.h>

struct granite_hybrid_keys {
    struct huggingface_decoder decoder;
    int expand; /* value columns of a state space, in hidden sizes */
    int turns;  /* queries and keys of attention do */
};

static const struct json_choice positions[] = {{"rope", true}, {"nope", false}, {NULL, 0}};

/* "auto" or a number. */
static enum status parse_head(struct json_reader *reader, const struct json *value, void *object) {
    static const struct json_field size = {.type = JSON_INT, .min = 1, .max = DELTA_MAX_HEAD};
    struct model_spec *spec = object;
    if (json_text_is(value, "auto")) return STATUS_OK;
    return json_field_read(reader, &size, value, &spec->stacks[STACK_DECODER].state.value_dim);
}

#define AT_STATE(member) AT_DECODER(state.member)
#define AT_KEYS(member) JSON_AT(struct granite_hybrid_keys, member)
static const struct json_field hybrid_fields[] = {
    {"mamba_n_heads", JSON_INT, AT_STATE(value_heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 128},
    {"mamba_n_groups", JSON_INT, AT_STATE(key_heads), .min = 1, .max = LIMIT_HEADS, .fallback = 1},
    {"mamba_d_state", JSON_INT, AT_STATE(key_dim), .min = 1, .max = DELTA_MAX_HEAD,
     .fallback = 256},
    {.name = "mamba_d_head", .type = JSON_PARSED, .parse = parse_head},
    {"mamba_d_conv", JSON_INT, AT_STATE(kernel), .min = 1, .max = DELTA_MAX_KERNEL, .fallback = 4},
    {"mamba_expand", JSON_INT, AT_KEYS(expand), .min = 1, .max = 64, .fallback = 2},
    {"mamba_conv_bias", JSON_BOOL, AT_STATE(filter_bias), .fallback = true},
    {"mamba_proj_bias", JSON_BOOL, AT_STATE(proj_bias)},
    {.name = "time_step_limit", .type = JSON_PARSED, .parse = huggingface_parse_steps},
    {"position_embedding_type", JSON_CHOICE, AT_KEYS(turns), .choices = positions},
    {"shared_intermediate_size", JSON_INT, AT_DECODER(shared_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 1024},
    {"num_local_experts", JSON_INT, AT_DECODER(experts), .min = 0, .max = LIMIT_EXPERTS,
     .fallback = 8},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 0, .max = LIMIT_EXPERTS,
     .fallback = 2},
};
static const struct json_table hybrid_table = JSON_TABLE(hybrid_fields, .open = true);

/* The values of a state space fill `expand` hidden sizes. */
static enum status derive_space(struct granite_hybrid_keys *keys, struct error *e) {
    struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    struct state_dims *state = &dims->state;
    int64_t columns = (int64_t)keys->expand * dims->hidden;
    state->mixer = MIXER_SPACE;
    if (state->value_dim == 0 && columns / state->value_heads <= DELTA_MAX_HEAD)
        state->value_dim = (int)(columns / state->value_heads);
    if (dims->activation != ACTIVATION_SILU)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"hidden_act\" must be silu, for the state spaces' sake");
    if ((int64_t)state->value_heads * state->value_dim == columns && columns > 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: \"mamba_n_heads\" %d times \"mamba_d_head\" %d must be "
                     "\"mamba_expand\" times the hidden size, which is %lld; heads of up to %d are "
                     "supported",
                     state->value_heads, state->value_dim, (long long)columns, DELTA_MAX_HEAD);
}

static enum status read_hybrid(const struct json *config, struct model_spec *model_spec,
                               struct error *e) {
    static const char *const names[] = {"linear_attention", "mamba", NULL};
    struct granite_hybrid_keys keys = {.decoder = {.spec = *model_spec, .rope = {.base = 10000}}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    dims->state.most = INFINITY;
    if (huggingface_read_decoder(config, &keys.decoder, e) ||
        huggingface_read_multipliers(config, spec, e) ||
        spec_read(config, &hybrid_table, &keys, e) || derive_space(&keys, e))
        return e->status;
    for (int i = 0; i < dims->n_layers; i++) spec->mixers[i] = MIXER_SPACE;
    if (json_is_absent(keys.decoder.layer_types))
        keys.decoder.layer_types = json_member(config, "layers_block_type");
    if (!json_is_absent(keys.decoder.layer_types) &&
        huggingface_read_mixers(&keys.decoder, names, MIXER_SPACE, e))
        return e->status;
    if (!keys.turns) dims->rotated = 0;
    spec->window = 0;
    dims->mlp_bias = false;
    dims->experts_renormalised = true;
    dims->expert_ffn = dims->ffn;
    if (dims->experts == 0) {
        dims->ffn = dims->shared_ffn;
        dims->shared_ffn = dims->experts_used = dims->expert_ffn = 0;
    }
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

/* GGUF files have gate and up apart. */
static const struct tensor_row hybrid_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    HUGGINGFACE_SPACE_ROWS("mamba"),
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_GATE_UP_ROWS(fc1, "shared_mlp"),
    {.place = offsetof(struct layer, fc1), .names = {"shared_mlp.input_linear.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"shared_mlp.output_linear.*"}},
    HUGGINGFACE_GRANITE_EXPERT_ROWS,
};

const struct family family_granite_hybrid = {
    HUGGINGFACE_DECODER("granitemoehybrid", read_hybrid, huggingface_layer, hybrid_rows)};
