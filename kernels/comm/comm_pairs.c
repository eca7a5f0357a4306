/* kernels/comm/comm_pairs.c: a communicator of processes, made of a transport. See comm_pairs.h.
 *
 * Everything is sends and receives between pairs, posted at once and waited for together, in one order on all ranks. A
 * sum has two rounds: each rank receives its slice of the rows from all and adds them in rank order, as the threads do,
 * then all receive the summed slices. So ranks hold the same bits, and move each number twice whatever their count.
 *
 * A rank that hangs is noticed by the time limit here; one that dies by the transport or its launcher. */
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

void transport_name(struct transport *t, int rank, const char *machine) {
    snprintf(t->names[rank], RANK_NAME, "rank %d%s%.140s", rank, machine[0] ? " on " : "", machine);
}

void transport_fail(struct transport *t, const char *format, ...) {
    va_list args;
    char text[sizeof t->failure.text];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (t->failure.status) return;
    error_set(&t->failure, STATUS_DEVICE, "%s %s", t->names[t->rank], text);
    t->ops->failed(t);
}

static struct rank_pairs *pairs_of(const struct comm *c) { return c->group; }
static bool pairs_failed(const struct rank_pairs *p) { return p->transport->failure.status != STATUS_OK; }

static enum status pairs_outcome(const struct rank_pairs *p, struct error *e) {
    if (pairs_failed(p)) *e = p->transport->failure;
    return p->transport->failure.status;
}

static void pairs_leave(struct comm *c, const struct error *why) {
    transport_fail(pairs_of(c)->transport, "failed: %s", why->text);
}

/* Sending and receiving. */

static void pairs_post_send(struct rank_pairs *p, int to, const void *data, size_t bytes) {
    struct transport *t = p->transport;
    if (!pairs_failed(p) && bytes > 0) t->ops->send(t, p->first + to, data, bytes);
}

static void pairs_post_receive(struct rank_pairs *p, int from, void *data, size_t bytes) {
    struct transport *t = p->transport;
    if (!pairs_failed(p) && bytes > 0) t->ops->receive(t, p->first + from, data, bytes);
}

static void pairs_give_up(struct rank_pairs *p, double seconds) {
    struct transport *t = p->transport;
    int whom = t->ops->waits_for(t);
    transport_fail(t, "waited %g s (parallel.timeout) for %s, which hangs or cannot be reached", seconds,
                   whom < 0 ? "the others" : t->names[whom]);
}

/* Waits for everything posted; false when the group failed, which it does after `seconds` (0: never). Between two looks
 * no more than LONGEST_LOOK counts, so that a process that was stopped for long does not find its time over when it
 * goes on. */
static bool pairs_finish(struct rank_pairs *p, double seconds) {
    struct transport *t = p->transport;
    double last = time_now(), waited = 0;
    while (!pairs_failed(p) && !t->ops->look(t)) {
        if (!comm_rest(waited)) t->ops->sleep(t);
        double now = time_now();
        waited += now - last < LONGEST_LOOK ? now - last : LONGEST_LOOK;
        last = now;
        if (seconds > 0 && waited >= seconds) pairs_give_up(p, seconds);
    }
    return !pairs_failed(p);
}

