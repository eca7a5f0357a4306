/* kernels/comm/comm.h: the ranks that share a model. One table; `single`, a group of one, is a
 * table like the others.
 *
 * A model's layers are cut into stages, and each layer into the parts of a tensor-parallel group. A
 * rank has a communicator of its group, and in it one of the world, all groups; with one stage
 * these are the same.
 *
 * Calls on rows, by model code, ordered with the backend's ops:
 *
 *     allreduce_sum    after a row-parallel product, before bias and residual
 *     allgather_cols   to gather logits
 *     send, receive    in the world, between stages
 *
 * Their failure sticks in the backend like an op's, as STATUS_DEVICE. A group of which one rank
 * failed does not heal.
 *
 * Calls on messages, on the host:
 *
 *     broadcast        rank 0 says what to do
 *     agree            all learn whether all could
 *
 * All ranks make the same calls in the same order. A communicator belongs to one thread at a time.
 */
#pragma once

#include "config/base/base.h"
#include "config/base/buffer.h"
#include "kernels/backend.h"

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    int stage, stages;
    struct comm *world; /* this communicator itself when there is one stage */
    int local_rank;     /* among the ranks of this machine: which of its GPUs is ours */
    int local_ranks;    /* how many there are on this machine, which share its memory */
    int cpus; /* CPUs this rank can keep busy without taking those of other ranks of this machine */
    void *group;
};

struct comm_ops {
    const char *name;
    /* x += the x of every other rank, in place, added in the order of ranks: all ranks hold the
     * same bits. f32 rows. */
    void (*allreduce_sum)(struct comm *comm, struct backend *backend, struct tensor x);
    /* y [rows, y.cols] = the x of rank 0, 1, ... side by side (gathered_col), y.cols <= size *
     * x.cols. y overlaps x only when it is x and size is 1. f32 rows without gaps. */
    void (*allgather_cols)(struct comm *comm, struct backend *backend, struct tensor y,
                           struct tensor x);
    /* Rows for rank `to`; returns without waiting for it. It receives in the order of sending. f32
     * rows without gaps, the same number on both sides. A group of one has neither. */
    void (*send)(struct comm *comm, struct backend *backend, struct tensor x, int to);
    void (*receive)(struct comm *comm, struct backend *backend, struct tensor x, int from);
    /* Rank 0's message becomes everyone's. Others wait for it as long as it takes, or for the time
     * limit of a step where it is to come `soon`. STATUS_DEVICE when a rank failed. */
    enum status (*broadcast)(struct comm *comm, struct buffer *message, bool soon, struct error *e);
    /* Every rank hands in its outcome, and *mine becomes the first that is not STATUS_OK, or stays.
     * Waits as long as it takes for a rank that says it is working, for others the time limit. */
    enum status (*agree)(struct comm *comm, struct error *mine);
    /* Now and then, from a rank with much to do before it agrees: it has come further. It may say
     * nothing else before. STATUS_DEVICE when another is known to be gone, and the work is for
     * nothing. */
    enum status (*working)(struct comm *comm, struct error *e);
    /* STATUS_DEVICE when a rank is known to be gone, for whoever has nothing to wait for. Any
     * thread may ask. */
    enum status (*check)(const struct comm *comm, struct error *e);
    /* This rank is out: every wait of the others, now or later, fails with the reason as its text.
     */
    void (*leave)(struct comm *comm, const struct error *why);
    void (*close)(struct comm *comm);
};

enum { COMM_MAX_RANKS = 64 };

/* The place of rank r's `part` columns among `whole`. When these are not size * part, the last
 * parts overlap and hold the same numbers there; that of the highest rank stays. */
static inline int gathered_col(int whole, int part, int r) {
    return min_int(r * part, whole - part);
}

/* The kinds of ranks and of ways between them. */
enum comm_kind { COMM_AUTO, COMM_SINGLE, COMM_THREADS, COMM_MPI, COMM_SOCKETS, COMM_NCCL };

struct comm_options {
    int kind;   /* enum comm_kind */
    int size;   /* ranks of a group */
    int stages; /* groups; size * stages is at most COMM_MAX_RANKS */
    double
        timeout; /* seconds that one rank waits for another to start, and for it to come further */
    /* sockets: */
    const char *rendezvous;  /* host:port where rank 0 listens; NULL or empty: another kind */
    const char *secret_file; /* with the same secret for all ranks; NULL or empty: no other machine
                                can come */
    const char *host; /* the address at which other ranks reach this one; NULL or empty: with which
                         it reaches 0 */
    int rank;         /* which rank this is */
};

