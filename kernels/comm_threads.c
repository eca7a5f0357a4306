/* kernels/comm_threads.c: ranks that are threads of one process, on backends whose memory the host can read. It is how
 * tensor parallelism runs and is tested where there is one device.
 *
 * Every rank publishes its rows, meets the others at a barrier, does its share of the work on everyone's rows, and
 * meets them again before anyone goes on. A sum adds the ranks' numbers in rank order, so all ranks hold the same bits.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/comm.h"

/* What the ranks share; freed by the last to close. */
struct group {
    int open;
    pthread_mutex_t lock; /* guards open */
    pthread_barrier_t barrier;
    struct tensor *published; /* [size] */
};

static void publish(struct comm *c, struct tensor x) {
    struct group *g = c->group;
    g->published[c->rank] = x;
    pthread_barrier_wait(&g->barrier);
}

static void meet(struct comm *c) { pthread_barrier_wait(&((struct group *)c->group)->barrier); }

static float *row_at(struct tensor t, int row) { return tensor_f32(tensor_rows(t, row, 1)); }

/* Rank r sums columns [r n / size, (r+1) n / size) of every row, and writes the sum to all ranks. */
static void threads_allreduce_sum(struct comm *c, struct backend *b, struct tensor x) {
    (void)b;
    publish(c, x);
    const struct group *g = c->group;
    int first = (int)((int64_t)x.cols * c->rank / c->size), end = (int)((int64_t)x.cols * (c->rank + 1) / c->size);
    for (int row = 0; row < x.rows; row++) {
        for (int j = first; j < end; j++) {
            float sum = 0;
            for (int r = 0; r < c->size; r++) sum += row_at(g->published[r], row)[j];
            for (int r = 0; r < c->size; r++) row_at(g->published[r], row)[j] = sum;
        }
    }
    meet(c);
}

static void threads_allgather_cols(struct comm *c, struct backend *b, struct tensor y, struct tensor x) {
    (void)b;
    CHECK(y.cols == c->size * x.cols && y.rows == x.rows);
    publish(c, x);
    const struct group *g = c->group;
    for (int r = 0; r < c->size; r++)
        for (int row = 0; row < x.rows; row++)
            memcpy(row_at(y, row) + r * x.cols, row_at(g->published[r], row), (size_t)x.cols * sizeof(float));
    meet(c);
}

static void threads_close(struct comm *c) {
    struct group *g = c->group;
    pthread_mutex_lock(&g->lock);
    bool last = --g->open == 0;
    pthread_mutex_unlock(&g->lock);
    free(c);
    if (!last) return;
    pthread_barrier_destroy(&g->barrier);
    pthread_mutex_destroy(&g->lock);
    free(g->published);
    free(g);
}

static const struct comm_ops threads_ops = {.name = "threads",
                                            .allreduce_sum = threads_allreduce_sum,
                                            .allgather_cols = threads_allgather_cols,
                                            .close = threads_close};

enum status comm_open_threads(struct comm **out, int size, struct error *e) {
    if (size < 1 || size > COMM_MAX_RANKS)
        return error_set(e, STATUS_INVALID, "%d ranks, allowed is 1 .. %d", size, COMM_MAX_RANKS);
    struct group *g = xcalloc(1, sizeof *g);
    g->open = size;
    g->published = xcalloc((size_t)size, sizeof *g->published);
    pthread_mutex_init(&g->lock, NULL);
    pthread_barrier_init(&g->barrier, NULL, (unsigned)size);
    for (int rank = 0; rank < size; rank++) {
        out[rank] = xcalloc(1, sizeof *out[rank]);
        *out[rank] = (struct comm){.ops = &threads_ops, .rank = rank, .size = size, .group = g};
    }
    return STATUS_OK;
}
