/* retro/run/session/plan.h: one batch step laid out on the host before anything runs: its rows, the
 * places of their keys and values, the neighbours or sources they read. It is all that a rank needs
 * to compute its share of the step, so rank 0, which knows the sessions, sends it to the others as
 * it is. */
#pragma once

#include "config/base/buffer.h"
#include "retro/run/cross/chunk_slots.h"
#include "retro/run/cross/neighbors.h"
#include "retro/run/cross/sources.h"

/* Rows that tell how they share out one kind of attention: parts of the spans that this kind has.
 */
struct attention_shares {
    int n;
    struct attention_span *spans;         /* [n] */
    struct attention_span *ordered_spans; /* as a plan has them */
    struct key_group *span_groups;        /* [n] which of the plan's groups */
};

/* Arrays are as long as the pool's limits allow. */
struct plan {
    int n_rows, n_spans, n_blocks, n_closings, n_sources, n_cross_spans, n_logits, n_given;
    int watched;  /* 1: before each layer rank 0 says whether anybody still waits for the step, else
                     0 */
    int32_t *ids; /* [rows] -1: the row is given */
    /* NULL where the pool takes no given rows. */
    int32_t *given_rows; /* [rows] which of `given` takes the place of the row's word, -1: none */
    int32_t
        *given_to; /* [n_given] the row that it is, position and all, -1: only the word of one */
    int32_t *positions;  /* [rows, sections] */
    int32_t *cache_rows; /* [rows] */
    int32_t *logit_rows; /* [n_logits] */
    float *row_scale;    /* [rows] of chunked cross attention; 0: the row reads nothing */
    float *given;        /* [n_given, given_columns] */
    /* Of models with states; NULL without. */
    struct state_span *state_spans;
    int32_t *save_rows; /* [rows] which of the saved rows a draft becomes, -1: none */
    int n_state_spans;
    int saves;       /* 1: some of its rows are drafts that are saved, else 0 */
    int32_t *blocks; /* [n_blocks] the block tables of all items; spans count in them */
    struct attention_span *spans, *cross_spans; /* [n_spans], [n_cross_spans] */
    struct attention_span *ordered_spans; /* [n_spans] the same, none of them mutual; not sent */
    int32_t *input_ids;                   /* [rows] ids that say what each layer gets; not sent */
    struct closing *closings;
    int *slots, n_slots; /* of chunks that sessions begin to read in this step; not sent */
    struct source *sources;
    struct attention_shares self_shares, cross_shares;
    struct key_group *groups; /* [n_groups] of keys */
    int n_groups;
    int given_columns;
    int sections;     /* positions of a row */
    int tells;        /* 1: some of its rows tell how they share out their attention, else 0 */
    int32_t *no_rows; /* [rows] -1 each; not sent */
};

/* The lengths of a plan's arrays. */
struct plan_sizes {
    int rows, items, blocks, closings, given, given_columns, sections;
    int spans;  /* of rows that attend to those of their session */
    int shares; /* groups of an item, at most */
    int states; /* spans of states; 0: the model has no states */
};
void plan_open(struct plan *plan, const struct plan_sizes *sizes);
void plan_close(struct plan *plan);
void plan_clear(struct plan *plan);
/* Fills ordered_spans, those of what is told of attention too. */
void plan_order_spans(struct plan *plan);
/* Fills input_ids: where a row is given as it is, `stand_in` stands for it. */
void plan_input_ids(struct plan *plan, int stand_in);

/* Appends the plan, the neighbour tokens its closings name (r of each), its sources' ids and its
 * given rows.
 */
void plan_write(const struct plan *plan, int r, struct buffer *out);
/* Reads what plan_write appended, for a pool of the same limits, and moves *in behind it. Neighbour
 * tokens and sources stay where they are, in the bytes. */
void plan_read(struct plan *plan, int r, struct text_span *in);
