/* retro/families/family_gpt.c: GPT as Megatron-Core writes it (docs/spec/retro-model.md 1, 9). */
#include "retro/families/megatron.h"

static const struct json_field fields[] = {
    {"num_layers", JSON_INT, AT_DECODER(n_layers), .min = 1, .max = MAX_LAYERS, .required = true},
    {"final_norm", JSON_BOOL, AT_DECODER(final_norm)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_gpt(const struct json *config, struct model_spec *spec, struct error *e) {
    if (spec_read(config, &table, spec, e) || spec_read_megatron(config, spec, e)) return e->status;
    if (spec->stacks[STACK_DECODER].buckets > 0)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"position_embedding_type\" is \"relative\", which only t5 has");
    return spec_check(spec, e);
}

/* Applied iff the key exists: Megatron-Core dropped the final norm of Retro in 0.8.0 (spec 7). */
static void inspect_gpt(const struct weights *weights, struct model_spec *spec) {
    spec->stacks[STACK_DECODER].final_norm =
        weights_find(weights, "decoder.final_layernorm.weight") != NULL;
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)i;
    return (struct layer_spec){.mask = MASK_CAUSAL, .rope = spec->stacks[stack].rotated > 0};
}

const struct family family_gpt = {
    .architecture = "gpt",
    .read = read_gpt,
    .inspect = inspect_gpt,
    .layer = describe_layer,
    .stacks[STACK_DECODER] = {{"decoder.layers.#."}, megatron_layer_rows, MEGATRON_LAYER_ROWS},
    .outer = {{NULL}, megatron_outer_rows, MEGATRON_OUTER_ROWS},
    .ignores = ignore_megatron_state,
};
