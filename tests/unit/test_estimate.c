/* tests/unit/test_estimate.c: the estimate of a build's progress moves as the work does, whatever
 * the files are like.
 */
#include <math.h>

#include "config/base/base.h"
#include "tests/folder.h"
#include "tests/unit/estimate_recording.h"
#include "tools/index/index_estimate.h"

enum { CHUNK = 256, RATE = 1000 }; /* bytes of text; a second */

struct pile {
    int files;
    uint64_t guess;
    double ratio; /* bytes of text for each that was guessed */
};

struct run {
    struct index_estimate estimate;
    double now, end; /* seconds; `end` is known to the test alone */
    double worst_share, worst_left, largest_step;
    double last_share;
};

/* Embeds text, and compares what is shown with what is true. Before a tenth is done an estimate may
 * be far off. */
static void embed(struct run *r, uint64_t bytes) {
    while (bytes > 0) {
        uint64_t n = bytes < CHUNK ? bytes : CHUNK;
        r->now += (double)n / RATE;
        estimate_done(&r->estimate, n, r->now);
        double share = estimate_share(&r->estimate), left = estimate_left(&r->estimate),
               truth = r->now / r->end;
        assert_true(share >= r->last_share && share <= 1);
        r->largest_step = fmax(r->largest_step, share - r->last_share);
        if (truth > 0.1) {
            r->worst_share = fmax(r->worst_share, fabs(share - truth));
            r->worst_left = fmax(r->worst_left, fabs(left - (r->end - r->now)) / r->end);
        }
        r->last_share = share;
        bytes -= n;
    }
}

static struct run build(const struct pile *piles, int n) {
    struct run r = {0};
    estimate_start(&r.estimate, 0);
    assert_true(estimate_left(&r.estimate) == -1);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < piles[i].files; j++) {
            estimate_expect(&r.estimate, piles[i].guess);
            r.end += floor((double)piles[i].guess * piles[i].ratio) / RATE;
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < piles[i].files; j++) {
            uint64_t text = (uint64_t)((double)piles[i].guess * piles[i].ratio);
            estimate_read(&r.estimate, piles[i].guess, text);
            embed(&r, text);
        }
    assert_true(estimate_share(&r.estimate) == 1);
    assert_true(estimate_left(&r.estimate) == 0);
    return r;
}

static void test_one_large_file(void **state) {
    (void)state;
    const struct pile piles[] = {{20, 500, 1}, {1, 1000000, 1}, {20, 500, 1}};
    struct run r = build(piles, 3);
    assert_true(r.largest_step < 0.02 && r.worst_share < 0.02 && r.worst_left < 0.02);
}

/* Every guess is wrong by the same factor: the first few files tell. */
static void test_wrong_guesses(void **state) {
    (void)state;
    const struct pile piles[] = {{1000, 4000, 3.5}};
    struct run r = build(piles, 1);
    assert_true(r.largest_step < 0.05 && r.worst_share < 0.06 && r.worst_left < 0.06);
    const struct pile less[] = {{1000, 14000, 0.3}};
    r = build(less, 1);
    assert_true(r.largest_step < 0.05 && r.worst_share < 0.06 && r.worst_left < 0.06);
}

/* Guesses that are right for each pile are right for all, whatever the files are like. */
static void test_unequal_files(void **state) {
    (void)state;
    const struct pile piles[] = {{2, 200000, 1}, {300, 14000, 1}, {60, 1000, 1}};
    struct run r = build(piles, 3);
    assert_true(r.largest_step < 0.01 && r.worst_share < 0.01 && r.worst_left < 0.01);
}

/* Skipped files and copies take their part out of the rest. */
static void test_files_without_text(void **state) {
    (void)state;
    const struct pile piles[] = {{100, 1000, 1}, {100, 1000, 0}, {100, 1000, 1}};
    struct run r = build(piles, 3);
    assert_true(r.worst_share < 0.25 && r.last_share == 1);
}

/* A machine that becomes half as fast: what is left follows within two minutes. */
static void test_rate_follows(void **state) {
    (void)state;
    struct index_estimate t = {0};
    estimate_start(&t, 0);
    estimate_expect(&t, 10000000);
    estimate_read(&t, 10000000, 10000000);
    double now = 0;
    for (int i = 0; i < 1000; i++) estimate_done(&t, 1000, now += 1);
    assert_true(fabs(estimate_left(&t) - 9000) < 10);
    for (int i = 0; i < 120; i++) estimate_done(&t, 500, now += 1);
    assert_true(fabs(estimate_left(&t) - 17880) < 2500);
}

/* A real build: at each event the whole time, what has passed and what is left, is told within a
 * fifth of the truth, and never moves by more than a sixth at once. Before a tenth is done an
 * estimate may be far off. */
static void test_recording(void **state) {
    (void)state;
    struct index_estimate t = {0};
    const struct recorded_event *last = &recording[ARRAY_COUNT(recording) - 1];
    double end = last->value / 1000.0, before = 0;
    int n_told = 0;
    assert_int_equal(last->kind, DONE);
    estimate_start(&t, 0);
    for (size_t i = 0; i < ARRAY_COUNT(recording); i++) {
        const struct recorded_event *event = &recording[i];
        double now = event->value / 1000.0;
        if (event->kind == EXPECT) estimate_expect(&t, event->bytes);
        if (event->kind == READ) estimate_read(&t, event->bytes, event->value);
        if (event->kind != DONE) continue;
        estimate_done(&t, event->bytes, now);
        double whole = now + estimate_left(&t);
        if (estimate_share(&t) < 0.15) continue;
        assert_true(fabs(whole - end) < 0.2 * end);
        assert_true(before == 0 || fabs(whole - before) < before / 6);
        before = whole;
        n_told++;
    }
    assert_true(n_told > 10 && fabs(before - end) < 0.01 * end);
}

/* Vectors that were there take no time, and make nobody believe that the rest takes none. */
static void test_kept(void **state) {
    (void)state;
    struct index_estimate t = {0};
    estimate_start(&t, 0);
    estimate_expect(&t, 100000);
    estimate_read(&t, 100000, 100000);
    estimate_kept(&t, 50000);
    assert_true(fabs(estimate_share(&t) - 0.5) < 1e-9 && estimate_left(&t) == -1);
    estimate_done(&t, 10000, 10);
    assert_true(fabs(estimate_left(&t) - 40) < 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_large_file), cmocka_unit_test(test_wrong_guesses),
        cmocka_unit_test(test_unequal_files),  cmocka_unit_test(test_files_without_text),
        cmocka_unit_test(test_rate_follows),   cmocka_unit_test(test_recording),
        cmocka_unit_test(test_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
