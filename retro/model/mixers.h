/* retro/model/mixers.h: the mixers of a layer that keep states (enum mixer), and the step that
 * they share with self attention and MLPs (layer.c). */
#pragma once

#include "retro/model/layer.h"

/* branch = norm_attention(the layer's mixer(input)). input f32 [rows, d]. */
void mix_states(const struct pass *pass, const struct layer *layer, struct tensor input);

/* activation(weights) rows, in place of the weights. */
struct tensor gate_rows(const struct model *model, struct tensor rows, struct tensor weights,
                        enum activation activation);
