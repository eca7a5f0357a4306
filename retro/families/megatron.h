/* retro/families/megatron.h: the parts of a Megatron folder that its families share. */
#pragma once

#include "retro/model/model_private.h"

/* Reads Megatron's keys: the decoder's shape, but for its number of layers, and what all stacks
 * share. Relative positions are T5's alone; other families refuse them (dims.buckets is not 0). */
enum status spec_read_megatron(const struct json *config, struct model_spec *spec, struct error *e);

/* Names of activations, as values of dims_set_mlp, and of norms. */
extern const struct json_choice megatron_activations[], megatron_norms[];
/* The keys of a stack's layers but for their number: sizes, biases, activation, norm. */
enum status megatron_read_shape(const struct json *config, struct dims *dims, struct error *e);

/* The tensors outside the layers of GPT and Retro. */
enum { MEGATRON_OUTER_ROWS = 4 };
extern const struct tensor_row megatron_outer_rows[MEGATRON_OUTER_ROWS];

/* The tensors of a layer of GPT and Retro. Rows of cross attention count where the layer has it. */
enum { MEGATRON_LAYER_ROWS = 10 };
extern const struct tensor_row megatron_layer_rows[MEGATRON_LAYER_ROWS];

/* Transformer Engine leaves opaque state blobs beside the weights. */
bool ignore_megatron_state(const char *name);
