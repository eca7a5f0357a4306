/* retro/families/family_ministral.c: Ministral 8B as Hugging Face stores it: as Mistral, with a
 * window in the layers that layer_types names. */
#include <limits.h>

#include "retro/families/huggingface.h"

static enum status read_ministral(const struct json *config, struct model_spec *spec,
                                  struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    decoder.spec.window = 4096;
    decoder.window_pattern = INT_MAX; /* all layers have it, where layer_types is silent */
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    bool listed = !json_is_absent(decoder.layer_types);
    if ((listed || decoder.spec.window > 0) && huggingface_read_windows(&decoder, e))
        return e->status;
    dims_set_bias(dims, false);
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_ministral = {
    HUGGINGFACE_DECODER("ministral", read_ministral, huggingface_layer, huggingface_layer_rows)};
