/* kernels/comm/comm_nccl.c: sums and gathers between GPUs, by NCCL on the backend's own stream, so
 * they wait for nothing on the host. NCCL knows no messages and has no launcher: another
 * communicator, of processes or threads, carries NCCL's id to all ranks when it opens, and rank 0's
 * messages after that. Its calls are in no CUDA graph: NCCL wants all ranks to capture one or none,
 * and each rank's backend finds its graphs by itself.
 *
 * A rank whose ops have failed still takes its part in every sum, so nobody waits for it on a
 * device; its step's sync reports the failure, and the group ends by way of the carrier. For a rank
 * that is gone the others' devices wait, for ever: a rank that waits for its device asks the
 * carrier meanwhile, and stops NCCL's kernels when a rank is lost or late. */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/comm/comm.h"
#include "kernels/cuda/open.h"

struct nccl {
    struct comm *carrier;
    struct backend *backend;
    ncclComm_t ranks; /* NULL: stopped, for the reason in `why` */
    struct error why;
    double timeout; /* seconds */
    void *gathered; /* device: the columns of all ranks, rank after rank */
    size_t gathered_bytes;
    int32_t *rows; /* 0, 1, 2, ... */
    int n_rows;
};

static struct nccl *nccl_of(const struct comm *comm) { return comm->group; }

static bool nccl_succeeded(struct comm *comm, struct backend *backend, ncclResult_t code,
                           const char *what) {
    struct error e;
    if (code == ncclSuccess) return true;
    error_set(&e, STATUS_DEVICE, "rank %d of %d: NCCL: %s: %s: %.200s", comm->rank, comm->size,
              what, ncclGetErrorString(code), ncclGetLastError(NULL));
    comm_fail_backend(backend, &e);
    return false;
}

/* False, with the reason in the backend, when sums can no longer be asked for. */
static bool nccl_running(struct nccl *nccl, struct backend *backend) {
    if (nccl->ranks == NULL) comm_fail_backend(backend, &nccl->why);
    return nccl->ranks != NULL;
}

/* Asked while this rank's device is waited for. */
static enum status nccl_look(void *context, double waited, struct error *e) {
    struct comm *comm = context;
    struct nccl *nccl = nccl_of(comm);
    ncclResult_t code = ncclSuccess;
    if (nccl->ranks == NULL) return STATUS_OK;
    enum status status = comm_check(nccl->carrier, e);
    if (status == STATUS_OK && ncclCommGetAsyncError(nccl->ranks, &code) == ncclSuccess &&
        code != ncclSuccess && code != ncclInProgress)
        status = error_set(e, STATUS_DEVICE, "rank %d of %d: NCCL: %s", comm->rank, comm->size,
                           ncclGetErrorString(code));
    if (status == STATUS_OK && waited > nccl->timeout)
        status = error_set(e, STATUS_DEVICE,
                           "rank %d of %d waited %g s for the others (parallel.timeout)",
                           comm->rank, comm->size, nccl->timeout);
    if (status == STATUS_OK) return STATUS_OK;
    nccl->why = *e;
    ncclCommAbort(nccl->ranks);
    nccl->ranks = NULL;
    return status;
}

static void nccl_allreduce_sum(struct comm *comm, struct backend *backend, struct tensor x) {
    struct nccl *nccl = nccl_of(comm);
    size_t count = (size_t)x.rows * (size_t)x.cols;
    CHECK(backend == nccl->backend && x.dtype == DTYPE_F32 && x.stride == x.cols);
    if (!nccl_running(nccl, backend)) return;
    nccl_succeeded(comm, backend,
                   ncclAllReduce(x.data, x.data, count, ncclFloat32, ncclSum, nccl->ranks,
                                 cuda_stream(backend)),
                   "summing");
}

/* Grows to the largest gather there is, in the first steps. */
static bool gathered_reserve(struct nccl *nccl, struct backend *backend, size_t bytes, int rows) {
    struct error e;
    if (rows > nccl->n_rows) {
        nccl->rows = xrealloc(nccl->rows, (size_t)rows * sizeof *nccl->rows);
        for (int i = 0; i < rows; i++) nccl->rows[i] = i;
        nccl->n_rows = rows;
    }
    if (bytes <= nccl->gathered_bytes) return true;
    if (nccl->gathered) backend_release(backend, nccl->gathered);
    nccl->gathered_bytes = 0;
    nccl->gathered = NULL;
    if (backend_alloc(backend, &nccl->gathered, bytes, "gathered logits", &e)) {
        comm_fail_backend(backend, &e);
        return false;
    }
    nccl->gathered_bytes = bytes;
    return true;
}