/* all [size] of `bytes` each: this rank's goes to everyone, theirs come here. */
static bool pairs_exchange(struct rank_pairs *p, void *all, size_t bytes) {
    char *at = all;
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_receive(p, r, at + (size_t)r * bytes, bytes);
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_send(p, r, at + (size_t)p->rank * bytes, bytes);
    return pairs_finish(p, p->timeout);
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

static size_t tensor_count_values(struct rank_pairs *p, struct tensor x) {
    size_t n = (size_t)x.rows * (size_t)x.cols;
    CHECK(x.dtype == DTYPE_F32 && x.stride == x.cols);
    if (n > INT32_MAX / sizeof(float))
        transport_fail(p->transport, "has %d rows of %d, which do not fit one message; use smaller steps", x.rows,
                       x.cols);
    return n;
}

/* x on the host; NULL, with the reason in b, when this rank or the group has failed. */
static float *tensor_fetch(struct comm *c, struct backend *b, struct tensor x) {
    struct rank_pairs *p = pairs_of(c);
    struct error e;
    size_t n = tensor_count_values(p, x);
    if (!pairs_failed(p)) {
        backend_download(b, floats_reserve(&p->host, &p->host_values, n), x.data, n * sizeof(float));
        if (backend_sync(b, &e)) pairs_leave(c, &e);
    }
    if (pairs_failed(p)) comm_fail_backend(b, &p->transport->failure);
    return pairs_failed(p) ? NULL : p->host;
}

/* Rank r's slice of n values is [n r / size, n (r + 1) / size). */
static size_t slice_start(const struct rank_pairs *p, size_t n, int r) { return n * (size_t)r / (size_t)p->size; }
static size_t slice_bytes(const struct rank_pairs *p, size_t n, int r) {
    return (slice_start(p, n, r + 1) - slice_start(p, n, r)) * sizeof(float);
}

static void pairs_allreduce_sum(struct comm *c, struct backend *b, struct tensor x) {
    struct rank_pairs *p = pairs_of(c);
    float *host = tensor_fetch(c, b, x);
    if (host == NULL) return;
    size_t n = (size_t)x.rows * (size_t)x.cols;
    size_t bytes = slice_bytes(p, n, p->rank), mine = bytes / sizeof(float);
    float *parts = floats_reserve(&p->parts, &p->parts_values, mine * (size_t)p->size);
    float *slice = host + slice_start(p, n, p->rank);

    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_receive(p, r, parts + (size_t)r * mine, bytes);
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_send(p, r, host + slice_start(p, n, r), slice_bytes(p, n, r));
    if (bytes > 0) memcpy(parts + (size_t)p->rank * mine, slice, bytes); /* fewer values than ranks */
    bool arrived = pairs_finish(p, p->timeout);
    for (size_t j = 0; j < mine && arrived; j++) {
        float sum = 0;
        for (int r = 0; r < p->size; r++) sum += parts[(size_t)r * mine + j];
        slice[j] = sum;
    }

    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_receive(p, r, host + slice_start(p, n, r), slice_bytes(p, n, r));
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_send(p, r, slice, bytes);
    if (pairs_finish(p, p->timeout))
        backend_upload(b, x.data, host, n * sizeof(float));
    else
        comm_fail_backend(b, &p->transport->failure);
}

static void pairs_allgather_cols(struct comm *c, struct backend *b, struct tensor y, struct tensor x) {
    struct rank_pairs *p = pairs_of(c);
    size_t n = (size_t)x.rows * (size_t)x.cols, size = (size_t)p->size;
    CHECK(x.cols <= y.cols && y.cols <= c->size * x.cols && y.rows == x.rows && y.stride == y.cols);
    const float *host = tensor_fetch(c, b, x);
    if (host == NULL) return;

    /* The arriving rows, one rank after the other, and behind them the rows of y. */
    float *parts = floats_reserve(&p->parts, &p->parts_values, 2 * n * size), *rows = parts + n * size;
    memcpy(parts + (size_t)p->rank * n, host, n * sizeof(float));
    if (!pairs_exchange(p, parts, n * sizeof(float))) {
        comm_fail_backend(b, &p->transport->failure);
        return;
    }
    for (int r = 0; r < p->size; r++) {
        float *to = rows + gathered_col(y.cols, x.cols, r), *from = parts + (size_t)r * n;
        for (int i = 0; i < x.rows; i++)
            memcpy(to + (size_t)i * (size_t)y.cols, from + (size_t)i * (size_t)x.cols, (size_t)x.cols * sizeof *to);
    }
    backend_upload(b, y.data, rows, (size_t)y.rows * (size_t)y.cols * sizeof(float));
}

/* Stages. Rows leave before send returns: a rank that sleeps after it must not keep some back. Stages still overlap,
 * each one piece of work ahead of the next. */

static void pairs_send(struct comm *c, struct backend *b, struct tensor x, int to) {
    struct rank_pairs *p = pairs_of(c);
    const float *host = tensor_fetch(c, b, x);
    if (host == NULL) return;
    pairs_post_send(p, to, host, (size_t)x.rows * (size_t)x.cols * sizeof(float));
    if (!pairs_finish(p, p->timeout)) comm_fail_backend(b, &p->transport->failure);
}

static void pairs_receive(struct comm *c, struct backend *b, struct tensor x, int from) {
    struct rank_pairs *p = pairs_of(c);
    size_t n = tensor_count_values(p, x);
    float *host = pairs_failed(p) ? NULL : floats_reserve(&p->host, &p->host_values, n);
    pairs_post_receive(p, from, host, n * sizeof(float));
    if (pairs_finish(p, p->timeout))
        backend_upload(b, x.data, host, n * sizeof(float));
    else
        comm_fail_backend(b, &p->transport->failure);
}

/* Messages. */

static enum status pairs_broadcast(struct comm *c, struct buffer *message, bool soon, struct error *e) {
    struct rank_pairs *p = pairs_of(c);
    uint64_t bytes = message->size;
    if (c->rank != 0) {
        pairs_post_receive(p, 0, &bytes, sizeof bytes);
        if (!pairs_finish(p, soon ? p->timeout : 0)) return pairs_outcome(p, e);
        CHECK(bytes <= INT32_MAX);
        char *data = xcalloc(bytes + 1, 1);
        buffer_clear(message);
        pairs_post_receive(p, 0, data, bytes);
        if (pairs_finish(p, p->timeout)) buffer_append(message, data, bytes);
        free(data);
        return pairs_outcome(p, e);
    }
    if (bytes > INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "a message of %zu bytes to the other ranks; use smaller steps",
                         message->size);
    for (int r = 1; r < p->size; r++) pairs_post_send(p, r, &bytes, sizeof bytes);
    for (int r = 1; r < p->size; r++) pairs_post_send(p, r, message->data, bytes);
    pairs_finish(p, p->timeout);
    return pairs_outcome(p, e);
}

/* The word of a rank on its way to an agreement: only that it comes further, any number of times, then its
 * outcome.
 */
struct word {
    bool decided;
    struct error outcome;
};

/* Ranks that load are out of step for minutes. One that comes further says so several times within a time limit, and
 * every rank that waits for it begins to count anew; so a hanging rank is told from a slow one. */
static enum status pairs_working(struct comm *c, struct error *e) {
    enum { TIMES = 8 };
    static const struct word going_on;
    struct rank_pairs *p = pairs_of(c);
    struct transport *t = p->transport;
    double now = time_now();
    if (pairs_failed(p) || now - p->told < p->timeout / TIMES) return pairs_outcome(p, e);
    p->told = now;
    if (t->ops->check(t, e)) {
        t->failure = *e;
        t->ops->failed(t);
    }
    if (pairs_failed(p) || !t->ops->look(t)) return pairs_outcome(p, e); /* the last word has not gone out yet */
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_send(p, r, &going_on, sizeof going_on);
    t->ops->look(t);
    return pairs_outcome(p, e);
}

/* The outcome of rank r, as long as it is coming. */
static void rank_hear(struct rank_pairs *p, int r, struct error *e) {
    struct word w = {0};
    do pairs_post_receive(p, r, &w, sizeof w);
    while (pairs_finish(p, p->timeout) && !w.decided);
    *e = w.outcome;
}

static enum status pairs_agree(struct comm *c, struct error *mine) {
    struct rank_pairs *p = pairs_of(c);
    struct error *all = xcalloc((size_t)p->size, sizeof *all);
    struct word own = {.decided = true, .outcome = *mine};
    all[p->rank] = *mine;
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) pairs_post_send(p, r, &own, sizeof own);
    for (int r = 0; r < p->size && !pairs_failed(p); r++)
        if (r != p->rank) rank_hear(p, r, &all[r]);
    int first = pairs_failed(p) ? -1 : comm_first_failure(all, p->size);
    if (first >= 0) {
        *mine = all[first];
        error_prefix(mine, "%s", p->transport->names[p->first + first]);
    }
    free(all);
    return pairs_failed(p) ? pairs_outcome(p, mine) : mine->status;
}

