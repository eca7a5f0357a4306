/* retro/families/family_hunyuan.c: the dense models of Hunyuan as Hugging Face stores them: as
 * Llama, with norms of each head's queries and keys behind the rotation. */
#include "retro/families/huggingface.h"

/* Parts of Hunyuan's larger models. */
static const struct json_field fields[] = {
    {.name = "use_cla", .type = JSON_MUST_BE_FALSE},
    {.name = "position_embedding_xdrope", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_hunyuan(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000, .alpha = true}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &decoder, e) || spec_read(config, &table, &decoder, e))
        return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    dims->qk_norm_last = true;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_hunyuan_dense = {HUGGINGFACE_DECODER(
    "hunyuan_v1_dense", read_hunyuan, huggingface_layer, huggingface_layer_rows)};