static void nccl_allgather_cols(struct comm *comm, struct backend *backend, struct tensor y,
                                struct tensor x) {
    struct nccl *nccl = nccl_of(comm);
    size_t count = (size_t)x.rows * (size_t)x.cols;
    CHECK(backend == nccl->backend && x.dtype == DTYPE_F32 && x.stride == x.cols &&
          x.cols <= y.cols && y.cols <= comm->size * x.cols);
    if (!nccl_running(nccl, backend) ||
        !gathered_reserve(nccl, backend, count * (size_t)comm->size * sizeof(float), x.rows) ||
        !nccl_succeeded(comm, backend,
                        ncclAllGather(x.data, nccl->gathered, count, ncclFloat32, nccl->ranks,
                                      cuda_stream(backend)),
                        "gathering"))
        return;
    for (int r = 0; r < comm->size; r++) {
        struct tensor to = tensor_cols(y, gathered_col(y.cols, x.cols, r), x.cols);
        struct tensor from =
            tensor_make((float *)nccl->gathered + (size_t)r * count, DTYPE_F32, x.rows, x.cols);
        backend_gather_rows(backend,
                            &(struct gather_rows_args){.y = to, .x = from, .rows = nccl->rows});
    }
}

static enum status nccl_broadcast(struct comm *comm, struct buffer *message, bool soon,
                                  struct error *e) {
    struct comm *carrier = nccl_of(comm)->carrier;
    return carrier->ops->broadcast(carrier, message, soon, e);
}

static enum status nccl_agree(struct comm *comm, struct error *mine) {
    struct comm *carrier = nccl_of(comm)->carrier;
    return carrier->ops->agree(carrier, mine);
}

static enum status nccl_working(struct comm *comm, struct error *e) {
    return comm_working(nccl_of(comm)->carrier, e);
}

static enum status nccl_check(const struct comm *comm, struct error *e) {
    return comm_check(nccl_of(comm)->carrier, e);
}

static void nccl_leave(struct comm *comm, const struct error *why) {
    struct comm *carrier = nccl_of(comm)->carrier;
    carrier->ops->leave(carrier, why);
}

static void nccl_send(struct comm *comm, struct backend *backend, struct tensor x, int to) {
    comm_send(nccl_of(comm)->carrier, backend, x, to);
}

static void nccl_receive(struct comm *comm, struct backend *backend, struct tensor x, int from) {
    comm_receive(nccl_of(comm)->carrier, backend, x, from);
}

static void nccl_close(struct comm *comm) {
    struct nccl *nccl = nccl_of(comm);
    cuda_watch_set(nccl->backend, (struct cuda_watch){NULL, NULL});
    /* Abort, not destroy: it does not wait for ranks that may be gone. The stream was synchronised
     * at the last step. */
    if (nccl->ranks) ncclCommAbort(nccl->ranks);
    backend_release(nccl->backend, nccl->gathered);
    nccl->carrier->ops->close(nccl->carrier);
    free(nccl->rows);
    free(nccl);
    free(comm);
}

static const struct comm_ops nccl_ops = {
    .name = "nccl",
    .allreduce_sum = nccl_allreduce_sum,
    .allgather_cols = nccl_allgather_cols,
    .send = nccl_send,
    .receive = nccl_receive,
    .broadcast = nccl_broadcast,
    .agree = nccl_agree,
    .working = nccl_working,
    .check = nccl_check,
    .leave = nccl_leave,
    .close = nccl_close,
};

/* Rank 0 makes the id, all get it. */
static enum status id_share(struct comm *carrier, ncclUniqueId *id, struct error *e) {
    struct buffer message = {0};
    enum status status = STATUS_OK;
    if (carrier->rank == 0) {
        ncclResult_t code = ncclGetUniqueId(id);
        if (code != ncclSuccess)
            status =
                error_set(e, STATUS_DEVICE, "NCCL does not start: %s", ncclGetErrorString(code));
        buffer_append(&message, id, sizeof *id);
    }
    if (comm_agree(carrier, status, e)) {
        buffer_free(&message);
        return e->status;
    }
    status = comm_broadcast_soon(carrier, &message, e);
    if (status == STATUS_OK && carrier->rank != 0) {
        CHECK(message.size == sizeof *id);
        memcpy(id, message.data, sizeof *id);
    }
    buffer_free(&message);
    return status;
}

enum status comm_open_nccl(struct comm **out, struct comm *carrier, struct backend *backend,
                           double timeout, struct error *e) {
    ncclUniqueId id;
    enum status status = STATUS_OK;
    if (cuda_stream(backend) == NULL)
        status = error_set(e, STATUS_INVALID,
                           "parallel.comm is nccl, which needs model.device cuda, one GPU a rank");
    if (comm_agree(carrier, status, e) || id_share(carrier, &id, e)) return e->status;
    struct comm *comm = xmalloc(sizeof *comm);
    struct nccl *nccl = xcalloc(1, sizeof *nccl);
    *comm = *carrier;
    comm->ops = &nccl_ops;
    comm->group = nccl;
    if (carrier->world == carrier) comm->world = comm;
    nccl->backend = backend;
    nccl->timeout = timeout;
    if (nccl_succeeded(comm, backend, ncclCommInitRank(&nccl->ranks, comm->size, id, comm->rank),
                       "joining the other ranks")) {
        nccl->carrier = carrier;
        cuda_watch_set(backend, (struct cuda_watch){nccl_look, comm});
        *out = comm;
    } else {
        backend_sync(backend, e);
        free(nccl);
        free(comm);
        status = e->status;
    }
    return status;
}
