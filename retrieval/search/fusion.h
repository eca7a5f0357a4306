/* retrieval/search/fusion.h: one ranking of the chunks that vectors and words have found. */
#pragma once

#include "retrieval/search/candidates.h"

/* Joins two lists of one query into *out, which is zeroed: at most `most` chunks, the best first,
 * with what each is worth (struct hit_worth). *passages has the nearest chunks, *words those that
 * share words with the query. The lists stay the caller's. */
void fusion_join(struct text_span query, const struct candidates *passages,
                 const struct candidates *words, int most, struct candidates *out);
