/* kernels/comm/comm_rendezvous.h: the meeting of ranks that nothing launched together. Rank 0
 * listens at an address that all know, and rank k at the same port plus k, where the ranks behind
 * it come to. A rank is let in when it proves that it has the secret of the others
 * (comm_greeting.h), so a stranger at the port neither joins nor holds anybody up.
 */
#pragma once

#include "kernels/comm/comm_greeting.h"

/* Two connections to each other rank: one for rows and messages, one on which ranks watch each
 * other. */
enum { CHANNEL_DATA, CHANNEL_WATCH, CHANNELS };

struct rank_links {
    int sockets[CHANNELS][COMM_MAX_RANKS]; /* -1 at this rank's own place */
    struct seat seats[COMM_MAX_RANKS];
};

/* Joins this process, rank options->rank, with all other ranks, in options->timeout seconds at
 * most; then the error says who did not come. When rank 0 refuses a rank that has the secret, for
 * being another number of ranks or being there already, it says why to all and all fail.
 * STATUS_INVALID without a secret where other machines could come. */
enum status comm_rendezvous(struct rank_links *links, const struct comm_options *options,
                            struct error *e);
