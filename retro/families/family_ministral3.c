/* retro/families/family_ministral3.c: Ministral 3 as Hugging Face stores its text models: as
 * Mistral, with queries that grow with their place and, where there is one, a window in all layers.
 */
#include "retro/families/huggingface.h"

static enum status read_ministral3(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 1e6, .grows = true}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->head_dim = 128;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (json_is_absent(json_member(config, "rope_parameters")) &&
        json_is_absent(json_member(config, "rope_scaling")))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: ministral3 needs \"rope_parameters\" or \"rope_scaling\"");
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    dims_set_bias(dims, false);
    for (int i = 0; i < dims->n_layers; i++) decoder.spec.windowed[i] = decoder.spec.window > 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_ministral3 = {
    HUGGINGFACE_DECODER("ministral3", read_ministral3, huggingface_layer, huggingface_layer_rows)};
