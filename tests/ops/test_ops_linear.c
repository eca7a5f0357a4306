/* tests/ops/test_ops_linear.c: linear and embed against double loops, over awkward sizes, dtypes
 * and variants, and the promise that a row's result does not depend on the batch or the number of
 * threads. */
#include "tests/ops/ops.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

/* A weight packed from random f32 values, and those values as the packed dtype holds them. */
struct matrix {
    struct weight weight;
    float *values;
};

static struct matrix random_matrix(struct backend *b, enum dtype dtype, int n_out, int n_in) {
    size_t n = (size_t)n_out * (size_t)n_in;
    struct matrix m = {.weight = {.dtype = dtype, .n_out = n_out, .n_in = n_in},
                       .values = random_array(n)};
    assert_int_equal(backend_pack(b, &m.weight, &(struct host_matrix){.values = m.values}, NULL),
                     STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        uint32_t stored = 0;
        dtype_convert(&stored, dtype, &m.values[i], DTYPE_F32, 1);
        dtype_convert(&m.values[i], DTYPE_F32, &stored, dtype, 1);
    }
    return m;
}

static void free_matrix(struct backend *b, struct matrix *m) {
    backend_release(b, m->weight.data);
    free(m->values);
}

static double activated(double x, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: return x;
        case ACTIVATION_GELU_TANH:
            return 0.5 * x * (1 + tanh(0.79788456 * x * (1 + 0.044715 * x * x)));
        case ACTIVATION_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
        case ACTIVATION_SILU: return x / (1 + exp(-x));
        case ACTIVATION_RELU: return x > 0 ? x : 0;
        case ACTIVATION_RELU_SQUARED: return x > 0 ? x * x : 0;
        case ACTIVATION_QUICK_GELU: return x / (1 + exp(-1.702 * x));
        case ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    }
    return NAN;
}

/* Variants that round activations to bf16 where the weight is bf16, as kernels/backend.h allows. */
static bool rounds_activations(const struct backend *b, const struct weight *w) {
    bool rounds =
        strstr(backend_describe(b), "bf16") != NULL || strstr(backend_describe(b), "amx") != NULL;
    return w->dtype == DTYPE_BF16 && rounds;
}

/* A chain of n f32 additions is off by at most n / 2 ulp of the sum of magnitudes and in practice
 * by its square root; the activation multiplies that by its slope and adds 1e-6 of its own. */
static void check_linear(const struct linear_args *a, const float *w, bool rounded) {
    int n_in = a->x.cols;
    for (int i = 0; i < a->x.rows; i++)
        for (int j = 0; j < a->y.cols; j++) {
            double sum = a->bias == NULL ? 0 : a->bias[j], magnitude = fabs(sum);
            for (int k = 0; k < n_in; k++) {
                float x = tensor_get(a->x, i, k);
                double product = (double)(rounded ? bf16_to_f32(f32_to_bf16(x)) : x);
                product *= w[(size_t)j * (size_t)n_in + (size_t)k];
                sum += product;
                magnitude += fabs(product);
            }
            double slope = a->activation == ACTIVATION_RELU_SQUARED ? 2 * fabs(sum) + 1 : 1.2;
            double expected = activated(sum, a->activation), found = tensor_get(a->y, i, j);
            double bound =
                6e-8 * (sqrt(n_in) + 4) * magnitude * slope + 1e-6 * (1 + fabs(expected));
            if (!(fabs(found - expected) <= bound))
                fail_msg("rows %d n_out %d n_in %d (%d, %d): %.9g, expected %.9g", a->x.rows,
                         a->y.cols, n_in, i, j, found, expected);
        }
}

static void run_linear(struct backend *b, enum dtype dtype, int rows, const int shape[2],
                       int round) {
    struct matrix m = random_matrix(b, dtype, shape[0], shape[1]);
    struct linear_args a = random_linear(&m.weight, rows, round);
    a.activation = (enum activation)(round % (ACTIVATION_SIGMOID + 1));
    backend_linear(b, &a);
    check_linear(&a, m.values, rounds_activations(b, &m.weight));
    assert_gaps_untouched(a.y);
    free_linear(&a);
    free_matrix(b, &m);
}

static void linear_sizes(struct backend *b) {
    static const int sizes[] = {1, 3, 7, 16, 17, 33, 64, 127, 192, 257, 768, -1};
    static const int rows[] = {0, 1, 2, 3, 5, 7, 8, 16, 17, 63, 64, 70, -1};
    sweep_linear(b, &(struct linear_sweep){sizes, sizes, rows, DTYPE_F32, DTYPE_BF16, {127, 33}},
                 run_linear);
}

