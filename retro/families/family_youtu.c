/* retro/families/family_youtu.c: Youtu-LLM as Hugging Face stores it: attention over latents as in
 * DeepSeek-V3, and a gated MLP in all layers. */
#include "retro/families/huggingface.h"

static const struct huggingface_latent_sizes usual = {
    .dims = {.latent = {.rank = 512, .query_rank = 1536, .plain = 128, .rope = 64, .value = 128},
             .epsilon = 1e-6f}};

static enum status read_youtu(const struct json *config, struct model_spec *spec, struct error *e) {
    struct model_spec tied = *spec;
    tied.tied = true;
    if (huggingface_read_latent(config, &usual, &tied, e)) return e->status;
    *spec = tied;
    return STATUS_OK;
}

const struct family family_youtu = {HUGGINGFACE_LATENT_DECODER("youtu", read_youtu)};
