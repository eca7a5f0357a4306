/* retro/families/family_deepseek.c: DeepSeek-V2 and V3 as Hugging Face stores them: attention over
 * latents, and experts. V2 chooses these by a softmax, V3 by sigmoids and a bias. */
#include "retro/families/huggingface.h"

static const struct huggingface_latent_sizes usual_v2 = {
    .dims = {.latent = {.rank = 512, .query_rank = 1536, .plain = 128, .rope = 64, .value = 128},
             .experts = 64,
             .expert_ffn = 1407,
             .router_scale = 1,
             .epsilon = 1e-6f},
    .shared = 2};

static enum status read_v2(const struct json *config, struct model_spec *spec, struct error *e) {
    static const struct json_field fields[] = {{"num_experts_per_tok", JSON_INT,
                                                AT_DECODER(experts_used), .min = 1,
                                                .max = LIMIT_EXPERTS, .required = true}};
    static const struct json_table table = JSON_TABLE(fields, .open = true);
    struct model_spec unused = *spec;
    if (spec_read(config, &table, &unused, e)) return e->status;
    return huggingface_read_latent(config, &usual_v2, spec, e);
}

static const struct huggingface_latent_sizes usual_v3 = {
    .dims = {.latent = {.rank = 512, .query_rank = 1536, .plain = 128, .rope = 64, .value = 128},
             .experts = 256,
             .experts_used = 8,
             .experts_renormalised = true,
             .expert_ffn = 2048,
             .router_sigmoid = true,
             .router_groups = 8,
             .router_groups_used = 4,
             .router_scale = 2.5f,
             .epsilon = 1e-6f},
    .shared = 1,
    .first_dense = 3};

static enum status read_v3(const struct json *config, struct model_spec *spec, struct error *e) {
    return huggingface_read_latent(config, &usual_v3, spec, e);
}

const struct family family_deepseek_v2 = {HUGGINGFACE_LATENT_DECODER("deepseek_v2", read_v2)};
const struct family family_deepseek_v3 = {HUGGINGFACE_LATENT_DECODER("deepseek_v3", read_v3)};
