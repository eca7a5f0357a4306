/* retro/families/family_gemma4.c: the text part of Gemma 4 as Hugging Face stores it, alone or as
 * the text_config of a whole model (family_gemma4_whole.c): as Gemma 3, with norms of values, wide
 * heads in layers without a window, last layers that reuse keys and values of earlier ones, a table
 * of what each token gives each layer, and experts beside the MLP of each layer. */
#include <math.h>

#include "retro/families/gemma4_layers.h"

static const struct json_field fields[] = {
    {"hidden_activation", JSON_CHOICE, AT_DECODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_TANH},
    {"global_head_dim", JSON_INT, AT_DECODER(wide_head_dim), .min = 1, .max = LIMIT_HEADS,
     .fallback = 512},
    {"num_global_key_value_heads", JSON_INT, JSON_AT(struct gemma4_keys, global_kv_heads), .min = 1,
     .max = LIMIT_HEADS},
    {"attention_k_eq_v", JSON_BOOL, AT_SPEC(values_are_keys)},
    {"num_kv_shared_layers", JSON_INT, JSON_AT(struct gemma4_keys, shared_layers), .min = 0,
     .max = MAX_LAYERS},
    {"use_double_wide_mlp", JSON_BOOL, JSON_AT(struct gemma4_keys, wide_mlp)},
    {"hidden_size_per_layer_input", JSON_INT, AT_DECODER(layer_input), .min = 0, .max = LIMIT_WIDTH,
     .fallback = 256},
    {"vocab_size_per_layer_input", JSON_INT, AT_SPEC(input_vocab), .min = 1, .max = LIMIT_IDS,
     .fallback = 262144},
    {"final_logit_softcapping", JSON_FLOAT, AT_SPEC(logit_cap), .min = 1e-30, .max = 1e30},
    {"enable_moe_block", JSON_BOOL, AT_DECODER(experts_beside)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_text(const struct json *config, struct model_spec *model_spec,
                             struct error *e) {
    struct gemma4_keys keys = {
        .decoder = {.spec = *model_spec,
                    .rope = {.base = 1e6, .local_base = 10000, .proportional = 0.25},
                    .window_pattern = 6,
                    .names_two_sided = true,
                    .layers_differ = true}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    const struct json *columns = json_member(config, "hidden_size_per_layer_input");
    dims->n_layers = 30;
    dims->hidden = 2304;
    dims->heads = 8;
    dims->kv_heads = 4;
    dims->ffn = 9216;
    dims->head_dim = 256;
    dims->epsilon = 1e-6f;
    spec->tied = true;
    spec->vocab = 262144;
    spec->max_positions = 131072;
    spec->window = 512;
    if (huggingface_read_decoder(config, &keys.decoder, e) ||
        huggingface_read_windows(&keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        gemma4_read_layers(&keys, e) ||
        huggingface_read_rope(config, &keys.decoder.rope, spec, dims, e))
        return e->status;
    if (columns && json_is_absent(columns)) dims->layer_input = 0;
    if (dims->layer_input > 0 && spec->input_vocab < spec->vocab)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"vocab_size_per_layer_input\" is %d, \"vocab_size\" %d",
                         spec->input_vocab, spec->vocab);
    if (dims->experts_beside && gemma4_read_experts(config, spec, e)) return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    dims->value_norm = dims->layer_scaled = true;
    dims->score_scale = 1;
    spec->embedding_scale = sqrtf((float)dims->hidden);
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

static const struct tensor_row layer_rows[] = {
    HUGGINGFACE_GEMMA_ROWS,
    {.place = offsetof(struct layer, input_gate), .names = {"per_layer_input_gate.*"}},
    {.place = offsetof(struct layer, input_proj), .names = {"per_layer_projection.*"}},
    {.place = offsetof(struct layer, norm_input), .names = {"post_per_layer_input_norm.*"}},
    {.place = offsetof(struct layer, scale), .names = {"layer_scalar"}},
    GEMMA4_EXPERT_ROWS,
};

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"model.embed_tokens.weight", "embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"model.norm.*", "norm.*"}},
    {.place = offsetof(struct model, layer_inputs.words),
     .names = {"model.embed_tokens_per_layer.weight", "embed_tokens_per_layer.weight"}},
    {.place = offsetof(struct model, layer_inputs.projection),
     .names = {"model.per_layer_model_projection.*", "per_layer_model_projection.*"}},
    {.place = offsetof(struct model, layer_inputs.norm),
     .names = {"model.per_layer_projection_norm.*", "per_layer_projection_norm.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

const struct family family_gemma4_text = {
    .model_type = "gemma4_text",
    .read = read_text,
    .inspect = huggingface_find_output,
    .layer = gemma4_layer,
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = gemma4_ignores,
};
