/* tests/ops/test_ops_pairs.c: linear with bf16 weights where kernels take rows in pairs or one by
 * one: a row alone has the bits that it has among others, and is right; small enough for an
 * emulator of BFMMLA. */
#include "tests/ops/ops.h"

enum { ROWS = 19 };

static void check_values(const struct linear_args *a, const float *w, bool rounded) {
    for (int i = 0; i < a->x.rows; i++)
        for (int j = 0; j < a->y.cols; j++) {
            double sum = (double)a->bias[j], magnitude = fabs(sum);
            for (int k = 0; k < a->x.cols; k++) {
                float x = tensor_get(a->x, i, k);
                if (rounded) x = bf16_to_f32(f32_to_bf16(x));
                double product = (double)x * w[(size_t)j * (size_t)a->x.cols + (size_t)k];
                sum += product;
                magnitude += fabs(product);
            }
            double bound = 6e-8 * (sqrt(a->x.cols) + 4) * magnitude;
            assert_true(fabs(tensor_get(a->y, i, j) - sum) <= bound);
        }
}

/* Values near 0x1p-124 have products that are too small for normal floats. */
static void pairs_agree(struct backend *b, const int shape[2], float size) {
    struct weight weight = {.dtype = DTYPE_BF16, .n_out = shape[0], .n_in = shape[1]};
    const size_t n = (size_t)shape[0] * (size_t)shape[1];
    float *values = random_array(n);
    for (size_t i = 0; i < n; i++) values[i] = bf16_to_f32(f32_to_bf16(values[i]));
    const struct host_matrix host = {.values = values};
    assert_int_equal(backend_pack(b, &weight, &host, NULL), STATUS_OK);
    struct linear_args all = random_linear(&weight, ROWS, 1), part = all;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < shape[1]; k++) tensor_set(all.x, i, k, tensor_get(all.x, i, k) * size);
    backend_linear(b, &all);
    if (size == 1) {
        const char *kernels = backend_describe(b);
        check_values(&all, values, strstr(kernels, "bf16") || strstr(kernels, "amx"));
    }
    assert_gaps_untouched(all.y);
    for (int rows = 1; rows <= 9; rows++) {
        part.y = padded_tensor(DTYPE_F32, rows, shape[0], 0);
        for (int first = 0; first + rows <= ROWS; first += rows) {
            part.x = tensor_rows(all.x, first, rows);
            backend_linear(b, &part);
            for (int i = 0; i < rows; i++) assert_rows_equal(part.y, i, all.y, first + i);
        }
        free(part.y.data);
    }
    free_linear(&all);
    backend_release(b, weight.data);
    free(values);
}

/* Depths that are and are not whole steps of an instruction, and more than a panel's. */
static void pairs_sizes(struct backend *b) {
    static const int shapes[][2] = {{1, 1}, {17, 3}, {33, 66}, {40, 64}, {19, 323}, {16, 517}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        pairs_agree(b, shapes[s], 1);
        pairs_agree(b, shapes[s], 0x1p-124f);
    }
}

static void test_pairs(void **state) {
    (void)state;
    for_each_variant(pairs_sizes, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
