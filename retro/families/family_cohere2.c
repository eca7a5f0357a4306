/* retro/families/family_cohere2.c: Cohere's Command R7B and A as Hugging Face stores them:
 * LayerNorm without biases, attention and MLP in parallel behind one norm, scaled logits, a tied
 * output matrix; windows in three of four layers, which turn pairs of neighbours, and no rotary
 * positions in the others. */
#include "retro/families/huggingface.h"

static const struct json_field fields[] = {
    {"layer_norm_eps", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"logit_scale", JSON_FLOAT, AT_SPEC(logit_scale), .min = 1e-30, .max = 1e30,
     .fallback = 0.0625},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_cohere2(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec, .rope = {.base = 10000}, .window_pattern = 4};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1; /* read below */
    dims->activation = ACTIVATION_SILU;
    decoder.spec.window = 4096;
    decoder.spec.tied = true;
    if (huggingface_read_decoder(config, &decoder, e) || huggingface_read_windows(&decoder, e) ||
        spec_read(config, &table, &decoder.spec, e))
        return e->status;
    for (int i = 0; i < dims->n_layers; i++) decoder.spec.unrotated[i] = !decoder.spec.windowed[i];
    dims->norm = NORM_LAYER;
    dims->parallel = true;
    dims->mlp_bias = false;
    dims->rope_interleaved = true;
    *spec = decoder.spec;
    return spec_check(spec, e);
}

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"model.embed_tokens.weight", "embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"model.norm.*", "norm.*"},
     .bias_if_there = true},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in),
     .names = {"input_layernorm.*"},
     .bias_if_there = true},
    HUGGINGFACE_ATTENTION_ROWS,
    HUGGINGFACE_MLP_ROWS,
};

const struct family family_cohere2 = {
    .model_type = "cohere2",
    .read = read_cohere2,
    .inspect = huggingface_find_output,
    .layer = huggingface_layer,
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = huggingface_ignores_extras,
};
