/* tests/ops/test_ops_variant.c: which kernels a processor gets: the best that it runs, and the ones
 * that EXPECTED_KERNELS names, where tests/arm64.sh has chosen the processor. */
#include "tests/ops/ops.h"

static const char *best_variant(void) {
    int i = 0;
    while (!cpu_supports(cpu_variants[i])) i++;
    return cpu_variants[i]->name;
}

static void test_best_variant(void **state) {
    (void)state;
    const char *expected = getenv("EXPECTED_KERNELS");
    char words[64];
    struct backend *b;
    assert_int_equal(backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, NULL),
                     STATUS_OK);
    snprintf(words, sizeof words, "cpu %s, 1 thread", expected ? expected : best_variant());
    assert_string_equal(backend_describe(b), words);
    backend_close(b);
}

/* Every table has a name that RETRO_CPU and the tests of operations know. */
static void test_names(void **state) {
    (void)state;
    for (int i = 0; cpu_variants[i] != NULL; i++) {
        int j = 0;
        while (cpu_variant_names[j] != NULL &&
               strcmp(cpu_variants[i]->name, cpu_variant_names[j]) != 0)
            j++;
        assert_non_null(cpu_variant_names[j]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_variant),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
