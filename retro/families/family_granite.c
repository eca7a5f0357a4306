/* retro/families/family_granite.c: Granite as Hugging Face stores it: as Llama, with multipliers.
 * Those with experts are in family_granite_moe.c, those with windows in family_granite_swa.c,
 * Granite 4 in family_granite_hybrid.c. */
#include "retro/families/huggingface.h"

/* Multipliers of words, branches and scores; logits are divided. */
static const struct json_field granite_fields[] = {
    {"embedding_multiplier", JSON_FLOAT, AT_SPEC(embedding_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
    {"residual_multiplier", JSON_FLOAT, AT_DECODER(residual_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
    {"attention_multiplier", JSON_FLOAT, AT_DECODER(score_scale), .min = 1e-30, .max = 1e30,
     .fallback = 1},
    {"logits_scaling", JSON_FLOAT, AT_SPEC(logit_scale), .min = 1e-30, .max = 1e30, .fallback = 1},
};
static const struct json_table granite_table = JSON_TABLE(granite_fields, .open = true);

enum status huggingface_read_multipliers(const struct json *config, struct model_spec *spec,
                                         struct error *e) {
    if (spec_read(config, &granite_table, spec, e)) return e->status;
    spec->logit_scale = 1 / spec->logit_scale;
    return STATUS_OK;
}

static enum status read_granite(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 10000}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &decoder, e) ||
        huggingface_read_multipliers(config, &decoder.spec, e))
        return e->status;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_granite = {
    HUGGINGFACE_DECODER("granite", read_granite, huggingface_layer, huggingface_layer_rows)};
