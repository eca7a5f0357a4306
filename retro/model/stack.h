/* retro/model/stack.h: the rows of activations that a stack's layers work in, and what comes before
 * and after them: embedding, the last norm. */
#pragma once

#include "retro/model/model_private.h"

/* Rows of activations for one pass: allocated once for the largest pass, sliced to the rows in use.
 */
struct scratch {
    float *memory;
    size_t bytes;
    int max_rows;
    struct tensor x;      /* [rows, d]            the residual stream */
    struct tensor normed; /* [rows, d]            what a branch reads */
    struct tensor qkv;    /* [rows, (H+2G) h]     local heads; the gate's H h beside them, or a
                             delta net's first product, where these are wider */
    struct tensor mixed;  /* [rows, H h]          attention output before its projection, or a delta
                             net's */
    struct tensor wide;   /* [rows, F or 2F]      fc1 */
    struct tensor gated;  /* [rows, F]            after the gate; wide when not gated */
    struct tensor branch; /* [rows, d]            a branch before it is added */
    struct tensor by_query, by_key; /* [rows, H 2 span] of struct distance_scores; without columns
                                       where distances add nothing */
    struct tensor inputs, words;    /* [rows, layers layer_input] of struct layer_inputs: what they
                                       give, and what tokens give them; without columns where there
                                       are none */
    struct tensor input;            /* [rows, layer_input], of one layer */
    struct tensor squares; /* [rows, 2]           of queries and keys where a norm covers all heads;
                              [rows, 1] of a state space's values */
    /* Of layers with experts (struct experts_args); without columns where there are none. */
    struct tensor
        choices; /* [rows, experts + 1]  the router's logits, the gate of the shared expert */
    struct tensor routes; /* [rows, 2 used] */
    struct tensor few;    /* [rows, width]        of one expert; width: dims_expert_width */
    struct tensor
        narrow; /* [rows, 2 width]      what experts read and give, where width is not d */
    struct tensor shared; /* [rows, d]            of the expert that all rows use, or of experts
                             beside an MLP */
    struct tensor parts;  /* [rows, used width] */
    /* Of mixers that keep states; without columns where there are none. */
    struct tensor gates;    /* [rows, 2 value heads] of delta nets */
    struct tensor channels; /* [rows, channels]      convolved, where more comes behind that */
};
/* Columns of a rank's mixers with states: the first product, the values of its heads, the channels
 * that are convolved, what weighs the heads, and the numbers of a state. */
struct mixer_columns {
    int product, values, channels, gates;
    size_t state;
};
/* All 0 where no layer keeps a state. */
struct mixer_columns stack_mixer_columns(const struct stack *stack);
/* Columns of scratch.qkv from which on latent attention has: queries' own short rows, from 0; the
 * heads' queries, and later their values; queries that meet latents; the row for the cache. */
struct latent_columns {
    int wide, queries, row, all;
};
/* All 0 where the stack has none. */
struct latent_columns stack_latent_columns(const struct stack *stack);
/* The bytes that scratch_open takes. STATUS_NO_MEMORY when they do not fit the address space. */
enum status scratch_measure(const struct stack *stack, int max_rows, size_t *bytes,
                            struct error *e);
enum status scratch_open(struct scratch *scratch, const struct model *model,
                         const struct stack *stack, int max_rows, struct error *e);
void scratch_close(struct scratch *scratch, const struct model *model);
/* The first rows; owns nothing. */
struct scratch scratch_rows(const struct scratch *scratch, int rows);

/* The factor of the scores of self attention in layer i. */
float stack_score_scale(const struct stack *stack, int i);

/* y = norm(x) with the stack's kind and epsilon. */
void stack_norm(const struct model *model, const struct stack *stack, struct tensor y,
                struct tensor x, const struct norm_weights *weights);

/* x = the embedded ids, with positions, token type and norm where the model has them
 * (docs/spec/retro-model.md 2). */
void stack_embed(const struct model *model, const struct stack *stack, struct tensor x,
                 const int32_t *ids, const int32_t *positions);
/* scratch.inputs of the embedded rows in scratch.x, where the stack's layers have inputs. */
void stack_layer_inputs(const struct model *model, const struct stack *stack,
                        const struct scratch *scratch, const int32_t *ids);