/* Opens the ranks of this process: out [COMM_MAX_RANKS] gets *n of them: all with threads, else
 * one. COMM_AUTO is single for one rank; more are sockets where there is a rendezvous, the
 * processes of an MPI job where mpirun started some, else threads. COMM_NCCL opens what carries the
 * messages, as auto does: comm_open_nccl goes on top. */
enum status comm_open(struct comm **out, int *n, const struct comm_options *options,
                      struct error *e);
/* One rank: sums and gathers change nothing. */
enum status comm_open_single(struct comm **out, struct error *e);
/* One group of ranks that are threads of this process: out [size], each for one thread, which opens
 * its own backend, with memory that the host can read, and its own model. */
void comm_open_threads(struct comm **out, int size, double timeout);
/* This process's rank of the MPI job that mpirun started; STATUS_INVALID when that has another
 * number of ranks. Any backend. After a failure MPI is not finalised, which ends the job: mpirun
 * stops all ranks of a job when one ends so.
 */
enum status comm_open_mpi(struct comm **out, const struct comm_options *options, struct error *e);
/* This process's rank of those that meet at options->rendezvous (comm_rendezvous.h), joined by TCP
 * connections. Any backend. STATUS_IO when not all came within options->timeout. */
enum status comm_open_sockets(struct comm **out, const struct comm_options *options,
                              struct error *e);
/* The number of ranks that mpirun started; 1 without mpirun, 0 in a build without MPI, -1 when they
 * did not all start within `timeout` seconds: then comm_open_mpi says so. */
int comm_mpi_size(double timeout);
/* Sums and gathers by NCCL on the stream of the backend, a CUDA backend with a device of its own.
 * Takes over the carrier, which brings the other ranks NCCL's id and goes on carrying messages; on
 * failure the carrier stays the caller's. A device that waits longer than `timeout` seconds for
 * those of others is no longer waited for. */
enum status comm_open_nccl(struct comm **out, struct comm *carrier, struct backend *backend,
                           double timeout, struct error *e);
void comm_close(struct comm *comm);

/* *e becomes the first rank's failure, "rank 2: ...", whichever rank we are; mine is this rank's
 * outcome, with *e. */
enum status comm_agree(struct comm *comm, enum status mine, struct error *e);
/* Fails on all ranks unless all have the same lines of text, which say how they were started. The
 * error is of the first rank that differs from rank 0, with the line. Ranks may have been working,
 * as before comm_agree. */
enum status comm_same(struct comm *comm, const char *text, struct error *e);
static inline void comm_allreduce_sum(struct comm *comm, struct backend *backend, struct tensor x) {
    comm->ops->allreduce_sum(comm, backend, x);
}
static inline void comm_allgather_cols(struct comm *comm, struct backend *backend, struct tensor y,
                                       struct tensor x) {
    comm->ops->allgather_cols(comm, backend, y, x);
}
static inline enum status comm_broadcast(struct comm *comm, struct buffer *message,
                                         struct error *e) {
    return comm->ops->broadcast(comm, message, false, e);
}
/* The same for a message that comes in the middle of a step. */
static inline enum status comm_broadcast_soon(struct comm *comm, struct buffer *message,
                                              struct error *e) {
    return comm->ops->broadcast(comm, message, true, e);
}
static inline enum status comm_working(struct comm *comm, struct error *e) {
    return comm->ops->working(comm, e);
}
static inline void comm_send(struct comm *comm, struct backend *backend, struct tensor x, int to) {
    comm->ops->send(comm, backend, x, to);
}
static inline void comm_receive(struct comm *comm, struct backend *backend, struct tensor x,
                                int from) {
    comm->ops->receive(comm, backend, x, from);
}
static inline enum status comm_check(const struct comm *comm, struct error *e) {
    return comm->ops->check(comm, e);
}
/* Out of the group and out of the world. */
void comm_leave(struct comm *comm, const struct error *why);

/* For implementations: a failed backend of a group stays failed as STATUS_DEVICE; `why` is taken
 * when the backend had none. */
void comm_fail_backend(struct backend *backend, const struct error *why);
/* The first of all [size] ranks whose outcome is a failure; -1 when there is none. */
int comm_first_failure(const struct error *all, int size);
/* Gives way to other ranks between two looks, `waited` seconds after a wait began; false when the
 * wait is so long that the caller should sleep. */
bool comm_rest(double waited);
/* CPUs this process may run on. */
int comm_cpus(void);
