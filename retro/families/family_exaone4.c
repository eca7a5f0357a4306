/* retro/families/family_exaone4.c: EXAONE 4.0 as Hugging Face stores it: norms behind the branches,
 * as OLMo 2, norms of each head's queries and keys, windows in three of four layers, and no rotary
 * positions in the others. Models without a window have rotary positions everywhere. */
#include "retro/families/huggingface.h"

static enum status read_exaone4(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec, .rope = {.base = 10000}, .window_pattern = 4};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 32;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    decoder.spec.window = 4096;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    bool windows = decoder.spec.window > 0;
    if ((windows || !json_is_absent(decoder.layer_types)) && huggingface_read_windows(&decoder, e))
        return e->status;
    for (int i = 0; i < dims->n_layers; i++)
        decoder.spec.unrotated[i] = windows && !decoder.spec.windowed[i];
    dims_set_bias(dims, false);
    dims->qk_norm = QK_NORM_HEAD;
    *spec = decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    HUGGINGFACE_NORMED_BEHIND_ROWS,
};

const struct family family_exaone4 = {
    HUGGINGFACE_DECODER("exaone4", read_exaone4, huggingface_layer, layer_rows)};
