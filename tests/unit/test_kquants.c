/* tests/unit/test_kquants.c: super-blocks of GGUF against what the package `gguf` reads in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants the headers above first. */
#include <cmocka.h>

#include "kernels/cpu/super_image.h"
#include "tests/unit/kquants_reference.h"

static void test_widen(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(kquants_reference); i++) {
        const enum dtype dtype = kquants_reference[i].dtype;
        const size_t bytes = super_block_bytes(dtype);
        char twice[2 * 210 + 1]; /* at an odd address: files align nothing */
        float found[2 * SUPER_BLOCK];
        for (size_t k = 0; k < 2; k++)
            memcpy(twice + 1 + k * bytes, kquants_reference[i].raw, bytes);
        kquants_widen(found, dtype, twice + 1, 2 * SUPER_BLOCK);
        for (int k = 0; k < 2 * SUPER_BLOCK; k++)
            if (found[k] != kquants_reference[i].wide[k % SUPER_BLOCK])
                fail_msg("%s %d: %.9g, expected %.9g", dtype_name(dtype), k, (double)found[k],
                         (double)kquants_reference[i].wide[k % SUPER_BLOCK]);
    }
}

static void test_sizes(void **state) {
    (void)state;
    assert_int_equal(matrix_bytes(DTYPE_Q4_K, 1024), 4 * 144);
    assert_int_equal(matrix_bytes(DTYPE_Q5_K, 256), 176);
    assert_int_equal(matrix_bytes(DTYPE_Q6_K, 512), 2 * 210);
    assert_int_equal(packed_super_bytes(DTYPE_Q4_K), 16 * 144); /* packing adds nothing */
    assert_int_equal(packed_super_bytes(DTYPE_Q5_K), 16 * 176);
    assert_true(packed_super_bytes(DTYPE_Q6_K) * 100 <= 16 * 210 * 101);
    assert_true(super_image_words(DTYPE_Q6_K) == SUPER_IMAGE_WORDS);
    for (int t = DTYPE_Q4_K; t <= DTYPE_Q6_K; t++) {
        enum dtype parsed;
        assert_true(dtype_quantised((enum dtype)t) && dtype_block((enum dtype)t) == SUPER_BLOCK);
        assert_false(
            dtype_parse(&parsed, dtype_name((enum dtype)t))); /* nothing is converted to them */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_widen), cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
