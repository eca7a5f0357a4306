/* kernels/comm/comm_nccl.c: sums and gathers between GPUs, by NCCL on the backend's own stream, so they wait for
 * nothing on the host. NCCL knows no messages and has no launcher: another communicator, of processes or threads,
 * carries NCCL's id to all ranks when it opens, and rank 0's messages after that. Its calls are in no CUDA graph: NCCL
 * wants all ranks to capture one or none, and each rank's backend finds its graphs by itself.
 *
 * A rank whose ops have failed still takes its part in every sum, so nobody waits for it on a device; its step's sync
 * reports the failure, and the group ends by way of the carrier. For a rank that is gone the others' devices wait, for
 * ever: a rank that waits for its device asks the carrier meanwhile, and stops NCCL's kernels when a rank is lost or
 * late. */
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

static struct nccl *nccl_of(const struct comm *c) { return c->group; }

static bool nccl_succeeded(struct comm *c, struct backend *b, ncclResult_t code, const char *what) {
    struct error e;
    if (code == ncclSuccess) return true;
    error_set(&e, STATUS_DEVICE, "rank %d of %d: NCCL: %s: %s: %.200s", c->rank, c->size, what,
              ncclGetErrorString(code), ncclGetLastError(NULL));
    comm_fail_backend(b, &e);
    return false;
}

/* False, with the reason in b, when sums can no longer be asked for. */
static bool nccl_running(struct nccl *n, struct backend *b) {
    if (n->ranks == NULL) comm_fail_backend(b, &n->why);
    return n->ranks != NULL;
}

/* Asked while this rank's device is waited for. */
static enum status nccl_look(void *context, double waited, struct error *e) {
    struct comm *c = context;
    struct nccl *n = nccl_of(c);
    ncclResult_t code = ncclSuccess;
    if (n->ranks == NULL) return STATUS_OK;
    enum status status = comm_check(n->carrier, e);
    if (status == STATUS_OK && ncclCommGetAsyncError(n->ranks, &code) == ncclSuccess && code != ncclSuccess &&
        code != ncclInProgress)
        status = error_set(e, STATUS_DEVICE, "rank %d of %d: NCCL: %s", c->rank, c->size, ncclGetErrorString(code));
    if (status == STATUS_OK && waited > n->timeout)
        status = error_set(e, STATUS_DEVICE, "rank %d of %d waited %g s for the others (parallel.timeout)", c->rank,
                           c->size, n->timeout);
    if (status == STATUS_OK) return STATUS_OK;
    n->why = *e;
    ncclCommAbort(n->ranks);
    n->ranks = NULL;
    return status;
}

static void nccl_allreduce_sum(struct comm *c, struct backend *b, struct tensor x) {
    struct nccl *n = nccl_of(c);
    size_t count = (size_t)x.rows * (size_t)x.cols;
    CHECK(b == n->backend && x.dtype == DTYPE_F32 && x.stride == x.cols);
    if (!nccl_running(n, b)) return;
    nccl_succeeded(c, b, ncclAllReduce(x.data, x.data, count, ncclFloat32, ncclSum, n->ranks, cuda_stream(b)),
                   "summing");
}

/* Grows to the largest gather there is, in the first steps. */
static bool gathered_reserve(struct nccl *n, struct backend *b, size_t bytes, int rows) {
    struct error e;
    if (rows > n->n_rows) {
        n->rows = xrealloc(n->rows, (size_t)rows * sizeof *n->rows);
        for (int i = 0; i < rows; i++) n->rows[i] = i;
        n->n_rows = rows;
    }
    if (bytes <= n->gathered_bytes) return true;
    if (n->gathered) backend_release(b, n->gathered);
    n->gathered_bytes = 0;
    n->gathered = NULL;
    if (backend_alloc(b, &n->gathered, bytes, "gathered logits", &e)) {
        comm_fail_backend(b, &e);
        return false;
    }
    n->gathered_bytes = bytes;
    return true;
}

