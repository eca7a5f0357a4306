/* tests/unit/test_pace.c: the speed that is learnt from steps of known cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/schedule/pace.h"

static void assert_near(double value, double expected, double part) {
    if (!(value > expected * (1 - part) && value < expected * (1 + part)))
        fail_msg("%g, expected %g within %g of it", value, expected, part);
}

static void test_nothing_is_known(void **state) {
    struct pace p = {0};
    (void)state;
    assert_true(pace_seconds(&p, (struct workload){1000, 1000}) == 0);
    pace_note(&p, (struct workload){0, 0}, 1);
    assert_true(p.prompt == 0 && p.answer == 0);
}

static void test_one_kind(void **state) {
    struct pace p = {0};
    (void)state;
    pace_note(&p, (struct workload){.answer = 8}, 0.04);
    assert_near(pace_seconds(&p, (struct workload){.answer = 100}), 0.5, 1e-6);
    for (int i = 0; i < 100; i++) pace_note(&p, (struct workload){.answer = 8}, 0.08);
    assert_near(pace_seconds(&p, (struct workload){.answer = 100}), 1, 0.01);
}

/* Steps of prompts, of answers and of both: each kind's own cost comes out. */
static void test_both_kinds(void **state) {
    struct pace p = {0};
    const double prompt = 0.0005, answer = 0.01;
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct workload done = {.prompt = i % 3 == 0   ? 512
                                          : i % 3 == 1 ? 64
                                                       : 0,
                                .answer = i % 3 == 0 ? 0 : 7};
        pace_note(&p, done, (double)done.prompt * prompt + (double)done.answer * answer);
    }
    assert_near(p.prompt, prompt, 0.1);
    assert_near(p.answer, answer, 0.1);
}

/* One step that took a second more than it should moves the estimate by less than half. */
static void test_a_hiccup(void **state) {
    struct pace p = {0};
    (void)state;
    for (int i = 0; i < 50; i++) pace_note(&p, (struct workload){.answer = 1}, 0.01);
    pace_note(&p, (struct workload){.answer = 1}, 1);
    assert_near(p.answer, 0.01, 0.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_known),
        cmocka_unit_test(test_one_kind),
        cmocka_unit_test(test_both_kinds),
        cmocka_unit_test(test_a_hiccup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
