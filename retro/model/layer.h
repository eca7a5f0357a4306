/* retro/model/layer.h: THE transformer layer, and the scratch rows it works in. */
#pragma once

#include "retro/model/model_private.h"

/* Rows of activations for one pass: allocated once for the largest pass, sliced to the rows in use. */
struct scratch {
    float *memory;
    size_t bytes;
    int max_rows;
    struct tensor x;      /* [rows, d]            the residual stream */
    struct tensor normed; /* [rows, d]            what a branch reads */
    struct tensor qkv;    /* [rows, (H+2G) h]     local heads */
    struct tensor mixed;  /* [rows, H h]          attention output before its projection */
    struct tensor wide;   /* [rows, F or 2F]      fc1 */
    struct tensor gated;  /* [rows, F]            after the gate; wide when not gated */
    struct tensor branch; /* [rows, d]            a branch before it is added */
};
/* What it takes. */
enum status scratch_measure(const struct model *m, int max_rows, size_t *bytes, struct error *e);
enum status scratch_open(struct scratch *s, const struct model *m, int max_rows, struct error *e);
void scratch_close(struct scratch *s, const struct model *m);
struct scratch scratch_rows(const struct scratch *s, int rows); /* the first rows; owns nothing */

/* What cross attention reads: keys and values [rows, H h], and which rows of them each query span sees. A row in no
 * span has row_scale 0 and keeps its residual exactly. row_scale may be NULL: every row, scale 1. */
struct cross_source {
    struct tensor k, v;
    const struct attention_span *spans;
    int n_spans;
    const float *row_scale;
};

/* One pass of packed rows through layers. The caller fills it once; `layer_index`, `k` and `v` change per layer. */
struct pass {
    const struct model *model;
    struct scratch scratch; /* sliced to the rows of this pass */
    const struct attention_span *spans;
    int n_spans;
    const int32_t *positions; /* [rows], for RoPE */
    /* With a cache: where the new rows of this layer's keys and values go, and what the spans' k_start count in.
     * Without (cache_rows NULL): the rows attend within qkv itself. */
    struct tensor k, v;
    const int32_t *cache_rows; /* [rows] */
    int layer_index;
    /* Called with norm_cross(x) before cross attention; returns what to read, or NULL for nothing (z = y). */
    const struct cross_source *(*cross)(void *context, int layer_index, struct tensor normed);
    void *context;
};

/* x = layer(x), in place on pass->scratch.x (docs/spec/retro-model.md 4.1; post-norm layers as BERT). */
void layer_forward(const struct pass *p, const struct layer *l);
/* y = norm(x) with the model's kind and epsilon. */
void norm_rows(const struct model *m, struct tensor y, struct tensor x, const struct norm_weights *w);
