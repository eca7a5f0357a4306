/* kernels/comm/comm_threads.c: ranks that are threads of one process, on backends whose memory the
 * host can read. It is how tensor parallelism runs without a launcher, and is tested where there is
 * one device.
 *
 * Every rank publishes its rows, meets the others, does its share of the work on everyone's rows,
 * and meets them again before anyone goes on. A sum adds the ranks' numbers in rank order, so all
 * ranks hold the same bits. */
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

static struct group *group_of(const struct comm *comm) { return comm->group; }

static void group_fail_locked(struct group *group, const struct error *why) {
    if (!atomic_load(&group->failed)) group->why = *why;
    group->why.status = STATUS_DEVICE;
    atomic_store(&group->failed, true);
    pthread_cond_broadcast(&group->changed);
}

static void group_fail_late(struct comm *comm, double seconds) {
    struct error e;
    error_set(&e, STATUS_DEVICE, "rank %d of %d waited %g s for the others (parallel.timeout)",
              comm->rank, comm->size, seconds);
    group_fail_locked(group_of(comm), &e);
}

/* Sleeps until something changes. *left are the seconds that this may still take; of a sleep no
 * more than LONGEST_SLEEP is taken off, so that a process that was stopped for long does not find
 * its time over when it goes on. */
static void group_sleep(struct group *group, double *left) {
    double start = time_now(), length = *left < LONGEST_SLEEP ? *left : LONGEST_SLEEP, slept;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * length);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&group->changed, &group->lock, &until);
    slept = time_now() - start;
    *left -= slept < length ? slept : length;
}

/* Sleeps until the meeting is complete, or the group failed; false when `seconds` are over (0:
 * never). */
static bool group_sleep_until_met(struct group *group, unsigned meeting, double seconds) {
    double left = seconds;
    while (atomic_load(&group->meeting) == meeting && !atomic_load(&group->failed)) {
        if (seconds == 0)
            pthread_cond_wait(&group->changed, &group->lock);
        else if (left <= 0)
            return false;
        else
            group_sleep(group, &left);
    }
    return true;
}

/* Waits for all ranks; false when the group failed before they came. With `seconds`, it fails after
 * so many. */
static bool group_meet(struct comm *comm, double seconds) {
    struct group *group = group_of(comm);
    pthread_mutex_lock(&group->lock);
    unsigned meeting = atomic_load(&group->meeting);
    if (!atomic_load(&group->failed)) group->arrived++;
    if (group->arrived == group->size) {
        group->arrived = 0;
        atomic_store(&group->meeting, meeting + 1);
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);

    double start = time_now();
    while (atomic_load(&group->meeting) == meeting && !atomic_load(&group->failed) &&
           comm_rest(time_now() - start))
        continue;

    pthread_mutex_lock(&group->lock);
    if (!group_sleep_until_met(group, meeting, seconds)) group_fail_late(comm, seconds);
    bool met = atomic_load(&group->meeting) != meeting;
    pthread_mutex_unlock(&group->lock);
    return met;
}

/* The meeting that ends an exchange. Everyone was at the one that began it and only works on memory
 * now, so everyone comes, and nobody may go before: the published rows of every rank are read until
 * then. */
static void group_part(struct comm *comm) { CHECK(group_meet(comm, 0)); }

static void threads_leave(struct comm *comm, const struct error *why) {
    struct group *group = group_of(comm);
    struct error named = *why;
    error_prefix(&named, "rank %d", comm->rank);
    pthread_mutex_lock(&group->lock);
    group_fail_locked(group, &named);
    pthread_mutex_unlock(&group->lock);
}

static enum status group_failure(struct comm *comm, struct error *e) {
    struct group *group = group_of(comm);
    pthread_mutex_lock(&group->lock);
    *e = group->why;
    pthread_mutex_unlock(&group->lock);
    return STATUS_DEVICE;
}

/* Shows x to the others; false, with the reason in the backend, when this rank or another has
 * failed. */
static bool tensor_publish(struct comm *comm, struct backend *backend, struct tensor x) {
    struct group *group = group_of(comm);
    struct error e;
    if (backend->error.status) threads_leave(comm, &backend->error);
    group->tensors[comm->rank] = x;
    if (group_meet(comm, group->timeout)) return true;
    group_failure(comm, &e);
    comm_fail_backend(backend, &e);
    return false;
}

static float *tensor_row(struct tensor t, int row) { return tensor_f32(tensor_rows(t, row, 1)); }

/* Rank r sums columns [r n / size, (r+1) n / size) of every row, and writes the sum to all ranks.
 */
static void threads_allreduce_sum(struct comm *comm, struct backend *backend, struct tensor x) {
    if (!tensor_publish(comm, backend, x)) return;
    const struct group *group = group_of(comm);
    int first = (int)((int64_t)x.cols * comm->rank / comm->size),
        end = (int)((int64_t)x.cols * (comm->rank + 1) / comm->size);
    for (int row = 0; row < x.rows; row++) {
        for (int j = first; j < end; j++) {
            float sum = 0;
            for (int r = 0; r < comm->size; r++) sum += tensor_row(group->tensors[r], row)[j];
            for (int r = 0; r < comm->size; r++) tensor_row(group->tensors[r], row)[j] = sum;
        }
    }
    group_part(comm);
}

