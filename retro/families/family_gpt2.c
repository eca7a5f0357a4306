/* retro/families/family_gpt2.c: GPT-2 as Hugging Face stores it: learned positions, and matrices as
 * [in, out] with Q, K and V in one. */
#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct gpt2_keys {
    struct model_spec spec;
    bool scaled; /* scale_attn_weights */
};

static const struct json_field fields[] = {
    {"n_layer", JSON_INT, AT_DECODER(n_layers), .min = 1, .max = MAX_LAYERS, .fallback = 12},
    {"n_embd", JSON_INT, AT_DECODER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 768},
    {"n_head", JSON_INT, AT_DECODER(heads), .min = 1, .max = LIMIT_HEADS, .fallback = 12},
    {"n_inner", JSON_INT, AT_DECODER(ffn), .min = 1, .max = LIMIT_FFN},
    {"n_positions", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .fallback = 1024},
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .fallback = 50257},
    {.name = "eos_token_id", .type = JSON_PARSED, .parse = huggingface_parse_eos},
    {"layer_norm_epsilon", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"activation_function", JSON_CHOICE, AT_DECODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_TANH},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied), .fallback = true},
    {"scale_attn_weights", JSON_BOOL, JSON_AT(struct gpt2_keys, scaled), .fallback = true},
    {"scale_attn_by_inverse_layer_idx", JSON_BOOL, AT_DECODER(scores_by_layer)},
    {.name = "add_cross_attention", .type = JSON_MUST_BE_FALSE},
    {.name = "quantization_config", .type = JSON_EMPTY},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_gpt2(const struct json *config, struct model_spec *spec, struct error *e) {
    struct gpt2_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e)) return e->status;
    *spec = keys.spec;

    struct dims *dims = &spec->stacks[STACK_DECODER];
    if (huggingface_derive(spec, dims, e)) return e->status;
    if (dims->ffn == 0) dims->ffn = 4 * dims->hidden;
    if (!keys.scaled) dims->score_scale = 1;
    dims_set_bias(dims, true);
    dims->norm = NORM_LAYER;
    dims->final_norm = true;
    spec->learned_positions = true;
    return spec_check(spec, e);
}

/* GPT2LMHeadModel writes the prefix, GPT2Model does not. */
static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"transformer.wte.weight", "wte.weight"}},
    {.place = offsetof(struct model, embedding.position),
     .names = {"transformer.wpe.weight", "wpe.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"transformer.ln_f.*", "ln_f.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"ln_1.*"}},
    {.place = offsetof(struct layer, qkv), .names = {"attn.c_attn.*"}, .transposed = true},
    {.place = offsetof(struct layer, proj), .names = {"attn.c_proj.*"}, .transposed = true},
    {.place = offsetof(struct layer, norm_mlp), .names = {"ln_2.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.c_fc.*"}, .transposed = true},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.c_proj.*"}, .transposed = true},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_CAUSAL};
}

/* Old checkpoints hold the causal mask in every layer. */
static bool ignore_masks(const char *name) {
    return huggingface_ends_with(name, ".attn.bias") ||
           huggingface_ends_with(name, ".attn.masked_bias");
}

const struct family family_gpt2 = {
    .model_type = "gpt2",
    .read = read_gpt2,
    .inspect = huggingface_find_output,
    .layer = describe_layer,
    .stacks[STACK_DECODER] = {{"transformer.h.#.", "h.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_masks,
};
