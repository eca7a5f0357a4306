/* tests/tp/test_comm.c: the communicators themselves, as threads: sums and gathers, messages,
 * agreement, and what the others see of a rank that fails or does not come. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/comm/comm.h"

enum { MAX_RANKS = 5, ROWS = 3, COLS = 7 };

struct rank {
    struct comm *comm;
    struct backend *backend;
    pthread_t thread;
    void (*work)(struct rank *r);
    enum status status; /* what the work found, with its error */
    struct error error;
    float sum[ROWS * COLS], part[ROWS * COLS], whole[ROWS * COLS * MAX_RANKS];
};

static void *run(void *argument) {
    struct rank *r = argument;
    r->work(r);
    return NULL;
}

static void run_comms(struct rank *ranks, struct comm **comms, int n,
                      void (*work)(struct rank *r)) {
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){.comm = comms[r], .work = work, .status = STATUS_INTERNAL};
        assert_int_equal(
            backend_open(&ranks[r].backend, "cpu", &(struct backend_options){.threads = 1}, NULL),
            STATUS_OK);
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < n; r++) {
        comm_close(ranks[r].comm);
        backend_close(ranks[r].backend);
    }
}

static void run_ranks(struct rank *ranks, int size, double timeout, void (*work)(struct rank *r)) {
    struct comm *comms[COMM_MAX_RANKS];
    struct comm_options o = {.kind = COMM_THREADS, .size = size, .stages = 1, .timeout = timeout};
    int n;
    assert_int_equal(comm_open(comms, &n, &o, NULL), STATUS_OK);
    assert_int_equal(n, size);
    for (int r = 0; r < n; r++) {
        assert_int_equal(comms[r]->rank, r);
        assert_ptr_equal(comms[r]->world, comms[r]);
    }
    run_comms(ranks, comms, n, work);
}

/* Numbers whose sum depends on the order they are added in. */
static float number(int rank, int i) {
    return (rank % 2 ? 1e7f : -1e7f) + 0.1f * (float)(i * (rank + 1));
}

static void sum_and_gather(struct rank *r) {
    int whole_cols = COLS * r->comm->size - r->comm->size / 2; /* the last parts overlap */
    for (int i = 0; i < ROWS * COLS; i++) {
        r->sum[i] = number(r->comm->rank, i);
        int col = gathered_col(whole_cols, COLS, r->comm->rank) + i % COLS;
        r->part[i] = (float)(1000 * (i / COLS) + col);
    }
    comm_allreduce_sum(r->comm, r->backend, tensor_make(r->sum, DTYPE_F32, ROWS, COLS));
    comm_allgather_cols(r->comm, r->backend, tensor_make(r->whole, DTYPE_F32, ROWS, whole_cols),
                        tensor_make(r->part, DTYPE_F32, ROWS, COLS));
    r->status = backend_sync(r->backend, &r->error);
}

static void test_sums_and_gathers(void **state) {
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct rank ranks[MAX_RANKS];
        run_ranks(ranks, size, 10, sum_and_gather);
        for (int r = 0; r < size; r++) {
            assert_int_equal(ranks[r].status, STATUS_OK);
            for (int i = 0; i < ROWS * COLS; i++) {
                float sum = 0;
                for (int q = 0; q < size; q++) sum += number(q, i);
                assert_memory_equal(&ranks[r].sum[i], &sum, sizeof sum);
            }
            int cols = COLS * size - size / 2;
            for (int i = 0; i < ROWS * cols; i++)
                assert_true(ranks[r].whole[i] == (float)(1000 * (i / cols) + i % cols));
        }
    }
}

static void talk(struct rank *r) {
    struct buffer message = {0};
    r->status = STATUS_OK;
    for (int i = 0; i < 50; i++) {
        buffer_clear(&message);
        if (r->comm->rank == 0)
            for (int j = 0; j < i; j++) buffer_printf(&message, "%d ", j);
        if (comm_broadcast(r->comm, &message, &r->error)) r->status = STATUS_DEVICE;
        char expected[400] = "";
        for (int j = 0; j < i; j++)
            snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%d ", j);
        if (message.size != strlen(expected) ||
            (i > 0 && memcmp(message.data, expected, message.size) != 0))
            r->status = STATUS_INTERNAL;
    }
    buffer_free(&message);
    /* All agree on the first failure, and go on. */
    struct error mine = {0};
    enum status outcome = r->comm->rank >= 1
                              ? error_set(&mine, STATUS_NO_MEMORY, "no room %d", r->comm->rank)
                              : STATUS_OK;
    if (comm_agree(r->comm, outcome, &mine) != STATUS_NO_MEMORY ||
        strcmp(mine.text, "rank 1: no room 1") != 0)
        r->status = STATUS_INTERNAL;
    if (comm_agree(r->comm, STATUS_OK, &mine)) r->status = STATUS_INTERNAL;
}

static void test_messages(void **state) {
    (void)state;
    struct rank ranks[3];
    run_ranks(ranks, 3, 10, talk);
    for (int r = 0; r < 3; r++) assert_int_equal(ranks[r].status, STATUS_OK);
}

/* Two stages of two ranks: each has a group of its own, rows go to the same rank of the next stage,
 * in order, and without waiting for the receiver. */
