/* retro/families/family_llama.c: Llama and its nearest relatives as Hugging Face stores them: RMS
 * norms before branches, RoPE, grouped key/value heads and a gated MLP. They differ in biases,
 * windows, multipliers and layers without RoPE. Qwen is in family_qwen.c. */
#include "retro/families/huggingface.h"

/* The values of absent keys in most of them. */
static struct huggingface_decoder start_keys(const struct model_spec *spec, int kv_heads) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = kv_heads;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    return decoder;
}

static enum status read_llama(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = start_keys(spec, 0);
    decoder.may_look_ahead = true;
    enum status status = huggingface_read_decoder(config, &decoder, e);
    decoder.spec.window = 0; /* Llama has none */
    *spec = decoder.spec;
    return status;
}

/* All layers have the window. */
static enum status read_mistral(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = start_keys(spec, 8);
    decoder.spec.window = 4096;
    decoder.may_look_ahead = true;
    if (huggingface_read_decoder(config, &decoder, e) ||
        huggingface_refuse_two_windows(&decoder.spec, e))
        return e->status;
    dims_set_bias(&decoder.spec.stacks[STACK_DECODER], false);
    if (!json_is_absent(decoder.layer_types) &&
        huggingface_read_layer_types(&decoder, decoder.spec.stacks[STACK_DECODER].n_layers, e))
        return e->status;
    for (int i = 0; i < decoder.spec.stacks[STACK_DECODER].n_layers; i++) {
        if (!json_is_absent(decoder.layer_types) && decoder.spec.window > 0 &&
            !decoder.spec.windowed[i])
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"layer_types\" has full_attention beside a "
                             "\"sliding_window\"; mistral has "
                             "the window in all layers");
        decoder.spec.windowed[i] = decoder.spec.window > 0;
    }
    *spec = decoder.spec;
    return STATUS_OK;
}

/* The spec, and keys that have no place in it. */
struct smollm3_keys {
    struct model_spec spec;
    int interval;
    const struct json
        *rotated; /* no_rope_layers: a number for each layer, 0 where it has no RoPE */
};

static const struct json_field smollm3_fields[] = {
    {"no_rope_layers", JSON_RAW, JSON_AT(struct smollm3_keys, rotated)},
    {"no_rope_layer_interval", JSON_INT, JSON_AT(struct smollm3_keys, interval), .min = 1,
     .max = 1 << 30, .fallback = 4},
};
static const struct json_table smollm3_table = JSON_TABLE(smollm3_fields, .open = true);

enum status huggingface_read_unrotated(const struct json *config, struct model_spec *spec,
                                       struct error *e) {
    struct smollm3_keys keys = {.spec = *spec};
    int n = spec->stacks[STACK_DECODER].n_layers;
    if (spec_read(config, &smollm3_table, &keys, e)) return e->status;
    bool list = json_is_list(keys.rotated),
         listed = !json_is_absent(keys.rotated) && !(list && json_count(keys.rotated) == 0);
    if (listed && (!list || json_count(keys.rotated) < (size_t)n))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"no_rope_layers\" must be a list of %d numbers or more", n);
    for (int i = 0; i < n; i++) {
        const struct json *flag = listed ? json_item(keys.rotated, (size_t)i) : NULL;
        if (listed && !json_is_int(flag))
            return error_set(e, STATUS_INVALID,
                             "config.json: \"no_rope_layers\" has an item that is no integer");
        spec->unrotated[i] = listed ? json_int(flag) == 0 : (i + 1) % keys.interval == 0;
    }
    return STATUS_OK;
}

/* Layers without RoPE have the window, where there is one and layer_types is silent. */
static enum status read_smollm3(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = start_keys(spec, 4);
    decoder.rope.base = 2e6;
    decoder.spec.tied = true;
    if (huggingface_read_decoder(config, &decoder, e) ||
        huggingface_read_unrotated(config, &decoder.spec, e))
        return e->status;
    if (!decoder.use_window) decoder.spec.window = 0;
    for (int i = 0; i < decoder.spec.stacks[STACK_DECODER].n_layers; i++)
        decoder.spec.windowed[i] = decoder.spec.unrotated[i];
    if (!json_is_absent(decoder.layer_types) &&
        huggingface_read_layer_types(&decoder, decoder.spec.stacks[STACK_DECODER].n_layers, e))
        return e->status;
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_llama = {
    HUGGINGFACE_DECODER("llama", read_llama, huggingface_layer, huggingface_layer_rows)};

const struct family family_mistral = {
    HUGGINGFACE_DECODER("mistral", read_mistral, huggingface_layer, huggingface_layer_rows)};

const struct family family_smollm3 = {
    HUGGINGFACE_DECODER("smollm3", read_smollm3, huggingface_layer, huggingface_layer_rows)};
