/* retro/model/layer.h: THE transformer layer, one for every stack of every model. */
#pragma once

#include "retro/model/stack.h"

/* The rows that cross attention reads: keys and values [rows, H h], and which of them each query
 * span sees. A row in no span has row_scale 0 and keeps its residual exactly. row_scale may be
 * NULL: every row, scale 1. */
struct cross_source {
    struct tensor k, v;
    const struct attention_span *spans;
    int n_spans;
    const float *row_scale;
};

/* Called with norm_cross(x) before a layer's cross attention; returns what to read, or NULL for
 * nothing (z = y). */
typedef const struct cross_source *cross_function(void *context, int layer_index,
                                                  struct tensor normed);

/* Where a pass keeps keys and values for later passes. `rows` NULL: nowhere, and rows attend within
 * the pass. */
struct pass_cache {
    struct tensor k, v;               /* of this layer: [cache rows, G h] */
    struct tensor k_scales, v_scales; /* of int8 k and v: [cache rows, G]; else data NULL */
    const int32_t *rows;              /* [rows of the pass] where their keys and values go */
    const int32_t *blocks; /* which the spans' k_start counts in (struct attention_args) */
    int n_blocks;
};

/* Rows that are to tell how they share out their attention: y grows by what groups of keys get,
 * layer by layer. */
struct pass_shares {
    struct tensor y;
    const struct attention_span
        *spans; /* of these rows; they are parts of the pass's spans, or of its source's */
    const struct attention_span *ordered_spans; /* as the pass has them */
    int n_spans;
    const struct key_group *groups, *span_groups; /* as attention_shares_args has them */
    int n_groups;
    float weight;
};

/* The states that a pass's rows go on from, in layers that keep them. `states` without data: rows
 * begin anew and nothing stays. */
struct pass_states {
    struct tensor states; /* of this layer: [states, mixer_columns.state] */
    const struct state_span *spans;
    int n_spans;
    /* Of rows that may turn out never to have been: what layer_replay needs of them, [saved rows,
     * channels + gates], and where it goes, [rows of the pass], -1: it is not kept.
     * save_rows NULL: of none. */
    struct tensor saved;
    const int32_t *save_rows;
};

/* One pass of packed rows through the layers of a stack. The caller fills it once; `layer_index`,
 * those of `cache`'s tensors, `states.states` and `states.saved` change per layer. */
struct pass {
    const struct model *model;
    const struct stack *stack;
    struct scratch scratch; /* sliced to the rows of this pass */
    const struct attention_span *spans;
    const struct attention_span *ordered_spans; /* the same, none of them mutual, for layers that
                                                   are `ordered`; NULL: no layer is */
    int n_spans;
    const int32_t *positions; /* [rows, dims.rope_sections], for RoPE */
    int most_tokens; /* that a session may have, or a text of the pass has: chooses the rotary table
                        of models that have two; 0: few */
    struct pass_cache cache;
    struct pass_states states;
    int layer_index;
    cross_function *cross;
    void *context;
    const struct pass_shares *self_shares, *cross_shares; /* NULL: nobody asks */
};

/* x = layer(x), in place on pass->scratch.x (docs/spec/retro-model.md 4.1; post-norm layers as
 * BERT). */
void layer_forward(const struct pass *pass, const struct layer *layer);
/* Moves the states of a layer that keeps them on by saved rows: spans count in pass->states.saved,
 * of which the pass's scratch has as many rows. */
void layer_replay(const struct pass *pass, const struct layer *layer);