static enum status pairs_check(const struct comm *c, struct error *e) {
    const struct transport *t = pairs_of(c)->transport;
    return t->ops->check(t, e);
}

/* Opening and closing. */

static void pairs_close(struct comm *c) {
    struct rank_pairs *p = pairs_of(c);
    struct transport *t = p->transport;
    t->users--;
    if (t->users == 0) t->ops->close(t);
    free(p->host);
    free(p->parts);
    free(p);
    free(c);
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

static struct comm *pairs_open_ranks(struct transport *t, int first, int size, double timeout) {
    struct rank_pairs *p = xcalloc(1, sizeof *p);
    struct comm *c = xcalloc(1, sizeof *c);
    *p = (struct rank_pairs){
        .ops = pairs_ops, .transport = t, .first = first, .rank = t->rank - first, .size = size, .timeout = timeout};
    p->ops.name = t->ops->name;
    *c = (struct comm){.ops = &p->ops, .rank = p->rank, .size = size, .stages = 1, .world = c, .group = p};
    t->users++;
    return c;
}

/* Ranks of one machine share the CPUs that any of them has been given. */
static enum status world_count_neighbours(struct comm *world, struct error *e) {
    struct rank_pairs *p = pairs_of(world);
    struct seat {
        char machine[sizeof p->transport->machine];
        cpu_set_t cpus;
    } *seats = xcalloc((size_t)p->size, sizeof *seats), *mine = &seats[p->rank];
    int here = 0;
    cpu_set_t all;
    CPU_ZERO(&all);
    memcpy(mine->machine, p->transport->machine, sizeof mine->machine);
    if (sched_getaffinity(0, sizeof mine->cpus, &mine->cpus) != 0) CPU_SET(0, &mine->cpus);
    if (pairs_exchange(p, seats, sizeof *seats)) {
        for (int r = 0; r < p->size; r++) {
            seats[r].machine[sizeof seats[r].machine - 1] = '\0';
            if (p->transport->unnamed) transport_name(p->transport, r, seats[r].machine);
            if (strncmp(seats[r].machine, mine->machine, sizeof mine->machine) != 0) continue;
            CPU_OR(&all, &all, &seats[r].cpus);
            here++;
            world->local_rank += r < p->rank;
        }
        world->local_ranks = here;
        world->cpus = max_int(1, min_int(CPU_COUNT(&mine->cpus), CPU_COUNT(&all) / here));
    }
    free(seats);
    return pairs_outcome(p, e);
}

enum status comm_open_pairs(struct comm **out, struct transport *t, const struct comm_options *o, struct error *e) {
    struct comm *world = pairs_open_ranks(t, 0, t->size, o->timeout), *c = world;
    char shape[80];
    for (int r = 0; r < t->size && t->unnamed; r++) transport_name(t, r, "");
    snprintf(shape, sizeof shape, "parallel.tensor %d, parallel.pipeline %d", o->size, o->stages);
    if (comm_same(world, shape, e) || world_count_neighbours(world, e)) {
        comm_close(world);
        return e->status;
    }
    CHECK(t->size == o->size * o->stages);
    int stage = t->rank / o->size;
    if (o->stages > 1) c = pairs_open_ranks(t, stage * o->size, o->size, o->timeout);
    c->world = world;
    c->stage = stage;
    c->stages = o->stages;
    c->local_rank = world->local_rank;
    c->local_ranks = world->local_ranks;
    c->cpus = world->cpus;
    *out = c;
    return STATUS_OK;
}
