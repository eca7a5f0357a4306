/* kernels/comm_mpi.c: ranks that are the processes of an MPI job, on any backend: rows go through host memory.
 *
 * Everything is sends and receives between pairs, posted at once and waited for together, in one order on all ranks. A
 * sum has two rounds: each rank receives its slice of the rows from all and adds them in rank order, as the threads do,
 * then all receive the summed slices. So ranks hold the same bits, and move each number twice whatever their count.
 *
 * Whoever waits looks, then yields, then sleeps, so that a job may have more ranks than cores and an idle one costs
 * nothing. A rank that dies is noticed by mpirun, which stops the job; one that hangs, by the time limit here. */
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/comm.h"

/* How often a waiting rank looks before it yields between looks, and yields before it sleeps. */
enum { LOOKS = 200, YIELDS = 4000 };

/* Rows on their way: the memory stays until MPI has taken them. */
struct letter {
    struct letter *next;
    MPI_Request request;
    float rows[];
};

struct mpi {
    MPI_Comm ranks;
    int rank, size;
    double timeout;
    bool failed;
    struct error why;
    MPI_Request requests[2 * COMM_MAX_RANKS];
    int n_requests;
    struct letter *sent;
    float *host, *parts; /* rows on the host, and what arrives of them */
    size_t host_values, parts_values;
};

/* MPI starts once in a process and cannot start again, so it ends with the process, if all went well: a process that
 * ends without finalising makes mpirun stop the others. */
static bool broken;
static int n_open;

static void finalise(void) {
    if (!broken && n_open == 0) MPI_Finalize();
}

static bool start(struct error *e) {
    int started, level;
    if (MPI_Initialized(&started) == MPI_SUCCESS && started) return true;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
        error_set(e, STATUS_UNSUPPORTED, "this MPI does not start, or lets only the main thread call it");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    atexit(finalise);
    return true;
}

int comm_mpi_size(void) {
    int size = 1;
    return start(NULL) && MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS ? size : 1;
}

/* Failing. */

static struct mpi *mpi_of(const struct comm *c) { return c->group; }

static enum status fail(struct mpi *m, const struct error *why) {
    if (!m->failed) m->why = *why;
    m->why.status = STATUS_DEVICE;
    m->failed = broken = true;
    return STATUS_DEVICE;
}

static bool ok(struct mpi *m, int code, const char *what) {
    struct error e;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    if (code == MPI_SUCCESS) return true;
    MPI_Error_string(code, text, &length);
    error_set(&e, STATUS_DEVICE, "rank %d of %d: MPI: %s: %.200s", m->rank, m->size, what, text);
    fail(m, &e);
    return false;
}

static void mpi_leave(struct comm *c, const struct error *why) { fail(mpi_of(c), why); }

/* Sending and receiving. */

static void send(struct mpi *m, int to, const void *data, size_t n, MPI_Datatype type) {
    if (!m->failed && n > 0)
        ok(m, MPI_Isend(data, (int)n, type, to, 0, m->ranks, &m->requests[m->n_requests++]), "sending");
}

static void receive(struct mpi *m, int from, void *data, size_t n, MPI_Datatype type) {
    if (!m->failed && n > 0)
        ok(m, MPI_Irecv(data, (int)n, type, from, 0, m->ranks, &m->requests[m->n_requests++]), "receiving");
}

