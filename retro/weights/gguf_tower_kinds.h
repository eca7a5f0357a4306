/* retro/weights/gguf_tower_kinds.h: the kinds of towers that gguf_tower.c lists, for the files
 * gguf_tower*.c. */
#pragma once

#include "retro/weights/gguf_keys.h"
#include "retro/weights/gguf_tower.h"

/* Tensors of a tower's file, and of the folder's; NULL: the folder has none. '#' is a number, '*'
 * is "weight" or "bias", '?' is a bound, "input_min", "input_max", "output_min" or "output_max". */
struct tower_tensor {
    const char *name, *folder;
};

enum tower_family {
    TOWER_GEMMA3,
    TOWER_GEMMA4,
    TOWER_QWEN2,
    TOWER_QWEN2_5,
    TOWER_QWEN3,
    TOWER_LLAVA,
    TOWER_LLAVA_NEXT,
    TOWER_PIXTRAL,
    TOWER_MISTRAL3
};

struct tower_kind {
    const char *projector; /* clip.projector_type */
    const char *told_by; /* a tensor that towers of this kind have, and others of the same projector
                            have not; NULL: none */
    const char *told_key; /* likewise a key of `vision` */
    enum tower_family family;
    /* The architectures of models that it goes with, and the model_type of their folders. */
    const char *models[4], *types[4];
    struct architecture vision; /* the keys "clip.vision.", and the vision_config's model_type */
    const struct tower_tensor *tensors;
    size_t n_tensors;
    const char *last; /* the tensor whose dimension last_dim is the width of the model */
    int last_dim;
    bool paired; /* queries and keys lie in pairs (struct gguf_view) */
    bool sound;  /* files may have a tower of sound, too, which is passed over */
    struct tower_marks marks;
    const char *processor;             /* image_processor_type */
    int64_t least_pixels, most_pixels; /* of a picture of any size, where the file does not tell */
};

/* A key that a tower's file has; STATUS_INVALID where it is absent or no whole number from 1 to
 * 2^20. */
enum status tower_read_size(const struct gguf *tower, const struct tower_kind *kind,
                            const char *key, int64_t *out, struct error *e);
/* The layers that clip.vision.is_deepstack_layers marks, in order: how many are before layer `i`,
 * and of all layers where it is INT64_MAX. */
int64_t tower_count_deepstack(const struct gguf *tower, const struct tower_kind *kind, int64_t i);
/* Files of the first converters have the names of both products of an MLP exchanged. */
bool tower_swaps_mlp(const struct gguf *tower);
