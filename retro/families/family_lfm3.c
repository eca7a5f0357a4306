/* retro/families/family_lfm3.c: LFM3 as Hugging Face stores it: as LFM2, with longer convolutions,
 * windows in half of the layers with attention, which turn by frequencies of their own, norms
 * around both branches, and a gate for each head. */
#include "retro/families/lfm2.h"

/* The keys that have no place in the spec. */
struct lfm3_keys {
    struct huggingface_decoder decoder;
    bool sandwich, gate;
};

#define AT_KEYS(member) JSON_AT(struct lfm3_keys, member)
static const struct json_field fields[] = {
    {"norm_eps", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"conv_L_cache", JSON_INT, AT_DECODER(state.kernel), .min = 2, .max = DELTA_MAX_KERNEL,
     .fallback = 7},
    {"conv_bias", JSON_BOOL, AT_DECODER(state.filter_bias)},
    {"use_sandwich_norm", JSON_BOOL, AT_KEYS(sandwich), .fallback = true},
    {"use_attention_gate", JSON_BOOL, AT_KEYS(gate), .fallback = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Absent keys stand for these sizes. */
static struct huggingface_decoder start_keys(const struct model_spec *spec) {
    struct huggingface_decoder decoder = {
        .spec = *spec,
        .rope = {.base = 1e6, .local_base = 10000, .local_fixed = true, .proportional = 0.5},
        .mixes_windows = true};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    decoder.spec.vocab = 128000;
    decoder.spec.tied = true;
    decoder.spec.max_positions = 128000;
    decoder.spec.window = 256;
    dims->n_layers = 24;
    dims->hidden = 2048;
    dims->heads = 16;
    dims->kv_heads = 4;
    dims->head_dim = 128;
    dims->ffn = 7680;
    dims->epsilon = 1; /* read below */
    dims->activation = ACTIVATION_SILU;
    return decoder;
}

/* Every second layer has attention, from the third on, and every second of these all of the text.
 */
static enum status read_layers(struct huggingface_decoder *decoder, struct error *e) {
    static const char *const names[] = {"conv", NULL};
    struct model_spec *spec = &decoder->spec;
    if (!json_is_absent(decoder->layer_types))
        return huggingface_read_mixers(decoder, names, MIXER_CONVOLUTION, e);
    for (int i = 0; i < spec->stacks[STACK_DECODER].n_layers; i++) {
        spec->windowed[i] = i % 4 == 0 && i > 0;
        spec->mixers[i] = i % 4 == 2 || spec->windowed[i] ? MIXER_ATTENTION : MIXER_CONVOLUTION;
    }
    return STATUS_OK;
}

static enum status read_lfm3(const struct json *config, struct model_spec *spec, struct error *e) {
    struct lfm3_keys keys = {.decoder = start_keys(spec)};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        read_layers(&keys.decoder, e))
        return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    dims->head_gate = keys.gate ? 1 : 0;
    dims->leaves_bare = !keys.sandwich;
    dims->state.mixer = MIXER_CONVOLUTION;
    dims->state.key_heads = dims->state.value_heads = dims->hidden;
    dims->state.value_dim = 1;
    dims->state.proj_bias = dims->state.filter_bias;
    *spec = keys.decoder.spec;
    return spec_check(spec, e);
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    struct layer_spec layer_spec = huggingface_local_layer(spec, stack, i);
    layer_spec.leaves_bare = spec->stacks[stack].leaves_bare;
    return layer_spec;
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"operator_norm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, qkv),
     .part = PART_FOURTH,
     .names = {"self_attn.gate_proj.weight", "self_attn.g_proj.weight"}},
    LFM2_CONVOLUTION_ROWS,
    {.place = offsetof(struct layer, norm_attention), .names = {"post_operator_norm.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"ffn_norm.*"}},
    LFM2_MLP_ROWS,
    {.place = offsetof(struct layer, norm_out), .names = {"post_ffn_norm.*"}},
};

const struct family family_lfm3 = {.model_type = "lfm3",
                                   .read = read_lfm3,
                                   .inspect = huggingface_find_output,
                                   .layer = describe_layer,
                                   .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."},
                                                             layer_rows,
                                                             ARRAY_COUNT(layer_rows)},
                                   .outer = {{NULL}, lfm2_outer_rows, LFM2_OUTER_ROWS},
                                   .ignores = huggingface_ignores_extras};
