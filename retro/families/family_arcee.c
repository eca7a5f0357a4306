/* retro/families/family_arcee.c: Arcee's AFM as Hugging Face stores it: as Llama, with an MLP
 * without gate, whose activation is the square of ReLU. */
#include "retro/families/huggingface.h"

static enum status read_arcee(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_RELU_SQUARED;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    decoder.spec.window = 0;
    dims->gated = false;
    *spec = decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_PLAIN_MLP_ROWS,
};

const struct family family_arcee = {
    HUGGINGFACE_DECODER("arcee", read_arcee, huggingface_layer, layer_rows)};
