/* retro/families/family_ernie.c: ERNIE 4.5's dense models as Hugging Face stores them: as Llama,
 * with rotary positions on pairs of neighbours, a tied output matrix and one key for all biases. */
#include "retro/families/huggingface.h"

static const struct json_field fields[] = {{"use_bias", JSON_BOOL, AT_DECODER(qkv_bias)}};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_ernie(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 500000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 2;
    dims->head_dim = 128;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    decoder.spec.tied = true;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    dims->qkv_bias = false;
    if (spec_read(config, &table, &decoder.spec, e)) return e->status;
    dims_set_bias(dims, dims->qkv_bias);
    dims->rope_interleaved = true;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_ernie = {
    HUGGINGFACE_DECODER("ernie4_5", read_ernie, huggingface_layer, huggingface_layer_rows)};
