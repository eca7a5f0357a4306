/* retro/run/cross/neighbors.h: what makes a decoder a Retro: the neighbour encoder, which fills the
 * slots that chunked cross attention reads (cross_cache.h). One per session pool.
 *
 * The first retro layer hands its normed rows to neighbors_keep, which puts them beside their keys
 * and values (kv_cache.h). When a step closes chunks, neighbors_encode finds the chunk's m rows
 * there. They condition the encoder (docs/spec/retro-model.md 5.1, 6), whose output is projected
 * once to every retro layer's keys and values and kept in a slot. A session holds the slot of its
 * latest chunk only. A session that took over an earlier one's rows has no slot yet; its first step
 * encodes its latest closed chunk again, unless a slot still has it (chunk_slots.h). */
#pragma once

#include "retro/run/cache/kv_cache.h"
#include "retro/run/cache/session_limits.h"
#include "retro/run/cache/session_text.h"
#include "retro/run/cross/cross_cache.h"
#include "retro/run/cross/encoder_group.h"

/* A chunk that this step encodes: one that it closes, or the latest closed one of a session that
 * took over rows. */
struct closing {
    int blocks;         /* where its sequence's begin in the step's block table */
    int start, n;       /* rows of the sequence: [start, start + n) are the chunk's */
    int slot, k;        /* k > 0 */
    const int32_t *ids; /* [k, r] */
};

struct neighbors {
    const struct model *model; /* NULL: no retro model */
    struct cross_cache *cache;
    const struct kv_cache *rows; /* that has the chunks' rows */
    int m, r;
    struct encoder_group group; /* the neighbours of some chunks, each a text */
    int max_chunks;             /* of one group */
    struct tensor context;      /* [max_chunks * m, d]  normed decoder rows, zero-filled */
    struct tensor context_kv;   /* [max_chunks * m, 2 H h] of one layer */
    void *memory;
    size_t memory_bytes, bytes; /* of memory, and of all */
    struct cross_source source; /* context_kv and cross_spans of the group that is encoded */
    /* Host arrays of one group. */
    int32_t *context_rows;
    struct attention_span *cross_spans;
};

/* max_closings: chunks that one step can close. Measuring fills in both what there will be and the
 * cache, and allocates nothing. */
enum status neighbors_measure(struct neighbors *nb, struct cross_cache *cache,
                              const struct model *model, const struct session_limits *limits,
                              int max_closings, struct error *e);
/* After neighbors_measure and both caches' opening; `rows` has keys and values of the decoder's
 * rows. */
enum status neighbors_open(struct neighbors *nb, const struct kv_cache *rows, struct error *e);
void neighbors_close(struct neighbors *nb);

/* Puts the step's rows at the first retro layer beside their keys and values: row i at row rows[i].
 */
void neighbors_keep(struct neighbors *nb, struct tensor normed, const int32_t *rows);
/* Encodes the chunks and fills their slots; their rows are kept. `blocks` is the step's block
 * table. Stages after the one that has the first retro layer receive what was encoded there. */
void neighbors_encode(struct neighbors *nb, const int32_t *blocks, const struct closing *closings,
                      int n);
