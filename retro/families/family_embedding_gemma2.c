/* retro/families/family_embedding_gemma2.c: the text part of EmbeddingGemma 2 as Hugging Face
 * stores it, alone or as the text_config of a whole model: the layers of Gemma 4, in which tokens
 * see both sides, with inputs of each layer that the embedded rows alone make, and a product behind
 * the rows that widens a text's vector. It embeds and cannot write. Towers of pictures and sound
 * are not read. */
#include <math.h>
#include <string.h>

#include "retro/families/gemma4_layers.h"

static const struct json_field fields[] = {
    {"hidden_activation", JSON_CHOICE, AT_DECODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_TANH},
    {"global_head_dim", JSON_INT, AT_DECODER(wide_head_dim), .min = 1, .max = LIMIT_HEADS,
     .fallback = 512},
    {"num_global_key_value_heads", JSON_INT, JSON_AT(struct gemma4_keys, global_kv_heads), .min = 1,
     .max = LIMIT_HEADS, .fallback = 1},
    {"hidden_size_per_layer_input", JSON_INT, AT_DECODER(layer_input), .min = 1, .max = LIMIT_WIDTH,
     .fallback = 512},
    {"embedding_dim", JSON_INT, AT_SPEC(widened), .min = 1, .max = LIMIT_WIDTH, .fallback = 768},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Values of absent keys. */
static struct gemma4_keys start_keys(const struct model_spec *spec) {
    struct gemma4_keys keys = {
        .decoder = {.spec = *spec,
                    .rope = {.base = 1e6, .local_base = 10000, .proportional = 1},
                    .window_pattern = 6,
                    .layers_differ = true}};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    dims->n_layers = 24;
    dims->hidden = 512;
    dims->heads = 4;
    dims->kv_heads = 2;
    dims->ffn = 2048;
    dims->head_dim = 256;
    dims->epsilon = 1e-6f;
    keys.decoder.spec.tied = true;
    keys.decoder.spec.vocab = 262144;
    keys.decoder.spec.max_positions = 262144;
    keys.decoder.spec.window = 512;
    return keys;
}

static enum status read_text(const struct json *config, struct model_spec *model_spec,
                             struct error *e) {
    struct gemma4_keys keys = start_keys(model_spec);
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    if (huggingface_read_decoder(config, &keys.decoder, e) ||
        huggingface_read_windows(&keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        gemma4_read_layers(&keys, e) ||
        huggingface_read_rope(config, &keys.decoder.rope, spec, dims, e))
        return e->status;
    if (json_is_absent(keys.decoder.layer_configs)) dims->wide_kv_heads = keys.global_kv_heads;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    dims->value_norm = dims->layer_scaled = true;
    dims->score_scale = 1;
    spec->embedding_scale = sqrtf((float)dims->hidden);
    spec->two_sided = true;
    spec->window += 1; /* the key counts the tokens on one side, and a window the token too */
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static enum status read_whole(const struct json *config, struct model_spec *spec, struct error *e) {
    if (read_text(json_member(config, "text_config"), spec, e))
        return error_prefix(e, "text_config");
    spec->parts[STACK_DECODER] = (struct model_part){&family_embedding_gemma2_text,
                                                     {"language_model.", "model.language_model."}};
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    HUGGINGFACE_GEMMA_ROWS,
    {.place = offsetof(struct layer, input_gate), .names = {"ple_block.per_layer_input_gate.*"}},
    {.place = offsetof(struct layer, input_proj), .names = {"ple_block.per_layer_projection.*"}},
    {.place = offsetof(struct layer, norm_input),
     .names = {"ple_block.post_per_layer_input_norm.*"}},
    {.place = offsetof(struct layer, scale), .names = {"layer_scalar"}},
};

#define OUTER_NAMES(name) \
    { name, "model." name }

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word), .names = OUTER_NAMES("embed_tokens.weight")},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = OUTER_NAMES("norm.*")},
    {.place = offsetof(struct model, layer_inputs.projection),
     .names = OUTER_NAMES("ple.per_layer_model_projection.*")},
    {.place = offsetof(struct model, layer_inputs.norm),
     .names = OUTER_NAMES("ple.per_layer_projection_norm.*")},
};

/* The product behind the rows is read with the modules of an embedder (encoder_folder.h). */
static bool ignore_unread(const char *name) {
    static const char *const unread[] = {"embedding_projection.", "vision_tower.", "embed_vision.",
                                         "audio_tower.", "embed_audio."};
    for (size_t i = 0; i < ARRAY_COUNT(unread); i++)
        if (strstr(name, unread[i])) return true;
    return huggingface_ignores_extras(name);
}

const struct family family_embedding_gemma2_text = {
    .model_type = "embedding_gemma2_text",
    .read = read_text,
    .layer = gemma4_layer,
    .stacks[STACK_DECODER] = {{"layers.#.", "model.layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_unread,
};

const struct family family_embedding_gemma2 = {
    .model_type = "embedding_gemma2",
    .read = read_whole,
    .ignores = ignore_unread,
};
