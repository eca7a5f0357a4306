/* kernels/cpu/fetch.h: matrices of experts in a mapped file that memory does not hold, asked for
 * before they are multiplied.
 *
 * A product that meets pages that are not in memory waits for one small read after another. The
 * routes say which matrices a layer needs, so all of them are asked for at once, and the disk works
 * on many reads while the first matrices are multiplied. */
#pragma once

#include "kernels/cpu/cpu.h"

/* Bytes that are asked for ahead of the expert that is multiplied, about: a step of many rows uses
 * nearly all experts of a layer, and asking for all of them could push the first ones out again
 * before they are used. */
enum { FETCH_AHEAD_BYTES = 64 << 20 };

/* The experts of one call, in the order in which they are multiplied, which is that of the file. */
struct expert_fetch {
    const struct experts_args *args;
    struct cpu *cpu;
    bool used[ROUTE_EXPERTS]; /* by a row */
    int next;                 /* experts before it have been asked for */
    size_t ahead;             /* bytes that were asked for and not used yet */
    size_t missing;           /* bytes of those before `next` that were not in memory */
    struct fetch_counts {
        unsigned long long sectors, faults; /* that the program has read, and waited for */
    } before;
};

/* Asks for the first experts. */
void expert_fetch_begin(struct expert_fetch *fetch, struct backend *backend,
                        const struct experts_args *args);
/* Whether memory holds all experts of the call: nothing had to be asked for. */
bool expert_fetch_has_all(const struct expert_fetch *fetch);
/* Asks for what is missing of `expert` and of those after it, before it is multiplied; each expert
 * in turn. */
void expert_fetch_advance(struct expert_fetch *fetch, int expert);
/* Counts the bytes that the program has read from disk since the beginning, for ops->fetched_bytes:
 * nearly all of them are of experts. */
void expert_fetch_end(const struct expert_fetch *fetch);