static void nccl_allgather_cols(struct comm *c, struct backend *b, struct tensor y, struct tensor x) {
    struct nccl *n = nccl_of(c);
    size_t count = (size_t)x.rows * (size_t)x.cols;
    CHECK(b == n->backend && x.dtype == DTYPE_F32 && x.stride == x.cols && x.cols <= y.cols &&
          y.cols <= c->size * x.cols);
    if (!nccl_running(n, b) || !gathered_reserve(n, b, count * (size_t)c->size * sizeof(float), x.rows) ||
        !nccl_succeeded(c, b, ncclAllGather(x.data, n->gathered, count, ncclFloat32, n->ranks, cuda_stream(b)),
                        "gathering"))
        return;
    for (int r = 0; r < c->size; r++) {
        struct tensor to = tensor_cols(y, gathered_col(y.cols, x.cols, r), x.cols);
        struct tensor from = tensor_make((float *)n->gathered + (size_t)r * count, DTYPE_F32, x.rows, x.cols);
        backend_gather_rows(b, &(struct gather_rows_args){.y = to, .x = from, .rows = n->rows});
    }
}

static enum status nccl_broadcast(struct comm *c, struct buffer *message, bool soon, struct error *e) {
    struct comm *carrier = nccl_of(c)->carrier;
    return carrier->ops->broadcast(carrier, message, soon, e);
}

static enum status nccl_agree(struct comm *c, struct error *mine) {
    struct comm *carrier = nccl_of(c)->carrier;
    return carrier->ops->agree(carrier, mine);
}

static enum status nccl_working(struct comm *c, struct error *e) { return comm_working(nccl_of(c)->carrier, e); }

static enum status nccl_check(const struct comm *c, struct error *e) { return comm_check(nccl_of(c)->carrier, e); }

static void nccl_leave(struct comm *c, const struct error *why) {
    struct comm *carrier = nccl_of(c)->carrier;
    carrier->ops->leave(carrier, why);
}

static void nccl_send(struct comm *c, struct backend *b, struct tensor x, int to) {
    comm_send(nccl_of(c)->carrier, b, x, to);
}

static void nccl_receive(struct comm *c, struct backend *b, struct tensor x, int from) {
    comm_receive(nccl_of(c)->carrier, b, x, from);
}

static void nccl_close(struct comm *c) {
    struct nccl *n = nccl_of(c);
    cuda_watch_set(n->backend, (struct cuda_watch){NULL, NULL});
    /* Abort, not destroy: it does not wait for ranks that may be gone. The stream was synchronised at the last step. */
    if (n->ranks) ncclCommAbort(n->ranks);
    backend_release(n->backend, n->gathered);
    n->carrier->ops->close(n->carrier);
    free(n->rows);
    free(n);
    free(c);
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
            status = error_set(e, STATUS_DEVICE, "NCCL does not start: %s", ncclGetErrorString(code));
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

enum status comm_open_nccl(struct comm **out, struct comm *carrier, struct backend *b, double timeout,
                           struct error *e) {
    ncclUniqueId id;
    enum status status = STATUS_OK;
    if (cuda_stream(b) == NULL)
        status = error_set(e, STATUS_INVALID, "parallel.comm is nccl, which needs model.device cuda, one GPU a rank");
    if (comm_agree(carrier, status, e) || id_share(carrier, &id, e)) return e->status;
    struct comm *c = xmalloc(sizeof *c);
    struct nccl *n = xcalloc(1, sizeof *n);
    *c = *carrier;
    c->ops = &nccl_ops;
    c->group = n;
    if (carrier->world == carrier) c->world = c;
    n->backend = b;
    n->timeout = timeout;
    if (nccl_succeeded(c, b, ncclCommInitRank(&n->ranks, c->size, id, c->rank), "joining the other ranks")) {
        n->carrier = carrier;
        cuda_watch_set(b, (struct cuda_watch){nccl_look, c});
        *out = c;
    } else {
        backend_sync(b, e);
        free(n);
        free(c);
        status = e->status;
    }
    return status;
}
