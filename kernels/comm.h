/* kernels/comm.h: sums and gathers across the ranks of a tensor-parallel group. One table; `single` is one like others.
 *
 * Model code calls a communicator in two places: after a row-parallel product (allreduce_sum, before bias and residual)
 * and to gather logits (allgather_cols). Calls are ordered with the backend's ops. */
#pragma once

#include "kernels/backend.h"

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    void *group;
};

struct comm_ops {
    const char *name;
    /* x += the x of every other rank, in place. f32 rows. */
    void (*allreduce_sum)(struct comm *c, struct backend *b, struct tensor x);
    /* y [rows, size * x.cols] = the x of rank 0, 1, ... side by side. y may be x when size is 1. */
    void (*allgather_cols)(struct comm *c, struct backend *b, struct tensor y, struct tensor x);
    void (*close)(struct comm *c);
};

/* One rank: sums and gathers change nothing. */
enum status comm_open_single(struct comm **out, struct error *e);
/* Ranks that are threads of this process: out [size] gets one communicator a rank, each for one thread, which opens its
 * own backend ("cpu"), model and pool. All ranks must make the same calls in the same order. */
enum { COMM_MAX_RANKS = 64 };
enum status comm_open_threads(struct comm **out, int size, struct error *e);
void comm_close(struct comm *c);
static inline void comm_allreduce_sum(struct comm *c, struct backend *b, struct tensor x) {
    c->ops->allreduce_sum(c, b, x);
}
static inline void comm_allgather_cols(struct comm *c, struct backend *b, struct tensor y, struct tensor x) {
    c->ops->allgather_cols(c, b, y, x);
}
