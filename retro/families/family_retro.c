/* retro/families/family_retro.c: Retro as Megatron-Core writes it (docs/spec/retro-model.md 1, 3,
 * 9): a GPT decoder of which some layers read neighbours by chunked cross attention, and the
 * encoder of those neighbours. */
#include <stdio.h>

#include "retro/families/megatron.h"

/* Megatron's schedule: from layer 6 (9 in models deeper than 15), then every third; numbers are
 * 1-based (spec 3). */
static void choose_layers(struct retro_spec *spec, int n_layers) {
    for (int i = n_layers <= 15 ? 6 : 9; i <= n_layers; i += 3) spec->layer[i - 1] = true;
}

static enum status list_layers(const struct json *list, int n_layers, struct retro_spec *spec,
                               struct error *e) {
    if (!json_is_list(list))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"retro_layers\" must be a list of layer numbers");
    int64_t last = 0;
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *value = json_item(list, i);
        int64_t number = json_int(value);
        if (!json_is_int(value) || number < 1 || number > n_layers || number <= last)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"retro_layers\" has an entry that is not a layer "
                             "number 1 .. %d, or is out "
                             "of order",
                             n_layers);
        spec->layer[number - 1] = true;
        last = number;
    }
    return STATUS_OK;
}

/* `list` is NULL where config.json has none. */
static enum status find_layers(const struct json *list, int n_layers, struct retro_spec *spec,
                               struct error *e) {
    if (list && list_layers(list, n_layers, spec, e)) return e->status;
    if (list == NULL) choose_layers(spec, n_layers);

    for (int i = n_layers - 1; i >= 0; i--) {
        if (!spec->layer[i]) continue;
        spec->first_layer = i;
        spec->n_layers++;
    }
    if (spec->n_layers > 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: a retro model of %d layers needs \"retro_layers\"", n_layers);
}

/* The spec, and keys that have no place in it. */
struct retro_keys {
    struct model_spec spec;
    const struct json *layers; /* retro_layers */
    int residual;
};

enum residual { RESIDUAL_RAW, RESIDUAL_NORMED };
static const struct json_choice residual_names[] = {
    {"normed", RESIDUAL_NORMED}, {"raw", RESIDUAL_RAW}, {NULL, 0}};

static const struct json_field fields[] = {
    {"retro_chunk_length", JSON_INT, AT_SPEC(retro.chunk_length), .min = 1, .max = 1 << 16,
     .required = true},
    {"retro_num_neighbors", JSON_INT, AT_SPEC(retro.num_neighbors), .min = 1, .max = 1 << 10,
     .fallback = 2},
    {"retro_retrieved_length", JSON_INT, AT_SPEC(retro.retrieved_length), .min = 1, .max = 1 << 16},
    {"retro_encoder_num_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS,
     .fallback = 2},
    {"encoder_residual", JSON_CHOICE, JSON_AT(struct retro_keys, residual),
     .choices = residual_names, .fallback = RESIDUAL_NORMED},
    {"retro_attention_gate", JSON_FLOAT, AT_SPEC(retro.gate), .fallback = 1},
    {"retro_layers", JSON_RAW, JSON_AT(struct retro_keys, layers)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_retro(const struct json *config, struct model_spec *spec, struct error *e) {
    if (family_gpt.read(config, spec, e)) return e->status;
    struct retro_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e)) return e->status;

    *spec = keys.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER], *encoder = &spec->stacks[STACK_ENCODER];
    int depth = encoder->n_layers;
    spec->retro.residual_normed = keys.residual == RESIDUAL_NORMED;
    if (spec->retro.retrieved_length == 0)
        spec->retro.retrieved_length = 2 * spec->retro.chunk_length;
    if (find_layers(keys.layers, dims->n_layers, &spec->retro, e)) return e->status;
    dims->reads = EDGE_NEIGHBORS;
    *encoder = *dims;
    encoder->n_layers = depth;
    encoder->reads = EDGE_CHUNK;
    encoder->final_norm = false;
    encoder->rotated = 0; /* no rotary positions (spec 4.4) */
    return spec_check(spec, e);
}

/* The option that sets the encoder's depth never reaches Megatron's model (spec 1.1): the keys tell
 * the truth. */
static void inspect_retro(const struct weights *weights, struct model_spec *spec) {
    int depth = 0;
    bool found = true;
    family_gpt.inspect(weights, spec);
    while (found && depth < MAX_LAYERS) {
        char name[160];
        snprintf(name, sizeof name,
                 "decoder.layers.%d.cross_attention.encoder.layers.%d.mlp.linear_fc2.weight",
                 spec->retro.first_layer, depth);
        found = weights_find(weights, name) != NULL;
        depth += found;
    }
    spec->stacks[STACK_ENCODER].n_layers =
        max_int(depth, 1); /* loading layer 0 reports what is missing */
}

/* The encoder is bidirectional; its layer 0 also reads the decoder's chunk (spec 6). */
static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    const struct retro_spec *retro_spec = &spec->retro;
    if (stack == STACK_ENCODER)
        return (struct layer_spec){.mask = MASK_NONE,
                                   .cross = i == 0,
                                   .cross_residual_normed = retro_spec->residual_normed};
    return (struct layer_spec){.mask = MASK_CAUSAL,
                               .rope = spec->stacks[stack].rotated > 0,
                               .cross = retro_spec->layer[i]};
}

const struct family family_retro = {
    .architecture = "retro",
    .read = read_retro,
    .inspect = inspect_retro,
    .layer = describe_layer,
    .stacks[STACK_DECODER] = {{"decoder.layers.#."}, megatron_layer_rows, MEGATRON_LAYER_ROWS},
    .stacks[STACK_ENCODER] = {{"decoder.layers.@.cross_attention.encoder.layers.#."},
                              megatron_layer_rows,
                              MEGATRON_LAYER_ROWS},
    .outer = {{NULL}, megatron_outer_rows, MEGATRON_OUTER_ROWS},
    .ignores = ignore_megatron_state,
};