static void hand_on(struct rank *r) {
    struct comm *c = r->comm, *world = c->world;
    if (world->size != 4 || world->rank != 2 * c->stage + c->rank || c->size != 2 || c->stages != 2)
        return;
    for (int i = 0; i < 20; i++) {
        struct tensor x = tensor_make(r->sum, DTYPE_F32, ROWS, COLS);
        for (int j = 0; j < ROWS * COLS; j++)
            r->sum[j] = c->stage ? 0 : (float)(1000 * i + 100 * c->rank + j);
        if (c->stage == 0)
            comm_send(world, r->backend, x, world->rank + 2);
        else
            comm_receive(world, r->backend, x, world->rank - 2);
        for (int j = 0; j < ROWS * COLS; j++)
            if (r->sum[j] != (float)(1000 * i + 100 * c->rank + j)) return;
    }
    r->sum[0] = (float)world->rank;
    comm_allreduce_sum(c, r->backend, tensor_make(r->sum, DTYPE_F32, 1, 1));
    r->status = backend_sync(r->backend, &r->error);
}

static void test_stages(void **state) {
    (void)state;
    struct rank ranks[4];
    struct comm *comms[COMM_MAX_RANKS];
    struct comm_options o = {.kind = COMM_THREADS, .size = 2, .stages = 2, .timeout = 10};
    int n;
    assert_int_equal(comm_open(comms, &n, &o, NULL), STATUS_OK);
    assert_int_equal(n, 4);
    run_comms(ranks, comms, n, hand_on);
    for (int r = 0; r < n; r++) {
        assert_int_equal(ranks[r].status, STATUS_OK);
        assert_true(ranks[r].sum[0] == (r < 2 ? 1.0f : 5.0f));
    }
}

/* Rows that never come, and rows that nobody takes. */
static void miss_rows(struct rank *r) {
    if (r->comm->rank == 0)
        comm_send(r->comm, r->backend, tensor_make(r->part, DTYPE_F32, ROWS, COLS), 2);
    else if (r->comm->rank == 1)
        comm_receive(r->comm, r->backend, tensor_make(r->part, DTYPE_F32, ROWS, COLS), 2);
    r->status = backend_sync(r->backend, &r->error);
}

static void test_missing_rows(void **state) {
    (void)state;
    struct rank ranks[3];
    run_ranks(ranks, 3, 1, miss_rows);
    assert_int_equal(ranks[0].status, STATUS_OK);
    assert_int_equal(ranks[1].status, STATUS_DEVICE);
    assert_non_null(strstr(ranks[1].error.text, "rank 1 of 3 waited 1 s"));
}

/* Rank 2's device fails before a sum: it and all others get STATUS_DEVICE and its reason. */
static void fail_one(struct rank *r) {
    if (r->comm->rank == 2) error_set(&r->backend->error, STATUS_NO_MEMORY, "out of rows");
    comm_allreduce_sum(r->comm, r->backend, tensor_make(r->sum, DTYPE_F32, ROWS, COLS));
    comm_allgather_cols(r->comm, r->backend,
                        tensor_make(r->whole, DTYPE_F32, ROWS, COLS * r->comm->size),
                        tensor_make(r->part, DTYPE_F32, ROWS, COLS));
    r->status = backend_sync(r->backend, &r->error);
}

static void test_a_failed_rank(void **state) {
    (void)state;
    struct rank ranks[4];
    run_ranks(ranks, 4, 60, fail_one);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ranks[r].status, STATUS_DEVICE);
        assert_string_equal(ranks[r].error.text, r == 2 ? "out of rows" : "rank 2: out of rows");
    }
}

/* Rank 1 leaves while the others wait for a message, which has no time limit. */
static void leave_one(struct rank *r) {
    struct buffer message = {0};
    if (r->comm->rank == 1) {
        struct error why;
        error_set(&why, STATUS_IO, "pulled the plug");
        comm_leave(r->comm, &why);
    }
    r->status = comm_broadcast(r->comm, &message, &r->error);
    buffer_free(&message);
}

/* Rank 1 does not come to a sum: the time limit ends the others' waiting. */
static void miss_one(struct rank *r) {
    if (r->comm->rank == 1) return;
    comm_allreduce_sum(r->comm, r->backend, tensor_make(r->sum, DTYPE_F32, ROWS, COLS));
    r->status = backend_sync(r->backend, &r->error);
}

static void test_a_missing_rank(void **state) {
    (void)state;
    struct rank ranks[3];
    run_ranks(ranks, 3, 60, leave_one);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, STATUS_DEVICE);
        assert_string_equal(ranks[r].error.text, "rank 1: pulled the plug");
    }
    double start = time_now();
    run_ranks(ranks, 3, 1, miss_one);
    assert_true(time_now() - start >= 0.99);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(ranks[r].status, STATUS_DEVICE);
        assert_non_null(
            strstr(ranks[r].error.text, "waited 1 s for the others (parallel.timeout)"));
    }
}

static void test_sizes(void **state) {
    (void)state;
    struct error e;
    struct comm *comms[COMM_MAX_RANKS];
    int n;
    struct comm_options o = {
        .kind = COMM_THREADS, .size = COMM_MAX_RANKS + 1, .stages = 1, .timeout = 1};
    assert_int_equal(comm_open(comms, &n, &o, &e), STATUS_INVALID);
    o.size = 0;
    assert_int_equal(comm_open(comms, &n, &o, &e), STATUS_INVALID);
    o.size = o.stages = 9;
    assert_int_equal(comm_open(comms, &n, &o, &e), STATUS_INVALID);
    o = (struct comm_options){.kind = COMM_SINGLE, .size = 1, .stages = 2};
    assert_int_equal(comm_open(comms, &n, &o, &e), STATUS_INVALID);
    o = (struct comm_options){.kind = COMM_AUTO, .size = 1, .stages = 1};
    assert_int_equal(comm_open(comms, &n, &o, &e), STATUS_OK);
    assert_string_equal(comms[0]->ops->name, "single");
    comm_close(comms[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_and_gathers),
                                       cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_stages),
                                       cmocka_unit_test(test_missing_rows),
                                       cmocka_unit_test(test_a_failed_rank),
                                       cmocka_unit_test(test_a_missing_rank),
                                       cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
