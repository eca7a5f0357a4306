/* retro/families/vision.h: the parts of Megatron's vision models that LLaVA shares with the towers
 * alone. */
#pragma once

#include "retro/families/megatron.h"

/* The keys of a multimodal projector. */
enum status megatron_read_projector(const struct json *config, struct projector_spec *spec,
                                    struct error *e);
/* ignores: Transformer Engine's state, and RADIO's mask token. */
bool megatron_ignores_vision(const char *name);

/* Rows of a projector; an affine one has a single matrix. */
#define MEGATRON_PROJECTOR_ROWS(prefix) \
    {.place = offsetof(struct model, projector.norm), \
     .names = {prefix "linear_fc1.layer_norm_*"}}, \
        {.place = offsetof(struct model, projector.fc1), \
         .names = {prefix "linear_fc1.*", prefix "*"}}, \
    { \
        .place = offsetof(struct model, projector.fc2), .names = { prefix "linear_fc2.*" } \
    }
