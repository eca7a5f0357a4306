/* retro/families/family_granite_swa.c: Granite with windows as Hugging Face stores it: as Granite,
 * with or without experts (family_granite.c, family_granite_moe.c), with a sink for each head, a
 * window in three of four layers, and a base of the rotary positions for each layer. */
#include "retro/families/huggingface.h"

/* layer_rope_theta: a base for each layer, 0 where nothing turns. Layers with a window share one
 * base, and those without share one, for the stack has two tables. */
static enum status read_bases(const struct json *bases, struct model_spec *spec,
                              struct rope_rules *rules, struct error *e) {
    int n = spec->stacks[STACK_DECODER].n_layers;
    double found[2] = {0, 0}; /* without a window, with one */
    if (!json_is_list(bases) || json_count(bases) != (size_t)n)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"layer_rope_theta\" must be a list of %d numbers, one for "
                         "each layer",
                         n);
    for (int i = 0; i < n; i++) {
        const struct json *item = json_item(bases, (size_t)i);
        double base = json_is_numeric(item) ? json_double(item) : -1,
               *shared = &found[spec->windowed[i]];
        if (!(base >= 0))
            return error_set(e, STATUS_INVALID,
                             "config.json: \"layer_rope_theta\" [%d] must be a number, 0 or more",
                             i);
        spec->unrotated[i] = base == 0;
        if (base != 0 && *shared != 0 && base != *shared)
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"layer_rope_theta\" [%d] is %g beside %g; layers with "
                             "a window must have one base, and so must those without",
                             i, base, *shared);
        if (base != 0) *shared = base;
    }

    rules->none = found[0] == 0 && found[1] == 0;
    rules->bases_given = true;
    rules->base = found[0] != 0 ? found[0] : found[1];
    rules->local_base = found[1] != 0 ? found[1] : found[0];
    return STATUS_OK;
}

/* Where layer_types is silent, each fourth layer from the first one on has no window. */
static enum status read_windows(struct huggingface_decoder *decoder, struct error *e) {
    struct model_spec *spec = &decoder->spec;
    int n = spec->stacks[STACK_DECODER].n_layers;
    if (!json_is_absent(decoder->layer_types)) return huggingface_read_layer_types(decoder, n, e);
    for (int i = 0; i < n; i++) spec->windowed[i] = i % 4 != 0;
    if (spec->window > 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: \"sliding_window\" is off, and \"layer_types\" does not say "
                     "that all layers have full_attention");
}

/* Behind the layers' windows, for these tell the tables apart. */
static enum status read_keys(const struct json *config, struct huggingface_decoder *decoder,
                             struct error *e) {
    struct model_spec *spec = &decoder->spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    struct rope_rules rules = {.base = 10000};
    const struct json *bases = json_member(config, "layer_rope_theta");
    dims->activation = ACTIVATION_SILU;
    spec->window = 128;
    decoder->rope.none = true;
    if (huggingface_read_decoder(config, decoder, e) || read_windows(decoder, e) ||
        huggingface_read_multipliers(config, spec, e) ||
        (!json_is_absent(bases) && read_bases(bases, spec, &rules, e)))
        return e->status;
    dims->sinks = true;
    return huggingface_read_rope(config, &rules, spec, dims, e);
}

static enum status read_swa(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 4;
    dims->epsilon = 1e-5f;
    decoder.spec.tied = true;
    if (read_keys(config, &decoder, e)) return e->status;
    *spec = decoder.spec;
    return spec_check(spec, e);
}

static enum status read_moe_swa(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec};
    decoder.spec.stacks[STACK_DECODER].epsilon = 1e-6f;
    if (read_keys(config, &decoder, e) ||
        huggingface_read_granite_experts(config, true, &decoder.spec, e))
        return e->status;
    *spec = decoder.spec;
    return STATUS_OK;
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    bool two = spec->stacks[stack].rope[ROPE_LOCAL].base != 0;
    return two ? huggingface_local_layer(spec, stack, i) : huggingface_layer(spec, stack, i);
}

#define SWA_ROWS \
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}}, \
        HUGGINGFACE_ATTENTION_ROWS, \
        {.place = offsetof(struct layer, sinks), .names = {"self_attn.sinks"}}, { \
        .place = offsetof(struct layer, norm_mlp), .names = { "post_attention_layernorm.*" } \
    }
static const struct tensor_row swa_rows[] = {SWA_ROWS, HUGGINGFACE_MLP_ROWS};
static const struct tensor_row moe_swa_rows[] = {SWA_ROWS, HUGGINGFACE_GRANITE_EXPERT_ROWS};

const struct family family_granite_swa = {
    HUGGINGFACE_DECODER("granite_swa", read_swa, describe_layer, swa_rows)};

const struct family family_granite_moe_swa = {
    HUGGINGFACE_DECODER("granitemoe_swa", read_moe_swa, describe_layer, moe_swa_rows)};
