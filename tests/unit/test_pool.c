/* tests/unit/test_pool.c: the CPU backend's threads: every piece once, what a thread that has lost
 * its core owes, and the accounts that leave a helper out. Threads wait for conditions, never for
 * times. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/helper_account.h"
#include "kernels/cpu/pool.h"

enum { MOST_THREADS = 5, MOST_PIECES = 1000 };

struct tally {
    atomic_int done[MOST_PIECES];
    atomic_int busy[MOST_THREADS]; /* pieces that the thread of that number is in */
    atomic_bool twice;
};

static void count_piece(const void *context, int piece, int thread) {
    struct tally *t = *(struct tally *const *)context;
    if (atomic_fetch_add(&t->busy[thread], 1) != 0) atomic_store(&t->twice, true);
    atomic_fetch_add(&t->done[piece], 1);
    atomic_fetch_sub(&t->busy[thread], 1);
}

static void test_every_piece_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        struct pool *p;
        struct error e;
        struct tally *t = calloc(1, sizeof *t);
        assert_int_equal(pool_open(&p, threads, &e), STATUS_OK);
        for (int pieces = 0; pieces <= MOST_PIECES; pieces = pieces * 3 / 2 + 1) {
            for (int i = 0; i < pieces; i++) atomic_store(&t->done[i], 0);
            pool_run(p, 1000, pieces, count_piece, &t);
            for (int i = 0; i < pieces; i++) assert_int_equal(atomic_load(&t->done[i]), 1);
            if (pieces < MOST_PIECES) assert_int_equal(atomic_load(&t->done[pieces]), 0);
        }
        assert_false(atomic_load(&t->twice));
        pool_close(p);
        free(t);
    }
}

/* A job whose helpers stay in their first piece until all that nobody is stuck in are done. It ends
 * only if somebody takes over what they have left of their shares. */
struct stuck_job {
    int pieces;
    atomic_int done, stuck;
};

/* The caller's piece gives helpers the time to enter, on whatever cores there are. */
static void await_helper(const atomic_int *entered) {
    for (int i = 0; i < 1000 && atomic_load(entered) == 0; i++) sched_yield();
}

static void stuck_piece(const void *context, int piece, int thread) {
    struct stuck_job *s = *(struct stuck_job *const *)context;
    (void)piece;
    if (thread == 0) {
        await_helper(&s->stuck);
    } else {
        atomic_fetch_add(&s->stuck, 1);
        while (atomic_load(&s->done) < s->pieces - atomic_load(&s->stuck)) sched_yield();
    }
    atomic_fetch_add(&s->done, 1);
}

/* Jobs until a helper was stuck in one. */
static void run_stuck(struct pool *p) {
    int stuck = 0;
    while (stuck == 0) {
        struct stuck_job job = {.pieces = 64}, *context = &job;
        pool_run(p, 1000, job.pieces, stuck_piece, &context);
        assert_int_equal(atomic_load(&job.done), job.pieces);
        stuck = atomic_load(&job.stuck);
    }
}

static void test_a_stuck_helper_owes_one_piece(void **state) {
    (void)state;
    for (int threads = 2; threads <= MOST_THREADS; threads++) {
        struct pool *p;
        struct error e;
        assert_int_equal(pool_open(&p, threads, &e), STATUS_OK);
        run_stuck(p);
        pool_close(p);
    }
}

static void note_helper(const void *context, int piece, int thread) {
    atomic_int *helped = *(atomic_int *const *)context;
    (void)piece;
    if (thread == 0)
        await_helper(helped);
    else
        atomic_fetch_add(helped, 1);
}

/* However much it has cost, it is tried again. */
static void test_a_late_helper_comes_back(void **state) {
    (void)state;
    struct pool *p;
    struct error e;
    assert_int_equal(pool_open(&p, 2, &e), STATUS_OK);
    for (int round = 0; round < 3; round++) {
        atomic_int helped = 0, *context = &helped;
        run_stuck(p);
        while (atomic_load(&helped) == 0) pool_run(p, 1000, 8, note_helper, &context);
    }
    pool_close(p);
}

