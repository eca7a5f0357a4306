/* retro/families/family_mistral4.c: the text part of Mistral Small 4 as Hugging Face stores it:
 * attention over latents as in DeepSeek-V3, with queries that grow with their place, and experts in
 * all layers, chosen by a softmax. */
#include "retro/families/huggingface.h"

static const struct huggingface_latent_sizes usual = {
    .dims = {.latent = {.rank = 256, .query_rank = 1024, .plain = 64, .rope = 64, .value = 128},
             .experts = 128,
             .experts_used = 4,
             .experts_renormalised = true,
             .expert_ffn = 2048,
             .router_groups = 1,
             .router_groups_used = 1,
             .router_scale = 1,
             .epsilon = 1e-6f},
    .shared = 1,
    .one_choice = true,
    .grows = true};

static enum status read_mistral4(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    if (json_is_absent(json_member(config, "rope_parameters")) &&
        json_is_absent(json_member(config, "rope_scaling")))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: mistral4 needs \"rope_parameters\" or \"rope_scaling\"");
    return huggingface_read_latent(config, &usual, spec, e);
}

const struct family family_mistral4 = {HUGGINGFACE_LATENT_DECODER("mistral4", read_mistral4)};