static void test_linear(void **state) {
    (void)state;
    for_each_variant(linear_sizes, 2);
}

/* In shapes that leave every kind of tail; also where products are too small for normal floats. */
static void linear_batches(struct backend *b) {
    static const int shapes[][2] = {{257, 127}, {64, 768}, {33, 192}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
        for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
            struct matrix m = random_matrix(b, dtypes[d], shapes[s][0], shapes[s][1]);
            check_batches(b, &m.weight, 1);
            check_batches(b, &m.weight, 0x1p-124f);
            free_matrix(b, &m);
        }
}

static void test_linear_batch_invariance(void **state) {
    (void)state;
    for_each_variant(linear_batches, 2);
}

/* As many rows of f32 as have kernels of their own: each is what it is alone, also where the rows
 * are too deep to be taken at once. */
static void linear_many(struct backend *b) {
    static const int shapes[][2] = {{1, 1}, {33, 129}, {64, 96}, {17, 2}, {3, 5003}};
    static const int rows[] = {127, 128, 131, 143};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
        for (size_t k = 0; k < ARRAY_COUNT(rows); k++) {
            struct matrix m = random_matrix(b, DTYPE_F32, shapes[s][0], shapes[s][1]);
            struct linear_args all = random_linear(&m.weight, rows[k], (int)k);
            struct linear_args one = all;
            one.y = padded_tensor(DTYPE_F32, 1, all.y.cols, 0);
            backend_linear(b, &all);
            check_linear(&all, m.values, false);
            assert_gaps_untouched(all.y);
            for (int i = 0; i < rows[k]; i++) {
                one.x = tensor_rows(all.x, i, 1);
                backend_linear(b, &one);
                assert_rows_equal(one.y, 0, all.y, i);
            }
            free(one.y.data);
            free_linear(&all);
            free_matrix(b, &m);
        }
}

static void test_linear_many_rows(void **state) {
    (void)state;
    for_each_variant(linear_many, 2);
}

/* Heads of a call are the products of each by itself, bit by bit, in any batch; what is kept is
 * copied. */
static void check_heads(struct backend *b, enum dtype dtype, int rows, const int shape[4]) {
    int heads = shape[0], n_out = shape[1], n_in = shape[2], kept = shape[3], spare = rows % 3;
    int from = n_in + kept + spare, to = n_out + kept;
    struct matrix *m = xcalloc((size_t)heads, sizeof *m);
    struct weight *weights = xcalloc((size_t)heads, sizeof *weights);
    for (int i = 0; i < heads; i++) {
        m[i] = random_matrix(b, dtype, n_out, n_in);
        weights[i] = m[i].weight;
    }
    struct linear_heads_args a = {.x = random_tensor(DTYPE_F32, rows, heads * from, rows % 2),
                                  .y = padded_tensor(DTYPE_F32, rows, heads * to, 3),
                                  .weights = weights,
                                  .heads = heads,
                                  .kept = kept};
    struct tensor one = padded_tensor(DTYPE_F32, 1, n_out, 0);
    backend_linear_heads(b, &a);
    assert_gaps_untouched(a.y);
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < heads; h++) {
            struct tensor x = tensor_slice(a.x, i, 1, h * from, n_in);
            backend_linear(b, &(struct linear_args){.y = one, .x = x, .weight = &weights[h]});
            assert_memory_equal(tensor_at(a.y, i, h * to), one.data, (size_t)n_out * sizeof(float));
            assert_memory_equal(tensor_at(a.y, i, h * to + n_out),
                                tensor_at(a.x, i, h * from + n_in), (size_t)kept * sizeof(float));
        }
    for (int i = 0; i < heads; i++) free_matrix(b, &m[i]);
    free(m);
    free(weights);
    free(a.x.data);
    free(a.y.data);
    free(one.data);
}

static void linear_heads(struct backend *b) {
    static const int rows[] = {0, 1, 2, 4, 5, 17, 70, 140};
    static const int shapes[][4] = {{1, 1, 1, 0}, {4, 24, 12, 8}, {3, 20, 24, 0}, {16, 128, 64, 0}};
    for (size_t r = 0; r < ARRAY_COUNT(rows); r++)
        for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
            check_heads(b, dtypes[(r + s) % ARRAY_COUNT(dtypes)], rows[r], shapes[s]);
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
        check_heads(b, dtypes[d], 1, (const int[]){16, 512, 128, 64});
}

static void test_linear_heads(void **state) {
    (void)state;
    for_each_variant(linear_heads, 1);
    for_each_variant(linear_heads, 3);
}

