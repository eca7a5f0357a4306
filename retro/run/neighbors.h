/* retro/run/neighbors.h: what makes a decoder a Retro: the neighbour encoder, which fills the slots that chunked cross
 * attention reads (cross_cache.h). One per session pool.
 *
 * When a step closes chunks, the first retro layer hands its normed rows to neighbors_encode: the chunk's m rows (kept
 * in open_rows while the chunk was open) condition the encoder (docs/spec/retro-model.md 5.1, 6), whose output is
 * projected once to every retro layer's keys and values and kept in a slot. A session holds the slot of its latest
 * chunk only. */
#pragma once

#include "retro/run/cross_cache.h"
#include "retro/run/encoder_group.h"
#include "retro/run/session.h"

/* A chunk that this step closes. Rows of the step from `row` on read it, until the sequence's next closing. */
struct closing {
    int session;                /* index in the pool: which open_rows hold its earlier rows */
    int row;                    /* row of the step that closes it */
    int rows_before, rows_here; /* rows of the chunk from earlier steps, and of this step */
    int slot, k;                /* slot -1 when k is 0 */
    const int32_t *ids;         /* [k, r] */
};

struct neighbors {
    const struct model *model; /* NULL: no retro model */
    struct cross_cache *cache;
    int m, r;
    struct encoder_group group; /* the neighbours of some chunks, each a text */
    int max_chunks;             /* of one group */
    struct tensor context;      /* [max_chunks * m, d]  normed decoder rows, zero-filled */
    struct tensor context_kv;   /* [max_chunks * m, 2 H h] of one layer */
    struct tensor open_rows;    /* [sessions * m, d] normed rows of each session's open chunk */
    void *memory[2];
    size_t sizes[2], bytes;     /* of memory, and of all */
    struct cross_source source; /* context_kv and cross_spans of the group that is encoded */
    /* Host arrays of one group. */
    int32_t *context_rows, *step_rows;
    struct attention_span *cross_spans;
};

/* max_closings: chunks that one step can close. Measuring fills in both what there will be and the cache, and
 * allocates nothing. */
enum status neighbors_measure(struct neighbors *nb, struct cross_cache *cache, const struct model *m,
                              const struct session_limits *l, int max_closings, struct error *e);
/* After neighbors_measure and the cache's opening. */
enum status neighbors_open(struct neighbors *nb, const struct session_limits *l, struct error *e);
void neighbors_close(struct neighbors *nb);

/* Encodes the closed chunks and fills their slots. normed: all rows of the step at the first retro layer. Stages after
 * the one that has this layer receive what was encoded there; normed is not used. */
void neighbors_encode(struct neighbors *nb, const struct closing *closings, int n, struct tensor normed);
/* Keeps rows of still open chunks: open_rows[rows[i]] = normed[i], -1 for none. After neighbors_encode. */
void neighbors_keep(struct neighbors *nb, struct tensor normed, const int32_t *rows);
