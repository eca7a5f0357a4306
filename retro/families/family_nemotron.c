/* retro/families/family_nemotron.c: Nemotron and Minitron without mixers, as Hugging Face stores
 * them: LayerNorm whose weights are stored around zero, an MLP without gate, whose activation is
 * the square of ReLU, and half of a head rotated. */
#include "retro/families/huggingface.h"

static const struct json_field fields[] = {
    {"norm_eps", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_nemotron(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000, .partial = 0.5}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1; /* read below */
    dims->activation = ACTIVATION_RELU_SQUARED;
    if (huggingface_read_decoder(config, &decoder, e) ||
        spec_read(config, &table, &decoder.spec, e))
        return e->status;
    decoder.spec.window = 0;
    dims->gated = false;
    dims->norm = NORM_LAYER;
    dims->zero_centered_gamma = true;
    *spec = decoder.spec;
    return spec_check(spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_PLAIN_MLP_ROWS,
};

const struct family family_nemotron = {
    HUGGINGFACE_DECODER("nemotron", read_nemotron, huggingface_layer, layer_rows)};
