/* kernels/comm/comm_threads.c: ranks that are threads of one process, on backends whose memory the host can read. It is
 * how tensor parallelism runs without a launcher, and is tested where there is one device.
 *
 * Every rank publishes its rows, meets the others, does its share of the work on everyone's rows, and meets them again
 * before anyone goes on. A sum adds the ranks' numbers in rank order, so all ranks hold the same bits. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/comm/comm.h"

enum { LONGEST_SLEEP = 1 }; /* seconds */

/* Rows on their way to a rank. */
struct letter {
    struct letter *next;
    int from, to;
    size_t bytes;
    float rows[];
};

/* The part that the ranks share; the last to close frees it. */
struct group {
    int size, open;
    double timeout;
    pthread_mutex_t lock; /* guards open, arrived and why, and changes of the next two */
    pthread_cond_t changed;
    atomic_uint meeting; /* counts meetings that all ranks have come to */
    atomic_bool failed;
    int arrived;
    struct error why;
    struct letter *letters; /* in order of sending; guarded by lock */
    /* Published between two meetings. */
    struct tensor *tensors; /* [size] */
    struct error *outcomes; /* [size] */
    const struct buffer *message;
};

static struct group *group_of(const struct comm *c) { return c->group; }

static void group_fail_locked(struct group *g, const struct error *why) {
    if (!atomic_load(&g->failed)) g->why = *why;
    g->why.status = STATUS_DEVICE;
    atomic_store(&g->failed, true);
    pthread_cond_broadcast(&g->changed);
}

static void group_fail_late(struct comm *c, double seconds) {
    struct error e;
    error_set(&e, STATUS_DEVICE, "rank %d of %d waited %g s for the others (parallel.timeout)", c->rank, c->size,
              seconds);
    group_fail_locked(group_of(c), &e);
}

/* Sleeps until something changes. *left are the seconds that this may still take; of a sleep no more than LONGEST_SLEEP
 * is taken off, so that a process that was stopped for long does not find its time over when it goes on. */
static void group_sleep(struct group *g, double *left) {
    double start = time_now(), length = *left < LONGEST_SLEEP ? *left : LONGEST_SLEEP, slept;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * length);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&g->changed, &g->lock, &until);
    slept = time_now() - start;
    *left -= slept < length ? slept : length;
}

/* Sleeps until the meeting is complete, or the group failed; false when `seconds` are over (0: never). */
static bool group_sleep_until_met(struct group *g, unsigned meeting, double seconds) {
    double left = seconds;
    while (atomic_load(&g->meeting) == meeting && !atomic_load(&g->failed)) {
        if (seconds == 0)
            pthread_cond_wait(&g->changed, &g->lock);
        else if (left <= 0)
            return false;
        else
            group_sleep(g, &left);
    }
    return true;
}

/* Waits for all ranks; false when the group failed before they came. With `seconds`, it fails after so many. */
static bool group_meet(struct comm *c, double seconds) {
    struct group *g = group_of(c);
    pthread_mutex_lock(&g->lock);
    unsigned meeting = atomic_load(&g->meeting);
    if (!atomic_load(&g->failed)) g->arrived++;
    if (g->arrived == g->size) {
        g->arrived = 0;
        atomic_store(&g->meeting, meeting + 1);
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);

    double start = time_now();
    while (atomic_load(&g->meeting) == meeting && !atomic_load(&g->failed) && comm_rest(time_now() - start)) continue;

    pthread_mutex_lock(&g->lock);
    if (!group_sleep_until_met(g, meeting, seconds)) group_fail_late(c, seconds);
    bool met = atomic_load(&g->meeting) != meeting;
    pthread_mutex_unlock(&g->lock);
    return met;
}

/* The meeting that ends an exchange. Everyone was at the one that began it and only works on memory now, so everyone
 * comes, and nobody may go before: the published rows of every rank are read until then. */
static void group_part(struct comm *c) { CHECK(group_meet(c, 0)); }