static void rest(int looked) {
    if (looked < LOOKS)
        __builtin_ia32_pause();
    else if (looked < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Waits for everything posted; false when the group failed, which it does after `seconds` (0: never). */
static bool finish(struct mpi *m, double seconds) {
    double start_time = time_now();
    int done = 0;
    for (int i = 0; !m->failed && !done; i = min_int(i + 1, YIELDS)) {
        if (!ok(m, MPI_Testall(m->n_requests, m->requests, &done, MPI_STATUSES_IGNORE), "waiting") || done) break;
        rest(i);
        if (seconds == 0 || i < LOOKS || time_now() - start_time < seconds) continue;
        struct error e;
        error_set(&e, STATUS_DEVICE, "rank %d of %d waited %g s for the others (parallel.timeout)", m->rank, m->size,
                  seconds);
        fail(m, &e);
    }
    m->n_requests = 0;
    return !m->failed;
}

/* Sums and gathers. */

static float *reserve(float **values, size_t *capacity, size_t n) {
    if (n > *capacity) {
        free(*values);
        *values = xmalloc(n * sizeof **values);
        *capacity = n;
    }
    return *values;
}

/* x on the host; NULL, with the reason in b, when this rank or the group has failed. */
static float *fetch(struct mpi *m, struct backend *b, struct tensor x) {
    struct error e;
    size_t n = (size_t)x.rows * (size_t)x.cols;
    CHECK(x.dtype == DTYPE_F32 && x.stride == x.cols);
    if (n > INT32_MAX / (size_t)m->size) {
        error_set(&e, STATUS_TOO_LARGE, "%d rows of %d do not fit one message; use smaller steps", x.rows, x.cols);
        fail(m, &e);
    } else {
        backend_download(b, reserve(&m->host, &m->host_values, n), x.data, n * sizeof(float));
        if (backend_sync(b, &e)) fail(m, &e);
    }
    if (m->failed) comm_fail_backend(b, &m->why);
    return m->failed ? NULL : m->host;
}

/* Rank r's slice of n values is [n r / size, n (r + 1) / size). */
static size_t slice_start(const struct mpi *m, size_t n, int r) { return n * (size_t)r / (size_t)m->size; }
static size_t slice_size(const struct mpi *m, size_t n, int r) {
    return slice_start(m, n, r + 1) - slice_start(m, n, r);
}

static void mpi_allreduce_sum(struct comm *c, struct backend *b, struct tensor x) {
    struct mpi *m = mpi_of(c);
    size_t n = (size_t)x.rows * (size_t)x.cols, start_at = slice_start(m, n, c->rank), mine = slice_size(m, n, c->rank);
    float *host = fetch(m, b, x);
    if (host == NULL) return;
    float *parts = reserve(&m->parts, &m->parts_values, mine * (size_t)c->size);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) receive(m, r, parts + (size_t)r * mine, mine, MPI_FLOAT);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) send(m, r, host + slice_start(m, n, r), slice_size(m, n, r), MPI_FLOAT);
    memcpy(parts + (size_t)c->rank * mine, host + start_at, mine * sizeof(float));
    bool arrived = finish(m, m->timeout);
    for (size_t j = 0; j < mine && arrived; j++) {
        float sum = 0;
        for (int r = 0; r < c->size; r++) sum += parts[(size_t)r * mine + j];
        host[start_at + j] = sum;
    }
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) receive(m, r, host + slice_start(m, n, r), slice_size(m, n, r), MPI_FLOAT);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) send(m, r, host + start_at, mine, MPI_FLOAT);
    if (finish(m, m->timeout))
        backend_upload(b, x.data, host, n * sizeof(float));
    else
        comm_fail_backend(b, &m->why);
}

static void mpi_allgather_cols(struct comm *c, struct backend *b, struct tensor y, struct tensor x) {
    struct mpi *m = mpi_of(c);
    size_t n = (size_t)x.rows * (size_t)x.cols, size = (size_t)c->size;
    CHECK(x.cols <= y.cols && y.cols <= c->size * x.cols && y.rows == x.rows && y.stride == y.cols);
    float *host = fetch(m, b, x);
    if (host == NULL) return;
    /* What arrives, one rank after the other, and behind it the rows of y. */
    float *parts = reserve(&m->parts, &m->parts_values, 2 * n * size), *rows = parts + n * size;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) receive(m, r, parts + (size_t)r * n, n, MPI_FLOAT);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) send(m, r, host, n, MPI_FLOAT);
    memcpy(parts + (size_t)c->rank * n, host, n * sizeof(float));
    if (!finish(m, m->timeout)) {
        comm_fail_backend(b, &m->why);
        return;
    }
    for (int r = 0; r < c->size; r++) {
        float *to = rows + gathered_col(y.cols, x.cols, r), *from = parts + (size_t)r * n;
        for (int i = 0; i < x.rows; i++)
            memcpy(to + (size_t)i * (size_t)y.cols, from + (size_t)i * (size_t)x.cols, (size_t)x.cols * sizeof *to);
    }
    backend_upload(b, y.data, rows, (size_t)y.rows * (size_t)y.cols * sizeof(float));
}

