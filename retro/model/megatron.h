/* retro/model/megatron.h: the parts of a Megatron folder that its families share. */
#pragma once

#include "retro/model/model_private.h"

/* Reads Megatron's keys for one stack's shape, but for its number of layers, and those of s that all stacks share.
 * `relative` allows T5's relative positions. */
enum status dims_megatron(const struct json *config, bool relative, struct model_spec *s, struct dims *d,
                          struct error *e);

/* The tensors outside the layers of GPT and Retro. */
enum { MEGATRON_OUTER_ROWS = 4 };
extern const struct tensor_row megatron_outer_rows[MEGATRON_OUTER_ROWS];

/* Transformer Engine leaves opaque state blobs beside the weights. */
bool ignore_megatron_state(const char *name);