static void threads_leave(struct comm *c, const struct error *why) {
    struct group *g = group_of(c);
    struct error named = *why;
    error_prefix(&named, "rank %d", c->rank);
    pthread_mutex_lock(&g->lock);
    group_fail_locked(g, &named);
    pthread_mutex_unlock(&g->lock);
}

static enum status group_failure(struct comm *c, struct error *e) {
    struct group *g = group_of(c);
    pthread_mutex_lock(&g->lock);
    *e = g->why;
    pthread_mutex_unlock(&g->lock);
    return STATUS_DEVICE;
}

/* Shows x to the others; false, with the reason in b, when this rank or another has failed. */
static bool tensor_publish(struct comm *c, struct backend *b, struct tensor x) {
    struct group *g = group_of(c);
    struct error e;
    if (b->error.status) threads_leave(c, &b->error);
    g->tensors[c->rank] = x;
    if (group_meet(c, g->timeout)) return true;
    group_failure(c, &e);
    comm_fail_backend(b, &e);
    return false;
}

static float *tensor_row(struct tensor t, int row) { return tensor_f32(tensor_rows(t, row, 1)); }

/* Rank r sums columns [r n / size, (r+1) n / size) of every row, and writes the sum to all ranks. */
static void threads_allreduce_sum(struct comm *c, struct backend *b, struct tensor x) {
    if (!tensor_publish(c, b, x)) return;
    const struct group *g = group_of(c);
    int first = (int)((int64_t)x.cols * c->rank / c->size), end = (int)((int64_t)x.cols * (c->rank + 1) / c->size);
    for (int row = 0; row < x.rows; row++) {
        for (int j = first; j < end; j++) {
            float sum = 0;
            for (int r = 0; r < c->size; r++) sum += tensor_row(g->tensors[r], row)[j];
            for (int r = 0; r < c->size; r++) tensor_row(g->tensors[r], row)[j] = sum;
        }
    }
    group_part(c);
}

static void threads_allgather_cols(struct comm *c, struct backend *b, struct tensor y, struct tensor x) {
    CHECK(x.cols <= y.cols && y.cols <= c->size * x.cols && y.rows == x.rows);
    if (!tensor_publish(c, b, x)) return;
    const struct group *g = group_of(c);
    for (int r = 0; r < c->size; r++) {
        int first = gathered_col(y.cols, x.cols, r);
        for (int row = 0; row < x.rows; row++)
            memcpy(tensor_row(y, row) + first, tensor_row(g->tensors[r], row), (size_t)x.cols * sizeof(float));
    }
    group_part(c);
}

static size_t tensor_row_bytes(struct tensor x) {
    CHECK(x.dtype == DTYPE_F32 && x.stride == x.cols);
    return (size_t)x.rows * (size_t)x.cols * sizeof(float);
}