static void test_one_hiccup_after_good_work_costs_nothing(void **state) {
    (void)state;
    struct helper_account a = {0};
    double now = 100;
    for (int i = 0; i < 100; i++) account_enter(&a, 2e-4, 0, now += 4e-4);
    account_enter(&a, 0, 5e-3, now += 5e-3);
    assert_false(account_rests(&a, now));
    account_enter(&a, 2e-4, 0, now += 4e-4);
    assert_false(account_rests(&a, now));
}

static void test_a_new_helper_is_trusted(void **state) {
    (void)state;
    struct helper_account a;
    account_begin(&a);
    assert_false(account_doubts(&a));
    account_enter(&a, 0, 1e-3, 100);
    assert_true(account_doubts(&a));
    assert_false(account_rests(&a, 100));
}

static void test_merit_is_bounded(void **state) {
    (void)state;
    struct helper_account a = {0};
    double now = 100;
    for (int i = 0; i < 1000000; i++) account_enter(&a, 1e-3, 0, now += 1e-3);
    int jobs = 0;
    for (; !account_rests(&a, now); jobs++) account_enter(&a, 0, 1e-3, now += 1e-3);
    assert_in_range(jobs, 1, ACCOUNT_MOST / 1e-3 + 1);
}

/* A helper that only costs is tried seldom enough that trying takes a sixteenth of the time, and
 * often enough that it is back soon when its core is. */
static void test_a_losing_helper_is_left_out_for_a_bounded_time(void **state) {
    (void)state;
    struct helper_account a = {0};
    double now = 100, lost = 0, start = now;
    for (int i = 0; i < 1000; i++) {
        double waited = account_rests(&a, now) ? 0 : 3e-3;
        now += 3e-4 + waited;
        if (waited > 0) account_enter(&a, 0, waited, now);
        lost += waited;
    }
    assert_true(lost > 0 && lost < (now - start) / ACCOUNT_REST * 1.1);

    account_enter(&a, 0, 10, now);
    assert_true(account_rests(&a, now));
    assert_false(account_rests(&a, now + ACCOUNT_REST_MOST * 1.001));
}

static void test_a_helper_that_gains_more_than_it_costs_stays(void **state) {
    (void)state;
    struct helper_account a = {0};
    double now = 100;
    account_enter(&a, 3e-3, 0, now);
    for (int i = 0; i < 10000; i++) {
        account_enter(&a, i % 10 ? 2e-4 : 0, i % 10 ? 0 : 1.5e-3, now += 3e-4);
        assert_false(account_rests(&a, now));
    }
}

static void some_work(const void *context, int piece, int thread) {
    (void)context;
    (void)piece;
    (void)thread;
}

static void test_paces_are_kept_by_kind(void **state) {
    (void)state;
    struct pace_table *t = calloc(1, sizeof *t);
    struct job_pace *small = pace_find(t, some_work, 1000);
    assert_true(pace_is_old(small, 10));
    assert_true(pace_alone(small, 1000, 7) == 7);
    pace_set(small, 1000, 0.5);
    assert_true(pace_alone(small, 500, 7) == 0.25);
    assert_ptr_equal(pace_find(t, some_work, 600), small);
    for (int i = 0; i < 9; i++) assert_false(pace_is_old(small, 10));
    assert_true(pace_is_old(small, 10));

    struct job_pace *large = pace_find(t, some_work, 100000);
    assert_true(large != small && large->seconds == 0);
    assert_true(pace_find(t, count_piece, 1000)->seconds == 0);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_piece_once),
        cmocka_unit_test(test_a_stuck_helper_owes_one_piece),
        cmocka_unit_test(test_a_late_helper_comes_back),
        cmocka_unit_test(test_one_hiccup_after_good_work_costs_nothing),
        cmocka_unit_test(test_a_new_helper_is_trusted),
        cmocka_unit_test(test_merit_is_bounded),
        cmocka_unit_test(test_a_losing_helper_is_left_out_for_a_bounded_time),
        cmocka_unit_test(test_a_helper_that_gains_more_than_it_costs_stays),
        cmocka_unit_test(test_paces_are_kept_by_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
