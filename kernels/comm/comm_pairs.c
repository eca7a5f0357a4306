/* kernels/comm/comm_pairs.c: a communicator of processes, made of a transport. See comm_pairs.h.
 *
 * Everything is sends and receives between pairs, posted at once and waited for together, in one
 * order on all ranks. A sum has two rounds: each rank receives its slice of the rows from all and
 * adds them in rank order, as the threads do, then all receive the summed slices. So ranks hold the
 * same bits, and move each number twice whatever their count.
 *
 * A rank that hangs is noticed by the time limit here; one that dies by the transport or its
 * launcher. */
#include "kernels/comm/comm_pairs.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LOOK = 1 }; /* seconds */

/* Ranks [first, first + size) of the transport: a stage, or the world. */
struct rank_pairs {
    struct comm_ops ops; /* with the transport's name */
    struct transport *transport;
    int first, rank, size;
    double timeout;
    double told;         /* when this rank last said that it is working */
    float *host, *parts; /* rows on the host, and what arrives of them */
    size_t host_values, parts_values;
};

void transport_name(struct transport *transport, int rank, const char *machine) {
    snprintf(transport->names[rank], RANK_NAME, "rank %d%s%.140s", rank, machine[0] ? " on " : "",
             machine);
}

void transport_fail(struct transport *transport, const char *format, ...) {
    va_list args;
    char text[sizeof transport->failure.text];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (transport->failure.status) return;
    error_set(&transport->failure, STATUS_DEVICE, "%s %s", transport->names[transport->rank], text);
    transport->ops->failed(transport);
}

static struct rank_pairs *pairs_of(const struct comm *comm) { return comm->group; }
static bool pairs_failed(const struct rank_pairs *pairs) {
    return pairs->transport->failure.status != STATUS_OK;
}

static enum status pairs_outcome(const struct rank_pairs *pairs, struct error *e) {
    if (pairs_failed(pairs)) *e = pairs->transport->failure;
    return pairs->transport->failure.status;
}

static void pairs_leave(struct comm *comm, const struct error *why) {
    transport_fail(pairs_of(comm)->transport, "failed: %s", why->text);
}

/* Sending and receiving. */

static void pairs_post_send(struct rank_pairs *pairs, int to, const void *data, size_t bytes) {
    struct transport *transport = pairs->transport;
    if (!pairs_failed(pairs) && bytes > 0)
        transport->ops->send(transport, pairs->first + to, data, bytes);
}

static void pairs_post_receive(struct rank_pairs *pairs, int from, void *data, size_t bytes) {
    struct transport *transport = pairs->transport;
    if (!pairs_failed(pairs) && bytes > 0)
        transport->ops->receive(transport, pairs->first + from, data, bytes);
}

static void pairs_give_up(struct rank_pairs *pairs, double seconds) {
    struct transport *transport = pairs->transport;
    int whom = transport->ops->waits_for(transport);
    transport_fail(transport,
                   "waited %g s (parallel.timeout) for %s, which hangs or cannot be reached",
                   seconds, whom < 0 ? "the others" : transport->names[whom]);
}

/* Waits for everything posted; false when the group failed, which it does after `seconds` (0:
 * never). Between two looks no more than LONGEST_LOOK counts, so that a process that was stopped
 * for long does not find its time over when it goes on. */
static bool pairs_finish(struct rank_pairs *pairs, double seconds) {
    struct transport *transport = pairs->transport;
    double last = time_now(), waited = 0;
    while (!pairs_failed(pairs) && !transport->ops->look(transport)) {
        if (!comm_rest(waited)) transport->ops->sleep(transport);
        double now = time_now();
        waited += now - last < LONGEST_LOOK ? now - last : LONGEST_LOOK;
        last = now;
        if (seconds > 0 && waited >= seconds) pairs_give_up(pairs, seconds);
    }
    return !pairs_failed(pairs);
}

/* all [size] of `bytes` each: this rank's goes to everyone, theirs come here. */
static bool pairs_exchange(struct rank_pairs *pairs, void *all, size_t bytes) {
    char *at = all;
    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank) pairs_post_receive(pairs, r, at + (size_t)r * bytes, bytes);
    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank) pairs_post_send(pairs, r, at + (size_t)pairs->rank * bytes, bytes);
    return pairs_finish(pairs, pairs->timeout);
}

/* Sums and gathers. */

static float *floats_reserve(float **values, size_t *capacity, size_t n) {
    if (n > *capacity) {
        free(*values);
        *values = xmalloc(n * sizeof **values);
        *capacity = n;
    }
    return *values;
}

