/* retro/families/family_solar_open.c: Solar Open and dots.llm1 as Hugging Face stores them: as
 * Llama and Qwen3, with experts as in GLM-4.5 (family_glm4_moe.c), Solar Open in all layers. */
#include "retro/families/huggingface.h"

/* No layer has a plain MLP, so its size is of no use, and may be absent. */
static enum status read_solar_open(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 1e6}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    *dims = (struct dims){.n_layers = 48,
                          .hidden = 4096,
                          .heads = 64,
                          .kv_heads = 8,
                          .head_dim = 128,
                          .ffn = 1280,
                          .experts = 128,
                          .experts_used = 8,
                          .expert_ffn = 1280,
                          .experts_renormalised = true,
                          .epsilon = 1e-5f,
                          .activation = ACTIVATION_SILU};
    decoder.spec.vocab = 196608;
    if (huggingface_read_decoder(config, &decoder, e) ||
        huggingface_read_grouped_experts(config, 0, 1, &decoder.spec, e))
        return e->status;
    dims->proj_bias = false;
    dims->ffn = dims->expert_ffn;
    for (int i = 0; i < dims->n_layers; i++) decoder.spec.dense[i] = false;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

/* Where layer_types is silent, layers from max_window_layers on have the window. */
static enum status read_dots1(const struct json *config, struct model_spec *model_spec,
                              struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *model_spec, .rope = {.base = 10000}, .max_window_layers = 62};
    struct model_spec *spec = &decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    dims->experts = dims->experts_used = 1;
    dims->expert_ffn = 1408;
    spec->window = 4096;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    bool listed = !json_is_absent(decoder.layer_types);
    if (listed && huggingface_read_layer_types(&decoder, dims->n_layers, e)) return e->status;
    for (int i = decoder.max_window_layers; i < dims->n_layers && !listed; i++)
        spec->windowed[i] = spec->window > 0;
    dims->qk_norm = QK_NORM_HEAD;
    if (huggingface_read_grouped_experts(config, 0, 0, spec, e)) return e->status;
    *model_spec = *spec;
    return STATUS_OK;
}

const struct family family_solar_open = {HUGGINGFACE_DECODER(
    "solar_open", read_solar_open, huggingface_layer, huggingface_grouped_rows)};

const struct family family_dots1 = {
    HUGGINGFACE_DECODER("dots1", read_dots1, huggingface_layer, huggingface_grouped_rows)};
