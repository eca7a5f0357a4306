/* retro/families/gemma4_layers.h: the layers of Gemma 4, which differ in heads, windows, MLPs and
 * in whose keys and values they read. */
#pragma once

#include "retro/families/huggingface.h"

/* The decoder's keys, and those that have no place in the spec. */
struct gemma4_keys {
    struct huggingface_decoder decoder;
    int shared_layers, global_kv_heads; /* the last layers reuse; 0: as in other layers */
    bool wide_mlp;                      /* of layers that reuse */
};

/* The shapes of heads and MLPs, and the layers that reuse, of a decoder whose windows are read. */
enum status gemma4_read_layers(struct gemma4_keys *keys, struct error *e);
struct layer_spec gemma4_layer(const struct model_spec *spec, enum stack_id stack, int i);