/* Stages. */

enum { TAG_ROWS = 1 }; /* apart from messages, which may be on their way to the same rank */

/* Frees what has been taken; with `all`, waits for the rest. */
static void free_sent(struct mpi *m, bool all) {
    for (struct letter **at = &m->sent; *at && !m->failed;) {
        struct letter *l = *at;
        int taken = 0;
        if (!ok(m, all ? MPI_Wait(&l->request, MPI_STATUS_IGNORE) : MPI_Test(&l->request, &taken, MPI_STATUS_IGNORE),
                "handing on rows"))
            return;
        if (!all && !taken) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l);
    }
}

static void mpi_send(struct comm *c, struct backend *b, struct tensor x, int to) {
    struct mpi *m = mpi_of(c);
    size_t n = (size_t)x.rows * (size_t)x.cols;
    const float *host = fetch(m, b, x);
    if (host == NULL) return;
    free_sent(m, false);
    struct letter *l = xmalloc(sizeof *l + n * sizeof(float));
    memcpy(l->rows, host, n * sizeof(float));
    l->next = m->sent;
    m->sent = l;
    if (!ok(m, MPI_Isend(l->rows, (int)n, MPI_FLOAT, to, TAG_ROWS, m->ranks, &l->request), "handing on rows"))
        comm_fail_backend(b, &m->why);
}

static void mpi_receive(struct comm *c, struct backend *b, struct tensor x, int from) {
    struct mpi *m = mpi_of(c);
    size_t n = (size_t)x.rows * (size_t)x.cols;
    CHECK(x.dtype == DTYPE_F32 && x.stride == x.cols && n <= INT32_MAX);
    float *host = reserve(&m->host, &m->host_values, n);
    if (!m->failed)
        ok(m, MPI_Irecv(host, (int)n, MPI_FLOAT, from, TAG_ROWS, m->ranks, &m->requests[m->n_requests++]),
           "receiving rows");
    if (finish(m, m->timeout))
        backend_upload(b, x.data, host, n * sizeof(float));
    else
        comm_fail_backend(b, &m->why);
}

/* Messages. */

static enum status outcome(const struct mpi *m, struct error *e) {
    if (m->failed) *e = m->why;
    return m->failed ? STATUS_DEVICE : STATUS_OK;
}

static enum status mpi_broadcast(struct comm *c, struct buffer *message, struct error *e) {
    struct mpi *m = mpi_of(c);
    uint64_t bytes = message->size;
    if (c->rank != 0) {
        receive(m, 0, &bytes, 1, MPI_UINT64_T);
        if (!finish(m, 0)) return outcome(m, e);
        char *data = xcalloc(bytes + 1, 1);
        buffer_clear(message);
        receive(m, 0, data, bytes, MPI_BYTE);
        if (finish(m, m->timeout)) buffer_append(message, data, bytes);
        free(data);
        return outcome(m, e);
    }
    if (bytes > INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "a message of %zu bytes to the other ranks; use smaller steps",
                         message->size);
    for (int r = 1; r < c->size; r++) send(m, r, &bytes, 1, MPI_UINT64_T);
    for (int r = 1; r < c->size; r++) send(m, r, message->data, bytes, MPI_BYTE);
    finish(m, m->timeout);
    return outcome(m, e);
}

