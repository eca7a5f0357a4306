/* kernels/comm/comm.c: the choice of a communicator for a configuration, and the code that all of
 * them share. See comm.h. */
#include "kernels/comm/comm.h"

#include <sched.h>
#include <string.h>

int comm_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1; /* more CPUs than a cpu_set_t holds */
    return max_int(1, CPU_COUNT(&set));
}

/* Sums of a step follow each other closely, so nobody sleeps within one. But a job may have more
 * ranks than cores, so a waiting rank lets others work: three threads on two cores that looked 2000
 * times before took 2.9 ms a token, and now 0.3. */
bool comm_rest(double waited) {
    enum { YIELD_MS = 4 };
    if (waited >= 1e-3 * YIELD_MS) return false;
    sched_yield();
    return true;
}

void comm_fail_backend(struct backend *backend, const struct error *why) {
    if (backend->error.status == STATUS_OK) backend->error = *why;
    backend->error.status = STATUS_DEVICE;
}

int comm_first_failure(const struct error *all, int size) {
    for (int r = 0; r < size; r++)
        if (all[r].status) return r;
    return -1;
}

#if !HAVE_MPI
int comm_mpi_size(double timeout) {
    (void)timeout;
    return 0;
}

enum status comm_open_mpi(struct comm **out, const struct comm_options *o, struct error *e) {
    (void)out;
    (void)o;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "parallel.comm is mpi, and this build has no MPI: install libopenmpi-dev and build again");
}
#endif

#if !HAVE_NCCL
enum status comm_open_nccl(struct comm **out, struct comm *carrier, struct backend *backend,
                           double timeout, struct error *e) {
    (void)out;
    (void)carrier;
    (void)backend;
    (void)timeout;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "parallel.comm is nccl, and this build has no NCCL: it needs nvcc, nccl.h and libnccl; "
        "make info shows what was found");
}
#endif

/* The kind that auto stands for, and the one that carries the messages of nccl. */
static int kind_choose(const struct comm_options *options) {
    if (options->kind != COMM_AUTO && options->kind != COMM_NCCL) return options->kind;
    if (options->size * options->stages == 1) return COMM_SINGLE;
    if (options->rendezvous && options->rendezvous[0]) return COMM_SOCKETS;
    int started = comm_mpi_size(options->timeout);
    return started > 1 || started < 0 ? COMM_MPI : COMM_THREADS;
}

/* Rank r of the world is rank r % size of stage r / size. */
static void threads_open(struct comm **out, const struct comm_options *options) {
    struct comm *world[COMM_MAX_RANKS];
    int n = options->size * options->stages, cpus = max_int(1, comm_cpus() / n);
    comm_open_threads(world, n, options->timeout);
    for (int s = 0; s < options->stages; s++) {
        struct comm **group = out + s * options->size;
        if (options->stages > 1)
            comm_open_threads(group, options->size, options->timeout);
        else
            memcpy(group, world, (size_t)n * sizeof *world);
    }
    for (int r = 0; r < n; r++) {
        out[r]->world = world[r];
        out[r]->stage = r / options->size;
        out[r]->stages = options->stages;
        out[r]->local_rank = r;
        out[r]->local_ranks = n;
        out[r]->cpus = cpus;
    }
}

enum status comm_open(struct comm **out, int *n, const struct comm_options *options,
                      struct error *e) {
    if (options->size < 1 || options->stages < 1 ||
        options->size > COMM_MAX_RANKS / options->stages)
        return error_set(e, STATUS_INVALID,
                         "%d stages of %d ranks, allowed are 1 .. %d ranks in all", options->stages,
                         options->size, COMM_MAX_RANKS);
    int kind = kind_choose(options);
    *n = kind == COMM_THREADS ? options->size * options->stages : 1;
    if (kind == COMM_SOCKETS) return comm_open_sockets(out, options, e);
    if (kind == COMM_MPI) return comm_open_mpi(out, options, e);
    if (kind == COMM_THREADS) {
        threads_open(out, options);
        return STATUS_OK;
    }
    if (options->size * options->stages > 1)
        return error_set(e, STATUS_INVALID,
                         "parallel.comm is single, which is one rank, and parallel.tensor times "
                         "parallel.pipeline is %d; "
                         "use threads, mpi, sockets or auto",
                         options->size * options->stages);
    return comm_open_single(out, e);
}

void comm_close(struct comm *comm) {
    if (comm == NULL) return;
    struct comm *world = comm->world;
    if (world != comm) world->ops->close(world);
    comm->ops->close(comm);
}

void comm_leave(struct comm *comm, const struct error *why) {
    comm->ops->leave(comm, why);
    if (comm->world != comm) comm->world->ops->leave(comm->world, why);
}

enum status comm_agree(struct comm *comm, enum status mine, struct error *e) {
    struct error outcome = {.status = STATUS_OK};
    if (mine) outcome = *e;
    enum status status = comm->ops->agree(comm, &outcome);
    if (status) *e = outcome;
    return status;
}

/* The first line in which ours and rank 0's differ becomes *e. */
static enum status lines_compare(const char *mine, const char *theirs, struct error *e) {
    enum { SHOWN = 150 }; /* bytes of a line */
    for (;;) {
        int m = (int)strcspn(mine, "\n"), t = (int)strcspn(theirs, "\n");
        if (m != t || memcmp(mine, theirs, (size_t)m) != 0 || mine[m] != theirs[t])
            return error_set(e, STATUS_INVALID,
                             "has %.*s; rank 0 has %.*s. Give all ranks the same",
                             min_int(m, SHOWN), mine, min_int(t, SHOWN), theirs);
        if (mine[m] == '\0') return STATUS_OK;
        mine += m + 1;
        theirs += t + 1;
    }
}

enum status comm_same(struct comm *comm, const char *text, struct error *e) {
    struct buffer message = {0};
    if (comm_agree(comm, STATUS_OK, e)) return e->status;
    buffer_append_string(&message, text);
    enum status status = comm_broadcast_soon(comm, &message, e);
    if (status == STATUS_OK)
        status = comm_agree(comm, lines_compare(text, message.data ? message.data : "", e), e);
    buffer_free(&message);
    return status;
}
