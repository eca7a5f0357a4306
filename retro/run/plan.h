/* retro/run/plan.h: what one batch step does, laid out on the host before anything runs: which rows, where their keys
 * and values live, which neighbours they read. It is all that a rank needs to compute its share of the step, so rank 0,
 * which knows the sessions, sends it to the others as it is. */
#pragma once

#include "config/base/buffer.h"
#include "retro/run/neighbors.h"

/* Arrays are as long as the pool's limits allow. */
struct plan {
    int n_rows, n_items, n_closings, n_cross_spans, n_logits;
    int32_t *ids, *positions, *cache_rows, *keep_rows; /* [rows] */
    int32_t *logit_rows;                               /* [n_logits] */
    float *row_scale;                                  /* [rows] of chunked cross attention; 0: the row reads nothing */
    struct attention_span *spans, *cross_spans;        /* [items], [n_cross_spans] */
    struct closing *closings;
    int *closing_item; /* which item a closing belongs to */
};

void plan_open(struct plan *p, const struct session_limits *l, int max_closings);
void plan_close(struct plan *p);

/* Appends the plan, and the neighbour tokens its closings name (r of each). */
void plan_write(const struct plan *p, int r, struct buffer *out);
/* Reads what plan_write appended, for a pool of the same limits, and moves *in behind it. Neighbour tokens stay where
 * they are, in the bytes. */
void plan_read(struct plan *p, int r, struct text_span *in);