static enum status mpi_agree(struct comm *c, struct error *mine) {
    struct mpi *m = mpi_of(c);
    struct error *all = xcalloc((size_t)c->size, sizeof *all);
    all[c->rank] = *mine;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) receive(m, r, &all[r], sizeof all[r], MPI_BYTE);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) send(m, r, &all[c->rank], sizeof all[r], MPI_BYTE);
    if (finish(m, 0)) comm_first_failure(mine, all, c->size);
    free(all);
    return m->failed ? outcome(m, mine) : mine->status;
}

/* Opening and closing. */

static void mpi_close(struct comm *c) {
    struct mpi *m = mpi_of(c);
    free_sent(m, true);
    if (!m->failed) MPI_Comm_free(&m->ranks);
    n_open--;
    free(m->host);
    free(m->parts);
    free(m);
    free(c);
}

static const struct comm_ops mpi_ops = {
    .name = "mpi",
    .allreduce_sum = mpi_allreduce_sum,
    .allgather_cols = mpi_allgather_cols,
    .send = mpi_send,
    .receive = mpi_receive,
    .broadcast = mpi_broadcast,
    .agree = mpi_agree,
    .leave = mpi_leave,
    .close = mpi_close,
};

/* Ranks of one machine share the CPUs that mpirun has bound any of them to. */
static bool find_neighbours(struct mpi *m, struct comm *c) {
    MPI_Comm machine;
    cpu_set_t mine, all;
    int size;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
    if (!ok(m, MPI_Comm_split_type(m->ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine), "finding neighbours") ||
        !ok(m, MPI_Allreduce(&mine, &all, sizeof all, MPI_BYTE, MPI_BOR, machine), "sharing CPUs"))
        return false;
    MPI_Comm_rank(machine, &c->local_rank);
    MPI_Comm_size(machine, &size);
    MPI_Comm_free(&machine);
    c->cpus = max_int(1, min_int(CPU_COUNT(&mine), CPU_COUNT(&all) / size));
    return true;
}

/* The ranks of `from` of the same colour, in the same order. */
static enum status open_ranks(struct comm **out, MPI_Comm from, int colour, double timeout, struct error *e) {
    struct mpi *m = xcalloc(1, sizeof *m);
    struct comm *c = xcalloc(1, sizeof *c);
    *m = (struct mpi){.timeout = timeout};
    *c = (struct comm){.ops = &mpi_ops, .stages = 1, .world = c, .group = m};
    n_open++;
    if (ok(m, MPI_Comm_split(from, colour, 0, &m->ranks), "opening a communicator")) {
        MPI_Comm_rank(m->ranks, &m->rank);
        MPI_Comm_size(m->ranks, &m->size);
        c->rank = m->rank;
        c->size = m->size;
        if (find_neighbours(m, c)) {
            *out = c;
            return STATUS_OK;
        }
    }
    *e = m->why;
    mpi_close(c);
    return e->status;
}

enum status comm_open_mpi(struct comm **out, const struct comm_options *o, struct error *e) {
    int started = 1, wanted = o->size * o->stages;
    if (!start(e)) return e->status;
    MPI_Comm_size(MPI_COMM_WORLD, &started);
    if (started != wanted)
        return error_set(
            e, STATUS_INVALID,
            "parallel.tensor times parallel.pipeline is %d and the MPI job has %d process%s; start it with "
            "mpirun -n %d",
            wanted, started, started == 1 ? "" : "es", wanted);
    struct comm *world, *c;
    if (open_ranks(&world, MPI_COMM_WORLD, 0, o->timeout, e)) return e->status;
    c = world;
    int stage = world->rank / o->size;
    if (o->stages > 1 && open_ranks(&c, mpi_of(world)->ranks, stage, o->timeout, e)) {
        mpi_close(world);
        return e->status;
    }
    c->world = world;
    c->stage = stage;
    c->stages = o->stages;
    c->local_rank = world->local_rank;
    c->cpus = world->cpus;
    *out = c;
    return STATUS_OK;
}
