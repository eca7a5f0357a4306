/* retrieval/search/fusion.h: one ranking of the chunks that vectors, words and sparse weights have
 * found. */
#pragma once

#include "retrieval/search/candidates.h"

/* Lists of one query. */
struct fusion_lists {
    const struct candidates *passages; /* the nearest chunks */
    const struct candidates *words;    /* those that share words with the query */
    const struct candidates *sparse;   /* by sparse weights; NULL: it is not sought by these */
    struct sparse_row weights;         /* of the query, where it is */
};
/* Joins them into *out, which is zeroed: at most `most` chunks, the best first, with what each is
 * worth (struct hit_worth). The lists stay the caller's. STATUS_CORRUPT where sparse weights are
 * damaged. */
enum status fusion_join(struct text_span query, const struct fusion_lists *lists, int most,
                        struct candidates *out, struct error *e);