static size_t tensor_count_values(struct rank_pairs *pairs, struct tensor x) {
    size_t n = (size_t)x.rows * (size_t)x.cols;
    CHECK(x.dtype == DTYPE_F32 && x.stride == x.cols);
    if (n > INT32_MAX / sizeof(float))
        transport_fail(pairs->transport,
                       "has %d rows of %d, which do not fit one message; use smaller steps", x.rows,
                       x.cols);
    return n;
}

/* x on the host; NULL, with the reason in the backend, when this rank or the group has failed. */
static float *tensor_fetch(struct comm *comm, struct backend *backend, struct tensor x) {
    struct rank_pairs *pairs = pairs_of(comm);
    struct error e;
    size_t n = tensor_count_values(pairs, x);
    if (!pairs_failed(pairs)) {
        backend_download(backend, floats_reserve(&pairs->host, &pairs->host_values, n), x.data,
                         n * sizeof(float));
        if (backend_sync(backend, &e)) pairs_leave(comm, &e);
    }
    if (pairs_failed(pairs)) comm_fail_backend(backend, &pairs->transport->failure);
    return pairs_failed(pairs) ? NULL : pairs->host;
}

/* Rank r's slice of n values is [n r / size, n (r + 1) / size). */
static size_t slice_start(const struct rank_pairs *pairs, size_t n, int r) {
    return n * (size_t)r / (size_t)pairs->size;
}
static size_t slice_bytes(const struct rank_pairs *pairs, size_t n, int r) {
    return (slice_start(pairs, n, r + 1) - slice_start(pairs, n, r)) * sizeof(float);
}

static void pairs_allreduce_sum(struct comm *comm, struct backend *backend, struct tensor x) {
    struct rank_pairs *pairs = pairs_of(comm);
    float *host = tensor_fetch(comm, backend, x);
    if (host == NULL) return;
    size_t n = (size_t)x.rows * (size_t)x.cols;
    size_t bytes = slice_bytes(pairs, n, pairs->rank), mine = bytes / sizeof(float);
    float *parts = floats_reserve(&pairs->parts, &pairs->parts_values, mine * (size_t)pairs->size);
    float *slice = host + slice_start(pairs, n, pairs->rank);

    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank) pairs_post_receive(pairs, r, parts + (size_t)r * mine, bytes);
    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank)
            pairs_post_send(pairs, r, host + slice_start(pairs, n, r), slice_bytes(pairs, n, r));
    if (bytes > 0)
        memcpy(parts + (size_t)pairs->rank * mine, slice, bytes); /* fewer values than ranks */
    bool arrived = pairs_finish(pairs, pairs->timeout);
    for (size_t j = 0; j < mine && arrived; j++) {
        float sum = 0;
        for (int r = 0; r < pairs->size; r++) sum += parts[(size_t)r * mine + j];
        slice[j] = sum;
    }

    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank)
            pairs_post_receive(pairs, r, host + slice_start(pairs, n, r), slice_bytes(pairs, n, r));
    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank) pairs_post_send(pairs, r, slice, bytes);
    if (pairs_finish(pairs, pairs->timeout))
        backend_upload(backend, x.data, host, n * sizeof(float));
    else
        comm_fail_backend(backend, &pairs->transport->failure);
}

static void pairs_allgather_cols(struct comm *comm, struct backend *backend, struct tensor y,
                                 struct tensor x) {
    struct rank_pairs *pairs = pairs_of(comm);
    size_t n = (size_t)x.rows * (size_t)x.cols, size = (size_t)pairs->size;
    CHECK(x.cols <= y.cols && y.cols <= comm->size * x.cols && y.rows == x.rows &&
          y.stride == y.cols);
    const float *host = tensor_fetch(comm, backend, x);
    if (host == NULL) return;

    /* The arriving rows, one rank after the other, and behind them the rows of y. */
    float *parts = floats_reserve(&pairs->parts, &pairs->parts_values, 2 * n * size),
          *rows = parts + n * size;
    memcpy(parts + (size_t)pairs->rank * n, host, n * sizeof(float));
    if (!pairs_exchange(pairs, parts, n * sizeof(float))) {
        comm_fail_backend(backend, &pairs->transport->failure);
        return;
    }
    for (int r = 0; r < pairs->size; r++) {
        float *to = rows + gathered_col(y.cols, x.cols, r), *from = parts + (size_t)r * n;
        for (int i = 0; i < x.rows; i++)
            memcpy(to + (size_t)i * (size_t)y.cols, from + (size_t)i * (size_t)x.cols,
                   (size_t)x.cols * sizeof *to);
    }
    backend_upload(backend, y.data, rows, (size_t)y.rows * (size_t)y.cols * sizeof(float));
}

