/* tests/unit/test_estimate.c: the estimate of a build's progress moves as the work does, whatever the files are like.
 */
#include <math.h>

#include "tests/folder.h"
#include "tools/index/index_estimate.h"

enum { CHUNK = 256, RATE = 1000 }; /* bytes of text; a second */

struct pile {
    int kind, files;
    uint64_t file_bytes;
    double ratio; /* bytes of text for a byte of file */
};

struct run {
    struct estimate estimate;
    double now, end; /* seconds; `end` is known to the test alone */
    double worst_share, worst_left, largest_step;
    double last_share;
};

/* Embeds text, and compares what is shown with what is true. Before a tenth is done an estimate may be far off. */
static void embed(struct run *r, uint64_t bytes) {
    while (bytes > 0) {
        uint64_t n = bytes < CHUNK ? bytes : CHUNK;
        r->now += (double)n / RATE;
        estimate_done(&r->estimate, n, r->now);
        double share = estimate_share(&r->estimate), left = estimate_left(&r->estimate), truth = r->now / r->end;
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
            estimate_expect(&r.estimate, piles[i].kind, piles[i].file_bytes);
            r.end += floor((double)piles[i].file_bytes * piles[i].ratio) / RATE;
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < piles[i].files; j++) {
            uint64_t text = (uint64_t)((double)piles[i].file_bytes * piles[i].ratio);
            estimate_read(&r.estimate, piles[i].kind, piles[i].file_bytes, text);
            embed(&r, text);
        }
    assert_true(estimate_share(&r.estimate) == 1);
    assert_true(estimate_left(&r.estimate) == 0);
    return r;
}

static void test_one_large_file(void **state) {
    (void)state;
    const struct pile piles[] = {{0, 20, 500, 1}, {0, 1, 1000000, 1}, {0, 20, 500, 1}};
    struct run r = build(piles, 3);
    assert_true(r.largest_step < 0.02 && r.worst_share < 0.02 && r.worst_left < 0.02);
}

static void test_packed_files(void **state) {
    (void)state;
    const struct pile piles[] = {{1, 300, 4000, 3.5}};
    struct run r = build(piles, 1);
    assert_true(r.largest_step < 0.05 && r.worst_share < 0.05 && r.worst_left < 0.05);
}

/* Kinds that come one after the other and give different amounts of text: with what is known of them the share stays
 * near the truth from the beginning. */
static void test_kinds_with_priors(void **state) {
    (void)state;
    const struct pile piles[] = {{2, 50, 20000, 0.5}, {1, 300, 4000, 3.5}};
    struct run r = {0};
    r = build(piles, 2);
    double without = r.worst_share;
    struct estimate known = {0};
    estimate_start(&known, 0);
    estimate_set_prior(&known, 2, 0.6);
    estimate_set_prior(&known, 1, 3);
    for (int i = 0; i < 50; i++) estimate_expect(&known, 2, 20000);
    for (int i = 0; i < 300; i++) estimate_expect(&known, 1, 4000);
    for (int i = 0; i < 50; i++) {
        estimate_read(&known, 2, 20000, 10000);
        estimate_done(&known, 10000, 10 * (i + 1));
    }
    double truth = 500000.0 / (500000 + 4200000);
    assert_true(without > 0.1);
    assert_true(fabs(estimate_share(&known) - truth) < 0.03);
}

/* Skipped files and copies take their part out of the rest. */
static void test_files_without_text(void **state) {
    (void)state;
    const struct pile piles[] = {{0, 100, 1000, 1}, {0, 100, 1000, 0}, {0, 100, 1000, 1}};
    struct run r = build(piles, 3);
    assert_true(r.worst_share < 0.25 && r.last_share == 1);
}

/* A machine that becomes half as fast: what is left follows within two minutes. */
static void test_rate_follows(void **state) {
    (void)state;
    struct estimate t = {0};
    estimate_start(&t, 0);
    estimate_expect(&t, 0, 10000000);
    estimate_read(&t, 0, 10000000, 10000000);
    double now = 0;
    for (int i = 0; i < 1000; i++) estimate_done(&t, 1000, now += 1);
    assert_true(fabs(estimate_left(&t) - 9000) < 10);
    for (int i = 0; i < 120; i++) estimate_done(&t, 500, now += 1);
    assert_true(fabs(estimate_left(&t) - 17880) < 2500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_large_file),    cmocka_unit_test(test_packed_files),
        cmocka_unit_test(test_kinds_with_priors), cmocka_unit_test(test_files_without_text),
        cmocka_unit_test(test_rate_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
