/* retro/model/family_retro.c: Retro as Megatron-Core writes it (docs/spec/retro-model.md 1, 3, 9): a GPT decoder of
 * which some layers read neighbours by chunked cross attention, and the encoder of those neighbours. */
#include <stdio.h>

#include "retro/model/megatron.h"

/* Megatron's schedule: from layer 6 (9 in models deeper than 15), then every third; numbers are 1-based (spec 3). */
static void choose_layers(struct retro_spec *r, int n_layers) {
    for (int i = n_layers <= 15 ? 6 : 9; i <= n_layers; i += 3) r->layer[i - 1] = true;
}

static enum status list_layers(const struct json *list, int n_layers, struct retro_spec *r, struct error *e) {
    if (!json_is_list(list))
        return error_set(e, STATUS_INVALID, "config.json: \"retro_layers\" must be a list of layer numbers");
    int64_t last = 0;
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *value = json_item(list, i);
        int64_t number = json_int(value);
        if (!json_is_int(value) || number < 1 || number > n_layers || number <= last)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"retro_layers\" has an entry that is not a layer number 1 .. %d, or is out "
                             "of order",
                             n_layers);
        r->layer[number - 1] = true;
        last = number;
    }
    return STATUS_OK;
}

static enum status read_layers(const struct json *config, int n_layers, struct retro_spec *r, struct error *e) {
    const struct json *list = json_member(config, "retro_layers");
    bool listed = !json_is_absent(list);
    if (listed && list_layers(list, n_layers, r, e)) return e->status;
    if (!listed) choose_layers(r, n_layers);

    for (int i = n_layers - 1; i >= 0; i--) {
        if (!r->layer[i]) continue;
        r->first_layer = i;
        r->n_layers++;
    }
    if (r->n_layers > 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "config.json: a retro model of %d layers needs \"retro_layers\"", n_layers);
}

static enum status read_retro(const struct json *config, struct model_spec *s, struct error *e) {
    static const char *const residuals[] = {"normed", "raw", NULL};
    struct dims *d = &s->stacks[STACK_DECODER], *encoder = &s->stacks[STACK_ENCODER];
    struct retro_spec *r = &s->retro;
    int residual, depth;
    if (family_gpt.read(config, s, e) ||
        dims_int(config, "retro_chunk_length", (struct range){1, 1 << 16}, &r->chunk_length, e) ||
        dims_int_or(config, "retro_num_neighbors", (struct range){1, 1 << 10}, 2, &r->num_neighbors, e) ||
        dims_int_or(config, "retro_retrieved_length", (struct range){1, 1 << 16}, 2 * r->chunk_length,
                    &r->retrieved_length, e) ||
        dims_int_or(config, "retro_encoder_num_layers", (struct range){1, MAX_LAYERS}, 2, &depth, e) ||
        dims_choice(config, "encoder_residual", residuals, 0, &residual, e) ||
        dims_float_or(config, "retro_attention_gate", 1.0f, &r->gate, e) || read_layers(config, d->n_layers, r, e))
        return e->status;
    r->residual_normed = residual == 0;
    d->reads = EDGE_NEIGHBORS;
    *encoder = *d;
    encoder->n_layers = depth;
    encoder->reads = EDGE_CHUNK;
    encoder->final_norm = false;
    encoder->rotated = 0; /* no rotary positions (spec 4.4) */
    return spec_check(s, e);
}

/* The option that sets the encoder's depth never reaches Megatron's model (spec 1.1): the keys tell the truth. */
static void inspect_retro(const struct weights *w, struct model_spec *s) {
    int depth = 0;
    bool found = true;
    family_gpt.inspect(w, s);
    while (found && depth < MAX_LAYERS) {
        char name[160];
        snprintf(name, sizeof name, "decoder.layers.%d.cross_attention.encoder.layers.%d.mlp.linear_fc2.weight",
                 s->retro.first_layer, depth);
        found = weights_find(w, name) != NULL;
        depth += found;
    }
    s->stacks[STACK_ENCODER].n_layers = max_int(depth, 1); /* loading layer 0 reports what is missing */
}

/* Transformer Engine's names first, then those of local specs (spec 9.3); encoder layer 0 norms under a third. */
static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in),
     .names = {"self_attention.linear_qkv.layer_norm_*", "input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_BY_HEAD, .names = {"self_attention.linear_qkv.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attention.linear_proj.*"}},
    {.place = offsetof(struct layer, norm_cross), .names = {"pre_cross_attn_layernorm.*"}},
    {.place = offsetof(struct layer, cross_q), .names = {"cross_attention.attn.linear_q.*"}},
    {.place = offsetof(struct layer, cross_kv), .part = PART_BY_HEAD, .names = {"cross_attention.attn.linear_kv.*"}},
    {.place = offsetof(struct layer, cross_proj), .names = {"cross_attention.attn.linear_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp),
     .names = {"mlp.linear_fc1.layer_norm_*", "pre_mlp_layernorm.*", "pre_mlp_layernorm.norm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.linear_fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.linear_fc2.*"}},
};

/* The encoder is bidirectional; its layer 0 also reads the decoder's chunk (spec 6). */
static struct layer_spec describe_layer(const struct model_spec *s, enum stack_id stack, int i) {
    const struct retro_spec *r = &s->retro;
    if (stack == STACK_ENCODER)
        return (struct layer_spec){.mask = MASK_NONE, .cross = i == 0, .cross_residual_normed = r->residual_normed};
    return (struct layer_spec){.mask = MASK_CAUSAL, .rope = s->stacks[stack].rotated > 0, .cross = r->layer[i]};
}

const struct family family_retro = {
    .architecture = "retro",
    .read = read_retro,
    .inspect = inspect_retro,
    .layer = describe_layer,
    .stacks[STACK_DECODER] = {"decoder.layers.#.", layer_rows, ARRAY_COUNT(layer_rows)},
    .stacks[STACK_ENCODER] = {"decoder.layers.@.cross_attention.encoder.layers.#.", layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {NULL, megatron_outer_rows, MEGATRON_OUTER_ROWS},
    .ignores = ignore_megatron_state,
};