static void threads_allgather_cols(struct comm *comm, struct backend *backend, struct tensor y,
                                   struct tensor x) {
    CHECK(x.cols <= y.cols && y.cols <= comm->size * x.cols && y.rows == x.rows);
    if (!tensor_publish(comm, backend, x)) return;
    const struct group *group = group_of(comm);
    for (int r = 0; r < comm->size; r++) {
        int first = gathered_col(y.cols, x.cols, r);
        for (int row = 0; row < x.rows; row++)
            memcpy(tensor_row(y, row) + first, tensor_row(group->tensors[r], row),
                   (size_t)x.cols * sizeof(float));
    }
    group_part(comm);
}

static size_t tensor_row_bytes(struct tensor x) {
    CHECK(x.dtype == DTYPE_F32 && x.stride == x.cols);
    return (size_t)x.rows * (size_t)x.cols * sizeof(float);
}

static void threads_send(struct comm *comm, struct backend *backend, struct tensor x, int to) {
    struct group *group = group_of(comm);
    size_t bytes = tensor_row_bytes(x);
    struct letter *letter = xmalloc(sizeof *letter + bytes), **end;
    struct error e;
    *letter = (struct letter){.from = comm->rank, .to = to, .bytes = bytes};
    backend_download(backend, letter->rows, x.data, bytes);
    if (backend_sync(backend, &e)) {
        threads_leave(comm, &e);
        comm_fail_backend(backend, &e);
        free(letter);
        return;
    }
    pthread_mutex_lock(&group->lock);
    end = &group->letters;
    while (*end) end = &(*end)->next;
    *end = letter;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

/* Takes the first letter from a rank to this one out of the list; NULL when there is none. */
static struct letter *letter_take(struct group *group, int from, int to) {
    for (struct letter **at = &group->letters; *at; at = &(*at)->next) {
        struct letter *letter = *at;
        if (letter->from != from || letter->to != to) continue;
        *at = letter->next;
        return letter;
    }
    return NULL;
}

/* The letter, waited for; NULL when the group failed, with the reason in *e. */
static struct letter *letter_wait(struct comm *comm, int from, struct error *e) {
    struct group *group = group_of(comm);
    struct letter *letter;
    double left = group->timeout;
    pthread_mutex_lock(&group->lock);
    while ((letter = letter_take(group, from, comm->rank)) == NULL &&
           !atomic_load(&group->failed)) {
        if (left <= 0)
            group_fail_late(comm, group->timeout);
        else
            group_sleep(group, &left);
    }
    if (letter == NULL) *e = group->why;
    pthread_mutex_unlock(&group->lock);
    return letter;
}

static void threads_receive(struct comm *comm, struct backend *backend, struct tensor x, int from) {
    struct error e;
    struct letter *letter = letter_wait(comm, from, &e);
    if (letter == NULL) {
        comm_fail_backend(backend, &e);
        return;
    }
    CHECK(letter->bytes == tensor_row_bytes(x));
    backend_upload(backend, x.data, letter->rows, letter->bytes);
    if (backend_sync(backend, &e))
        comm_fail_backend(backend,
                          &e); /* the rows are copied, or that failed, before they are freed */
    free(letter);
}

static enum status threads_broadcast(struct comm *comm, struct buffer *message, bool soon,
                                     struct error *e) {
    struct group *group = group_of(comm);
    if (comm->rank == 0) group->message = message;
    if (!group_meet(comm, soon ? group->timeout : 0)) return group_failure(comm, e);
    if (comm->rank != 0) {
        buffer_clear(message);
        buffer_append(message, group->message->data, group->message->size);
    }
    group_part(comm);
    return STATUS_OK;
}

static enum status threads_agree(struct comm *comm, struct error *mine) {
    struct group *group = group_of(comm);
    group->outcomes[comm->rank] = *mine;
    if (!group_meet(comm, 0)) return group_failure(comm, mine);
    int first = comm_first_failure(group->outcomes, comm->size);
    if (first >= 0) {
        *mine = group->outcomes[first];
        error_prefix(mine, "rank %d", first);
    }
    group_part(comm);
    return mine->status;
}

/* Threads of one process are waited for as long as it takes. */
static enum status threads_working(struct comm *comm, struct error *e) {
    return atomic_load(&group_of(comm)->failed) ? group_failure(comm, e) : STATUS_OK;
}

/* A rank of ours that fails says so, to whoever works with it. */
static enum status threads_check(const struct comm *comm, struct error *e) {
    (void)comm;
    (void)e;
    return STATUS_OK;
}

static void threads_close(struct comm *comm) {
    struct group *group = group_of(comm);
    pthread_mutex_lock(&group->lock);
    group->open--;
    bool last = group->open == 0;
    pthread_mutex_unlock(&group->lock);
    free(comm);
    if (!last) return;
    while (group->letters) {
        struct letter *letter = group->letters;
        group->letters = letter->next;
        free(letter);
    }
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group->tensors);
    free(group->outcomes);
    free(group);
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
    struct group *group = xcalloc(1, sizeof *group);
    pthread_condattr_t monotonic;
    group->size = size;
    group->open = size;
    group->timeout = timeout;
    group->tensors = xcalloc((size_t)size, sizeof *group->tensors);
    group->outcomes = xcalloc((size_t)size, sizeof *group->outcomes);
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&group->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int rank = 0; rank < size; rank++) {
        out[rank] = xmalloc(sizeof *out[rank]);
        *out[rank] = (struct comm){.ops = &threads_ops,
                                   .rank = rank,
                                   .size = size,
                                   .stages = 1,
                                   .world = out[rank],
                                   .group = group};
    }
}