/* One fixed problem, larger than what stays on one thread; filled by the first thread count,
 * compared by the others. */
static float *one_thread;
static size_t one_thread_size;

static void linear_fixed(struct backend *b) {
    enum { N_OUT = 401, N_IN = 129, ROWS = 9 };
    float *w = xmalloc(N_OUT * N_IN * sizeof *w), *x = xmalloc(ROWS * N_IN * sizeof *x);
    float *y = xcalloc(ROWS * N_OUT, sizeof *y);
    for (int i = 0; i < N_OUT * N_IN; i++) w[i] = sinf((float)i);
    for (int i = 0; i < ROWS * N_IN; i++) x[i] = cosf((float)i);
    struct weight weight = {.dtype = DTYPE_BF16, .n_out = N_OUT, .n_in = N_IN};
    assert_int_equal(backend_pack(b, &weight, &(struct host_matrix){.values = w}, NULL), STATUS_OK);
    backend_linear(b, &(struct linear_args){.y = tensor_make(y, DTYPE_F32, ROWS, N_OUT),
                                            .x = tensor_make(x, DTYPE_F32, ROWS, N_IN),
                                            .weight = &weight,
                                            .activation = ACTIVATION_SILU});
    size_t bytes = ROWS * N_OUT * sizeof *y;
    one_thread = xrealloc(one_thread, one_thread_size + bytes);
    memcpy((char *)one_thread + one_thread_size, y, bytes);
    one_thread_size += bytes;
    backend_release(b, weight.data);
    free(w);
    free(x);
    free(y);
}

static void test_linear_threads(void **state) {
    (void)state;
    for_each_variant(linear_fixed, 1);
    float *reference = one_thread;
    size_t size = one_thread_size;
    for (int threads = 2; threads <= 5; threads++) {
        one_thread = NULL;
        one_thread_size = 0;
        for_each_variant(linear_fixed, threads);
        assert_int_equal(one_thread_size, size);
        assert_memory_equal(one_thread, reference, size);
        free(one_thread);
    }
    free(reference);
}

/* Weights of every host dtype, and the packed rows that embed reads back, are the values put in. */
static void embed_rows(struct backend *b) {
    enum { VOCABULARY = 37, DIM = 19, ROWS = 50 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
        for (size_t h = 0; h < ARRAY_COUNT(dtypes); h++) {
            struct tensor host = random_tensor(dtypes[h], VOCABULARY, DIM, 0);
            struct weight word = {.dtype = dtypes[d], .n_out = VOCABULARY, .n_in = DIM};
            const struct host_matrix matrix = {.values = host.data, .dtype = dtypes[h]};
            assert_int_equal(backend_pack(b, &word, &matrix, NULL), STATUS_OK);
            struct tensor position = random_tensor(DTYPE_F32, 11, DIM, 2),
                          type = random_tensor(DTYPE_F32, 2, DIM, 0);
            struct tensor y = padded_tensor(DTYPE_F32, ROWS, DIM, 3);
            int32_t ids[ROWS], positions[ROWS];
            for (int i = 0; i < ROWS; i++) {
                ids[i] = i < VOCABULARY ? i : random_int(VOCABULARY);
                positions[i] = random_int(11);
            }
            for (int with = 0; with < 4; with++) {
                backend_embed(b, &(struct embed_args){.y = y,
                                                      .word = &word,
                                                      .position = with & 1 ? &position : NULL,
                                                      .type = with & 2 ? &type : NULL,
                                                      .ids = ids,
                                                      .positions = positions});
                for (int i = 0; i < ROWS; i++)
                    for (int k = 0; k < DIM; k++) {
                        uint32_t stored = 0;
                        float value;
                        dtype_convert(&stored, dtypes[d], tensor_at(host, ids[i], k), dtypes[h], 1);
                        dtype_convert(&value, DTYPE_F32, &stored, dtypes[d], 1);
                        if (with & 1) value += tensor_get(position, positions[i], k);
                        if (with & 2) value += tensor_get(type, 0, k);
                        assert_true(value == tensor_get(y, i, k));
                    }
            }
            assert_gaps_untouched(y);
            backend_release(b, word.data);
            free(host.data);
            free(position.data);
            free(type.data);
            free(y.data);
        }
}

static void test_embed(void **state) {
    (void)state;
    for_each_variant(embed_rows, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),           cmocka_unit_test(test_linear_batch_invariance),
        cmocka_unit_test(test_linear_many_rows), cmocka_unit_test(test_linear_heads),
        cmocka_unit_test(test_linear_threads),   cmocka_unit_test(test_embed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