/* Stages. Rows leave before send returns: a rank that sleeps after it must not keep some back.
 * Stages still overlap, each one piece of work ahead of the next. */

static void pairs_send(struct comm *comm, struct backend *backend, struct tensor x, int to) {
    struct rank_pairs *pairs = pairs_of(comm);
    const float *host = tensor_fetch(comm, backend, x);
    if (host == NULL) return;
    pairs_post_send(pairs, to, host, (size_t)x.rows * (size_t)x.cols * sizeof(float));
    if (!pairs_finish(pairs, pairs->timeout))
        comm_fail_backend(backend, &pairs->transport->failure);
}

static void pairs_receive(struct comm *comm, struct backend *backend, struct tensor x, int from) {
    struct rank_pairs *pairs = pairs_of(comm);
    size_t n = tensor_count_values(pairs, x);
    float *host = pairs_failed(pairs) ? NULL : floats_reserve(&pairs->host, &pairs->host_values, n);
    pairs_post_receive(pairs, from, host, n * sizeof(float));
    if (pairs_finish(pairs, pairs->timeout))
        backend_upload(backend, x.data, host, n * sizeof(float));
    else
        comm_fail_backend(backend, &pairs->transport->failure);
}

/* Messages. */

static enum status pairs_broadcast(struct comm *comm, struct buffer *message, bool soon,
                                   struct error *e) {
    struct rank_pairs *pairs = pairs_of(comm);
    uint64_t bytes = message->size;
    if (comm->rank != 0) {
        pairs_post_receive(pairs, 0, &bytes, sizeof bytes);
        if (!pairs_finish(pairs, soon ? pairs->timeout : 0)) return pairs_outcome(pairs, e);
        CHECK(bytes <= INT32_MAX);
        char *data = xcalloc(bytes + 1, 1);
        buffer_clear(message);
        pairs_post_receive(pairs, 0, data, bytes);
        if (pairs_finish(pairs, pairs->timeout)) buffer_append(message, data, bytes);
        free(data);
        return pairs_outcome(pairs, e);
    }
    if (bytes > INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE,
                         "a message of %zu bytes to the other ranks; use smaller steps",
                         message->size);
    for (int r = 1; r < pairs->size; r++) pairs_post_send(pairs, r, &bytes, sizeof bytes);
    for (int r = 1; r < pairs->size; r++) pairs_post_send(pairs, r, message->data, bytes);
    pairs_finish(pairs, pairs->timeout);
    return pairs_outcome(pairs, e);
}

/* The word of a rank on its way to an agreement: only that it comes further, any number of times,
 * then its outcome.
 */
struct word {
    bool decided;
    struct error outcome;
};

/* Ranks that load are out of step for minutes. One that comes further says so several times within
 * a time limit, and every rank that waits for it begins to count anew; so a hanging rank is told
 * from a slow one. */
static enum status pairs_working(struct comm *comm, struct error *e) {
    enum { TIMES = 8 };
    static const struct word going_on;
    struct rank_pairs *pairs = pairs_of(comm);
    struct transport *transport = pairs->transport;
    double now = time_now();
    if (pairs_failed(pairs) || now - pairs->told < pairs->timeout / TIMES)
        return pairs_outcome(pairs, e);
    pairs->told = now;
    if (transport->ops->check(transport, e)) {
        transport->failure = *e;
        transport->ops->failed(transport);
    }
    if (pairs_failed(pairs) || !transport->ops->look(transport))
        return pairs_outcome(pairs, e); /* the last word has not gone out yet */
    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank) pairs_post_send(pairs, r, &going_on, sizeof going_on);
    transport->ops->look(transport);
    return pairs_outcome(pairs, e);
}

/* The outcome of rank r, as long as it is coming. */
static void rank_hear(struct rank_pairs *pairs, int r, struct error *e) {
    struct word word = {0};
    do pairs_post_receive(pairs, r, &word, sizeof word);
    while (pairs_finish(pairs, pairs->timeout) && !word.decided);
    *e = word.outcome;
}

static enum status pairs_agree(struct comm *comm, struct error *mine) {
    struct rank_pairs *pairs = pairs_of(comm);
    struct error *all = xcalloc((size_t)pairs->size, sizeof *all);
    struct word own = {.decided = true, .outcome = *mine};
    all[pairs->rank] = *mine;
    for (int r = 0; r < pairs->size; r++)
        if (r != pairs->rank) pairs_post_send(pairs, r, &own, sizeof own);
    for (int r = 0; r < pairs->size && !pairs_failed(pairs); r++)
        if (r != pairs->rank) rank_hear(pairs, r, &all[r]);
    int first = pairs_failed(pairs) ? -1 : comm_first_failure(all, pairs->size);
    if (first >= 0) {
        *mine = all[first];
        error_prefix(mine, "%s", pairs->transport->names[pairs->first + first]);
    }
    free(all);
    return pairs_failed(pairs) ? pairs_outcome(pairs, mine) : mine->status;
}

