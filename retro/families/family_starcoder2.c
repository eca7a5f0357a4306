/* retro/families/family_starcoder2.c: StarCoder2 as Hugging Face stores it: LayerNorm, biases,
 * RoPE, grouped key/value heads, a plain MLP, a tied output matrix and a window in all layers. */
#include "retro/families/huggingface.h"

static const struct json_field fields[] = {
    {"norm_epsilon", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"use_bias", JSON_BOOL, AT_DECODER(mlp_bias), .fallback = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_starcoder2(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 2;
    dims->epsilon = 1; /* read below */
    dims->activation = ACTIVATION_GELU_TANH;
    decoder.spec.tied = true;
    if (huggingface_read_decoder(config, &decoder, e) ||
        spec_read(config, &table, &decoder.spec, e))
        return e->status;
    dims_set_bias(dims, dims->mlp_bias);
    dims->norm = NORM_LAYER;
    dims->gated = false;
    for (int i = 0; i < dims->n_layers; i++) decoder.spec.windowed[i] = true;
    *spec = decoder.spec;
    return spec_check(spec, e);
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.c_fc.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.c_proj.*"}},
};

const struct family family_starcoder2 = {
    HUGGINGFACE_DECODER("starcoder2", read_starcoder2, huggingface_layer, layer_rows)};