static void threads_send(struct comm *c, struct backend *b, struct tensor x, int to) {
    struct group *g = group_of(c);
    size_t bytes = tensor_row_bytes(x);
    struct letter *l = xmalloc(sizeof *l + bytes), **end;
    struct error e;
    *l = (struct letter){.from = c->rank, .to = to, .bytes = bytes};
    backend_download(b, l->rows, x.data, bytes);
    if (backend_sync(b, &e)) {
        threads_leave(c, &e);
        comm_fail_backend(b, &e);
        free(l);
        return;
    }
    pthread_mutex_lock(&g->lock);
    end = &g->letters;
    while (*end) end = &(*end)->next;
    *end = l;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Takes the first letter from a rank to this one out of the list; NULL when there is none. */
static struct letter *letter_take(struct group *g, int from, int to) {
    for (struct letter **at = &g->letters; *at; at = &(*at)->next) {
        struct letter *l = *at;
        if (l->from != from || l->to != to) continue;
        *at = l->next;
        return l;
    }
    return NULL;
}

/* The letter, waited for; NULL when the group failed, with the reason in *e. */
static struct letter *letter_wait(struct comm *c, int from, struct error *e) {
    struct group *g = group_of(c);
    struct letter *l;
    double left = g->timeout;
    pthread_mutex_lock(&g->lock);
    while ((l = letter_take(g, from, c->rank)) == NULL && !atomic_load(&g->failed)) {
        if (left <= 0)
            group_fail_late(c, g->timeout);
        else
            group_sleep(g, &left);
    }
    if (l == NULL) *e = g->why;
    pthread_mutex_unlock(&g->lock);
    return l;
}

static void threads_receive(struct comm *c, struct backend *b, struct tensor x, int from) {
    struct error e;
    struct letter *l = letter_wait(c, from, &e);
    if (l == NULL) {
        comm_fail_backend(b, &e);
        return;
    }
    CHECK(l->bytes == tensor_row_bytes(x));
    backend_upload(b, x.data, l->rows, l->bytes);
    if (backend_sync(b, &e)) comm_fail_backend(b, &e); /* the rows are copied, or that failed, before they are freed */
    free(l);
}

static enum status threads_broadcast(struct comm *c, struct buffer *message, bool soon, struct error *e) {
    struct group *g = group_of(c);
    if (c->rank == 0) g->message = message;
    if (!group_meet(c, soon ? g->timeout : 0)) return group_failure(c, e);
    if (c->rank != 0) {
        buffer_clear(message);
        buffer_append(message, g->message->data, g->message->size);
    }
    group_part(c);
    return STATUS_OK;
}

static enum status threads_agree(struct comm *c, struct error *mine) {
    struct group *g = group_of(c);
    g->outcomes[c->rank] = *mine;
    if (!group_meet(c, 0)) return group_failure(c, mine);
    int first = comm_first_failure(g->outcomes, c->size);
    if (first >= 0) {
        *mine = g->outcomes[first];
        error_prefix(mine, "rank %d", first);
    }
    group_part(c);
    return mine->status;
}

/* Threads of one process are waited for as long as it takes. */
static enum status threads_working(struct comm *c, struct error *e) {
    return atomic_load(&group_of(c)->failed) ? group_failure(c, e) : STATUS_OK;
}

/* A rank of ours that fails says so, to whoever works with it. */
static enum status threads_check(const struct comm *c, struct error *e) {
    (void)c;
    (void)e;
    return STATUS_OK;
}

static void threads_close(struct comm *c) {
    struct group *g = group_of(c);
    pthread_mutex_lock(&g->lock);
    g->open--;
    bool last = g->open == 0;
    pthread_mutex_unlock(&g->lock);
    free(c);
    if (!last) return;
    while (g->letters) {
        struct letter *l = g->letters;
        g->letters = l->next;
        free(l);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g->tensors);
    free(g->outcomes);
    free(g);
}

static const struct comm_ops threads_ops = {
    .name = "threads",
    .allreduce_sum = threads_allreduce_sum,
    .allgather_cols = threads_allgather_cols,
    .send = threads_send,
    .receive = threads_receive,
    .broadcast = threads_broadcast,
    .agree = threads_agree,
    .working = threads_working,
    .check = threads_check,
    .leave = threads_leave,
    .close = threads_close,
};

void comm_open_threads(struct comm **out, int size, double timeout) {
    struct group *g = xcalloc(1, sizeof *g);
    pthread_condattr_t monotonic;
    g->size = size;
    g->open = size;
    g->timeout = timeout;
    g->tensors = xcalloc((size_t)size, sizeof *g->tensors);
    g->outcomes = xcalloc((size_t)size, sizeof *g->outcomes);
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int rank = 0; rank < size; rank++) {
        out[rank] = xmalloc(sizeof *out[rank]);
        *out[rank] =
            (struct comm){.ops = &threads_ops, .rank = rank, .size = size, .stages = 1, .world = out[rank], .group = g};
    }
}
