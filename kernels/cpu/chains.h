/* kernels/cpu/chains.h: the spans of operations that keep states, as chains: those of one sequence,
 * each behind the one before it (struct state_span). */
#pragma once

#include "kernels/cpu/cpu.h"

static inline bool span_follows(const struct state_span *spans, int span) {
    return span > 0 && spans[span].follows;
}

static inline int count_chains(const struct state_span *spans, int n) {
    int chains = 0;
    for (int i = 0; i < n; i++) chains += !span_follows(spans, i);
    return chains;
}

/* The first span of the chain with this number; n: there are fewer. */
static inline int find_chain(const struct state_span *spans, int n, int number) {
    int span = 0;
    for (int seen = -1; span < n; span++) {
        seen += !span_follows(spans, span);
        if (seen == number) break;
    }
    return span;
}

static inline double count_rows(const struct state_span *spans, int n) {
    double rows = 0;
    for (int i = 0; i < n; i++) rows += spans[i].n;
    return rows;
}
