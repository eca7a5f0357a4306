/* retro/model/tensor_shapes.h: the shape of each place that a model keeps weights in, in sizes of
 * its dims, and a rank's share of it. */
#pragma once

#include "retro/model/tensors.h"

/* Sizes that shapes are made of. Q, K, V blocks are counted in heads so that a rank takes whole
 * heads. */
enum extent {
    EXTENT_ONE,
    EXTENT_HIDDEN,
    EXTENT_QKV,
    EXTENT_NORM_Q,
    EXTENT_NORM_K,
    EXTENT_HEADS,
    EXTENT_KEYS,
    EXTENT_CROSS_KV,
    EXTENT_FC1,
    EXTENT_FFN,
    EXTENT_EXPERTS,
    EXTENT_EXPERT_FC1,
    EXTENT_EXPERT_FFN,
    EXTENT_EXPERT_WIDTH,
    EXTENT_SHARED_FC1,
    EXTENT_SHARED_FFN,
    EXTENT_VOCAB,
    EXTENT_POSITIONS,
    EXTENT_TYPES,
    EXTENT_BUCKETS,
    EXTENT_DISTANCES,
    EXTENT_HEAD_COUNT,
    EXTENT_CHANNELS,
    EXTENT_CLASS_TOKENS,
    EXTENT_PATCH_POSITIONS,
    EXTENT_PATCH,
    EXTENT_PROJECTOR_IN,
    EXTENT_PROJECTOR_NORM,
    EXTENT_PROJECTOR_MERGED,
    EXTENT_PROJECTOR_FC1,
    EXTENT_PROJECTOR_FFN,
    EXTENT_PROJECTOR_OUT,
    EXTENT_JOINT,
    EXTENT_LAYER_INPUT,
    EXTENT_LAYER_INPUTS,
    EXTENT_INPUT_VOCAB,
    EXTENT_LATENT_IN,
    EXTENT_LATENT_RANK,
    EXTENT_LATENT_QUERY_RANK,
    EXTENT_LATENT_QUERY_IN,
    EXTENT_LATENT_QUERIES,
    EXTENT_LATENT_PLAIN,
    EXTENT_LATENT_VALUE,
    EXTENT_STATE_IN,
    EXTENT_STATE_GATES,
    EXTENT_STATE_VALUES,
    EXTENT_STATE_CHANNELS,
    EXTENT_STATE_KERNEL,
    EXTENT_STATE_HEADS,
    EXTENT_STATE_NORM
};

enum place_split {
    SPLIT_COPY,
    SPLIT_ROWS,
    SPLIT_COLS
}; /* of the stored [out, in] matrix over ranks (spec 8) */

/* The kind of weight at a place. */
enum place_kind {
    KIND_NORM,
    KIND_PROJECTION,
    KIND_MATRIX,
    KIND_EXPERTS,
    KIND_HEADS, /* struct weight *, a matrix a head */
    KIND_TABLE,
    KIND_RELATIVE
};

/* One place of struct layer or struct model. */
struct place_shape {
    size_t place;
    enum place_kind kind;
    enum extent out, in;
    enum place_split split;
};

/* The shape of a place of struct layer, or of struct model. A family's row names no other place. */
const struct place_shape *layer_shape(size_t place);
/* Whether a place of struct layer is one of its bounds. */
bool layer_place_is_clip(size_t place);
const struct place_shape *outer_shape(size_t place);

/* This rank's share of a place whose dims are the stack's, or those of a layer; NULL: it is in
 * none.
 */
struct share share_make(const struct model *model, enum stack_id stack,
                        const struct layer_spec *layer, const struct place_shape *shape);
