/* retro/families/family_olmo2.c: OLMo 2 as Hugging Face stores it: as Llama, with norms after the
 * branches in place of those before, and norms of queries and keys over all heads at once. */
#include "retro/families/huggingface.h"

static enum status read_olmo2(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_WHOLE;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_attention), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    {.place = offsetof(struct layer, norm_out), .names = {"post_feedforward_layernorm.*"}},
};

const struct family family_olmo2 = {
    HUGGINGFACE_DECODER("olmo2", read_olmo2, huggingface_layer, layer_rows)};
