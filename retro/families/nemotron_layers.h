/* retro/families/nemotron_layers.h: the kinds of Nemotron-H's layers. */
#pragma once

#include "retro/families/huggingface.h"

/* spec.mixers, without_mlp, dense and the number of layers, from layers_block_type, a list of
 * names, or where it is silent hybrid_override_pattern, a letter for each layer; *experts becomes
 * true where a layer has such. STATUS_INVALID or STATUS_UNSUPPORTED, naming the key. */
enum status nemotron_read_layers(const struct json *config, struct model_spec *spec, bool *experts,
                                 struct error *e);
