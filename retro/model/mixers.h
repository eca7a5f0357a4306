/* retro/model/mixers.h: the mixers of a layer that keep states (enum mixer), and the steps that
 * they share with self attention and MLPs (layer.c). */
#pragma once

#include "retro/model/layer.h"

/* branch = norm_attention(the layer's mixer(input)). input f32 [rows, d]. */
void mix_states(const struct pass *pass, const struct layer *layer, struct tensor input);

/* y = activation(x W^T + bias), of this rank's rows of W. */
void project_rows(const struct model *model, struct tensor y, struct tensor x,
                  const struct projection *projection, enum activation activation);
/* branch = x W^T summed over ranks. Its bias waits for what adds the branch, unless the norm
 * `after` the branch is there: then rank 0 adds it. */
void project_row_parallel(const struct pass *pass, struct tensor x,
                          const struct projection *projection, const struct norm_weights *after);
/* activation(weights) rows, in place of the weights. */
struct tensor gate_rows(const struct model *model, struct tensor rows, struct tensor weights,
                        enum activation activation);