static enum status pairs_check(const struct comm *comm, struct error *e) {
    const struct transport *transport = pairs_of(comm)->transport;
    return transport->ops->check(transport, e);
}

/* Opening and closing. */

static void pairs_close(struct comm *comm) {
    struct rank_pairs *pairs = pairs_of(comm);
    struct transport *transport = pairs->transport;
    transport->users--;
    if (transport->users == 0) transport->ops->close(transport);
    free(pairs->host);
    free(pairs->parts);
    free(pairs);
    free(comm);
}

static const struct comm_ops pairs_ops = {
    .allreduce_sum = pairs_allreduce_sum,
    .allgather_cols = pairs_allgather_cols,
    .send = pairs_send,
    .receive = pairs_receive,
    .broadcast = pairs_broadcast,
    .agree = pairs_agree,
    .working = pairs_working,
    .check = pairs_check,
    .leave = pairs_leave,
    .close = pairs_close,
};

static struct comm *pairs_open_ranks(struct transport *transport, int first, int size,
                                     double timeout) {
    struct rank_pairs *pairs = xcalloc(1, sizeof *pairs);
    struct comm *comm = xcalloc(1, sizeof *comm);
    *pairs = (struct rank_pairs){.ops = pairs_ops,
                                 .transport = transport,
                                 .first = first,
                                 .rank = transport->rank - first,
                                 .size = size,
                                 .timeout = timeout};
    pairs->ops.name = transport->ops->name;
    *comm = (struct comm){.ops = &pairs->ops,
                          .rank = pairs->rank,
                          .size = size,
                          .stages = 1,
                          .world = comm,
                          .group = pairs};
    transport->users++;
    return comm;
}

/* Ranks of one machine share the CPUs that any of them has been given. */
static enum status world_count_neighbours(struct comm *world, struct error *e) {
    struct rank_pairs *pairs = pairs_of(world);
    struct seat {
        char machine[sizeof pairs->transport->machine];
        cpu_set_t cpus;
    } *seats = xcalloc((size_t)pairs->size, sizeof *seats), *mine = &seats[pairs->rank];
    int here = 0;
    cpu_set_t all;
    CPU_ZERO(&all);
    memcpy(mine->machine, pairs->transport->machine, sizeof mine->machine);
    if (sched_getaffinity(0, sizeof mine->cpus, &mine->cpus) != 0) CPU_SET(0, &mine->cpus);
    if (pairs_exchange(pairs, seats, sizeof *seats)) {
        for (int r = 0; r < pairs->size; r++) {
            seats[r].machine[sizeof seats[r].machine - 1] = '\0';
            if (pairs->transport->unnamed) transport_name(pairs->transport, r, seats[r].machine);
            if (strncmp(seats[r].machine, mine->machine, sizeof mine->machine) != 0) continue;
            CPU_OR(&all, &all, &seats[r].cpus);
            here++;
            world->local_rank += r < pairs->rank;
        }
        world->local_ranks = here;
        world->cpus = max_int(1, min_int(CPU_COUNT(&mine->cpus), CPU_COUNT(&all) / here));
    }
    free(seats);
    return pairs_outcome(pairs, e);
}

enum status comm_open_pairs(struct comm **out, struct transport *transport,
                            const struct comm_options *options, struct error *e) {
    struct comm *world = pairs_open_ranks(transport, 0, transport->size, options->timeout),
                *comm = world;
    char shape[80];
    for (int r = 0; r < transport->size && transport->unnamed; r++)
        transport_name(transport, r, "");
    snprintf(shape, sizeof shape, "parallel.tensor %d, parallel.pipeline %d", options->size,
             options->stages);
    if (comm_same(world, shape, e) || world_count_neighbours(world, e)) {
        comm_close(world);
        return e->status;
    }
    CHECK(transport->size == options->size * options->stages);
    int stage = transport->rank / options->size;
    if (options->stages > 1)
        comm = pairs_open_ranks(transport, stage * options->size, options->size, options->timeout);
    comm->world = world;
    comm->stage = stage;
    comm->stages = options->stages;
    comm->local_rank = world->local_rank;
    comm->local_ranks = world->local_ranks;
    comm->cpus = world->cpus;
    *out = comm;
    return STATUS_OK;
}
