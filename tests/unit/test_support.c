/* tests/unit/test_support.c: the figure of support. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/base/base.h"
#include "server/host/prompt/support.h"

static double value_of(const double *gains, int n) {
    struct support support = {0};
    for (int i = 0; i < n; i++) support_add(&support, gains[i] - 3, -3);
    return support_value(&support);
}

static void expect(double value, double wanted) {
    if (!(fabs(value - wanted) < 1e-12)) fail_msg("%.15g, expected %.15g", value, wanted);
}

static void test_few_tokens(void **state) {
    (void)state;
    const double twice[] = {log(4), 0, log(2)}, less[] = {-1, -2}, same[] = {0};
    expect(value_of(twice, 3), 0.5);
    expect(value_of(twice, 1), 0.75);
    expect(value_of(less, 2), 0);
    expect(value_of(same, 1), 0);
}

/* Wherever it stands. */
static void test_the_weakest_stretch(void **state) {
    (void)state;
    for (int at = 0; at + SUPPORT_STRETCH <= 30; at++) {
        double gains[30];
        for (int i = 0; i < 30; i++)
            gains[i] = i >= at && i < at + SUPPORT_STRETCH ? log(2) : log(2) + 1;
        expect(value_of(gains, 30), 0.5);
    }
}

static void test_one_false_word(void **state) {
    (void)state;
    double gains[20];
    for (int i = 0; i < 20; i++) gains[i] = 1;
    expect(value_of(gains, 20), 1 - exp(-1));
    gains[19] = 1 - SUPPORT_STRETCH;
    expect(value_of(gains, 20), 0);
    gains[19] = 1;
    gains[0] = -6;
    expect(value_of(gains, 20), 1 - exp(-1.0 / SUPPORT_STRETCH));
}

/* A token that cannot be without what was read, and one that nothing makes likely. */
static void test_bounds(void **state) {
    (void)state;
    const double most[] = {900}, least[] = {-900, 900, -900};
    expect(value_of(most, 1), 1);
    expect(value_of(least, 3), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_tokens), cmocka_unit_test(test_the_weakest_stretch),
        cmocka_unit_test(test_one_false_word), cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
