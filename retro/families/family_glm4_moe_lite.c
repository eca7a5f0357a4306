/* retro/families/family_glm4_moe_lite.c: GLM-4.7 Flash as Hugging Face stores it: as DeepSeek-V3,
 * with sizes of its own. */
#include "retro/families/huggingface.h"

static const struct huggingface_latent_sizes usual = {
    .dims = {.latent = {.rank = 512, .query_rank = 768, .plain = 192, .rope = 64, .value = 256},
             .experts = 64,
             .experts_used = 4,
             .experts_renormalised = true,
             .expert_ffn = 1536,
             .router_sigmoid = true,
             .router_groups = 1,
             .router_groups_used = 1,
             .router_scale = 1.8f,
             .epsilon = 1e-5f},
    .shared = 1,
    .first_dense = 1,
    .lists_dense = true};

static enum status read_glm4_moe_lite(const struct json *config, struct model_spec *spec,
                                      struct error *e) {
    return huggingface_read_latent(config, &usual, spec, e);
}

const struct family family_glm4_moe_lite = {
    HUGGINGFACE_LATENT_DECODER("glm4_moe_lite", read_glm4_moe_lite)};
