/* retro/families/family_modernbert.c: ModernBERT as Hugging Face stores it (Warner et al. 2024):
 * norms before the branches of a layer, a gated MLP, rotary positions, and in two of three layers a
 * window to both sides that turns by frequencies of its own. An encoder alone. */
#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct modernbert_keys {
    struct huggingface_decoder rules; /* the rotary tables and layer_types, read as a decoder's */
    double global_base, local_base;
    int local_attention, global_every;
    bool attention_bias, mlp_bias;
};
#define AT_KEYS(member) JSON_AT(struct modernbert_keys, member)

static const struct json_field fields[] = {
    HUGGINGFACE_ENCODER_SIZES,
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .fallback = 8192},
    {"norm_eps", JSON_FLOAT, AT_ENCODER(epsilon), .fallback = 1e-5},
    {"hidden_activation", JSON_CHOICE, AT_ENCODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {"global_rope_theta", JSON_DOUBLE, AT_KEYS(global_base), .fallback = 160000},
    {"local_rope_theta", JSON_DOUBLE, AT_KEYS(local_base), .fallback = 10000},
    {"local_attention", JSON_INT, AT_KEYS(local_attention), .min = 1, .max = LIMIT_POSITIONS,
     .fallback = 128},
    {"global_attn_every_n_layers", JSON_INT, AT_KEYS(global_every), .min = 1, .max = MAX_LAYERS,
     .fallback = 3},
    {"layer_types", JSON_RAW, AT_KEYS(rules.layer_types)},
    {"attention_bias", JSON_BOOL, AT_KEYS(attention_bias)},
    {"mlp_bias", JSON_BOOL, AT_KEYS(mlp_bias)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* The window counts the token's own place: half of local_attention lies on each side of it. */
static enum status read_windows(struct modernbert_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->rules.spec;
    spec->window = keys->local_attention / 2 + 1;
    if (!json_is_absent(keys->rules.layer_types))
        return huggingface_read_layer_types(&keys->rules, spec->stacks[STACK_ENCODER].n_layers, e);
    for (int i = 0; i < spec->stacks[STACK_ENCODER].n_layers; i++)
        spec->windowed[i] = i % keys->global_every != 0;
    return STATUS_OK;
}

static enum status read_modernbert(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    struct modernbert_keys keys = {.rules = {.spec = *spec}};
    struct model_spec *read = &keys.rules.spec;
    struct dims *dims = &read->stacks[STACK_ENCODER];
    if (spec_read(config, &table, &keys, e) || huggingface_derive(read, dims, e)) return e->status;

    const struct rope_rules rope = {.base = keys.global_base, .local_base = keys.local_base};
    if (huggingface_read_rope(config, &rope, read, dims, e) || read_windows(&keys, e))
        return e->status;

    dims->norm = NORM_LAYER;
    dims->gated = true;
    dims->final_norm = true;
    dims->qkv_bias = dims->proj_bias = keys.attention_bias;
    dims->mlp_bias = keys.mlp_bias;
    read->type_vocab = 0;
    read->tied = true;
    *spec = *read;
    return spec_check(spec, e);
}

/* A checkpoint of the encoder alone, or of a model around it. */
#define OUTER_NAMES(name) \
    { name, "model." name }

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = OUTER_NAMES("embeddings.tok_embeddings.weight")},
    {.place = offsetof(struct model, embedding.norm),
     .names = OUTER_NAMES("embeddings.norm.*"),
     .bias_if_there = true},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = OUTER_NAMES("final_norm.*"),
     .bias_if_there = true},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"attn_norm.*"}, .bias_if_there = true},
    {.place = offsetof(struct layer, qkv), .names = {"attn.Wqkv.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attn.Wo.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"mlp_norm.*"}, .bias_if_there = true},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.Wi.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.Wo.*"}},
};

/* The first layer reads what the norm of the embeddings made. */
static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)stack;
    bool local = spec->windowed[i];
    return (struct layer_spec){.mask = MASK_NONE,
                               .rope = true,
                               .enters_bare = i == 0,
                               .window = local ? spec->window : 0,
                               .frequencies = local ? ROPE_LOCAL : ROPE_GLOBAL};
}

const struct family family_modernbert = {HUGGINGFACE_ENCODER(
    "modernbert", read_modernbert, describe_layer, "model.", "layers.#.", layer_rows, outer_rows)};
