/* tests/ops/test_ops_supers.c: linear and embed with Q4_K, Q5_K and Q6_K weights: every variant
 * against double loops over the super-blocks as files hold them, the extremes where sums could
 * saturate, a row alone against a row in a batch, and the error that rounding x brings. */
#include "kernels/cpu/variants.h"
#include "tests/ops/ops.h"

static const enum dtype dtypes[] = {DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

/* A host matrix and what it packs into. */
struct super_matrix {
    struct weight weight;
    uint8_t *raw;
    struct super_block *blocks; /* [n_out, n_in / SUPER_BLOCK] */
};

static size_t count_blocks(const struct weight *w) {
    return (size_t)w->n_out * (size_t)w->n_in / SUPER_BLOCK;
}

static struct super_matrix new_matrix(enum dtype dtype, int n_out, int n_in) {
    struct super_matrix m = {.weight = {.dtype = dtype, .n_out = n_out, .n_in = n_in}};
    m.raw = xcalloc(count_blocks(&m.weight), super_block_bytes(dtype));
    m.blocks = xcalloc(count_blocks(&m.weight), sizeof *m.blocks);
    return m;
}

static void pack_matrix(struct backend *b, struct super_matrix *m) {
    const enum dtype dtype = m->weight.dtype;
    for (size_t i = 0; i < count_blocks(&m->weight); i++)
        super_block_read(&m->blocks[i], dtype, m->raw + i * super_block_bytes(dtype));
    struct host_matrix host = {.values = m->raw, .dtype = dtype};
    assert_int_equal(backend_pack(b, &m->weight, &host, NULL), STATUS_OK);
}

static struct super_matrix random_matrix(struct backend *b, enum dtype dtype, int n_out, int n_in) {
    struct super_matrix m = new_matrix(dtype, n_out, n_in);
    random_supers(m.raw, dtype, count_blocks(&m.weight));
    pack_matrix(b, &m);
    return m;
}

static void free_matrix(struct backend *b, struct super_matrix *m) {
    backend_release(b, m->weight.data);
    free(m->raw);
    free(m->blocks);
}

/* One super-block of x as kernels/backend.h says it is rounded. */
static float round_super(int q[SUPER_BLOCK], const float *x) {
    float largest = 0;
    for (int k = 0; k < SUPER_BLOCK; k++) largest = fmaxf(largest, fabsf(x[k]));
    for (int k = 0; k < SUPER_BLOCK; k++)
        q[k] = largest < 1e-30f ? 0 : (int)rintf(x[k] * (127 / largest));
    return largest < 1e-30f ? 0 : largest / 127;
}

/* Element (row of x, column j): the value, and the sum of magnitudes that its rounding errors are
 * relative to. */
static double expect(const struct super_matrix *m, const float *x, int j, double *magnitude) {
    const enum dtype dtype = m->weight.dtype;
    const int part = super_part(dtype), centre = dtype == DTYPE_Q6_K ? KQUANT_CENTRE : 0;
    double sum = 0;
    for (int s = 0; s < m->weight.n_in / SUPER_BLOCK; s++) {
        const struct super_block *w = &m->blocks[j * (m->weight.n_in / SUPER_BLOCK) + s];
        int q[SUPER_BLOCK];
        double scale = (double)round_super(q, x + s * SUPER_BLOCK);
        for (int p = 0; p < SUPER_BLOCK / part; p++) {
            int dot = 0, total = 0;
            for (int k = p * part; k < (p + 1) * part; k++) {
                dot += (w->q[k] - centre) * q[k];
                total += q[k];
            }
            double product = scale * (double)f16_to_f32(w->d) * w->scales[p] * dot;
            double rest = scale * (double)f16_to_f32(w->dmin) * w->minimums[p] * total;
            sum += product - rest;
            *magnitude += fabs(product) + fabs(rest);
        }
    }
    return sum;
}

static void check_linear(const struct linear_args *a, const struct super_matrix *m) {
    for (int i = 0; i < a->x.rows; i++)
        for (int j = 0; j < a->y.cols; j++) {
            double bias = a->bias == NULL ? 0 : a->bias[j], magnitude = fabs(bias);
            double expected = bias + expect(m, tensor_at(a->x, i, 0), j, &magnitude),
                   found = tensor_get(a->y, i, j);
            if (a->activation == ACTIVATION_RELU && expected < 0) expected = 0;
            if (!(fabs(found - expected) <= 6e-8 * (sqrt(a->x.cols) + 4) * magnitude))
                fail_msg("%s rows %d n_out %d n_in %d (%d, %d): %.9g, expected %.9g",
                         dtype_name(m->weight.dtype), a->x.rows, a->y.cols, a->x.cols, i, j, found,
                         expected);
        }
}

static void run_linear(struct backend *b, enum dtype dtype, int rows, const int shape[2],
                       int round) {
    struct super_matrix m = random_matrix(b, dtype, shape[0], shape[1]);
    struct linear_args a = random_linear(&m.weight, rows, round);
    if (round % 5 == 0) a.activation = ACTIVATION_RELU;
    backend_linear(b, &a);
    check_linear(&a, &m);
    assert_gaps_untouched(a.y);
    free_linear(&a);
    free_matrix(b, &m);
}

static void linear_sizes(struct backend *b) {
    static const int outs[] = {1, 8, 15, 16, 17, 33, 64, 127, -1},
                     ins[] = {256, 512, 1280, 2560, -1};
    static const int rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17, 31, -1};
    sweep_linear(b, &(struct linear_sweep){outs, ins, rows, DTYPE_Q4_K, DTYPE_Q6_K, {79, 256}},
                 run_linear);
}

static void test_linear(void **state) {
    (void)state;
    for_each_variant(linear_sizes, 2);
}

static void linear_batches(struct backend *b) {
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = random_matrix(b, dtypes[d], 57, 1536);
        check_batches(b, &m.weight, 1);
        free_matrix(b, &m);
    }
}

static void test_linear_batch_invariance(void **state) {
    (void)state;
    for_each_variant(linear_batches, 2);
}

/* More rows than the buffer of rounded activations holds: cut in parts, and the rows agree with
 * those of a part. */
static void linear_many(struct backend *b) {
    enum { N_IN = 16384, ROWS = 130, N_OUT = 5 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = random_matrix(b, dtypes[d], N_OUT, N_IN);
        assert_true(ROWS * (N_IN / SUPER_BLOCK) * sizeof(struct super_input) > INPUT_BYTES);
        struct linear_args all = {.x = random_tensor(DTYPE_F32, ROWS, N_IN, 0),
                                  .y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0),
                                  .weight = &m.weight};
        struct linear_args one = all;
        one.y = padded_tensor(DTYPE_F32, 1, N_OUT, 0);
        backend_linear(b, &all);
        for (int i = 0; i < ROWS; i += 9) {
            one.x = tensor_rows(all.x, i, 1);
            backend_linear(b, &one);
            assert_rows_equal(one.y, 0, all.y, i);
        }
        free(all.x.data);
        free(all.y.data);
        free(one.y.data);
        free_matrix(b, &m);
    }
}

static void test_linear_many_rows(void **state) {
    (void)state;
    for_each_variant(linear_many, 2);
}

/* Weights, scales and activations at their ends, in every combination of signs along K: x of +-127
 * has the scale 1, and d is so small that chains stay exact: results are integers times it. */
static void linear_extremes(struct backend *b) {
    enum { N_OUT = 33, N_IN = 512, ROWS = 7, PATTERNS = 6 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            const enum dtype dtype = dtypes[d];
            struct super_matrix m = new_matrix(dtype, N_OUT, N_IN);
            size_t bytes = super_block_bytes(dtype);
            uint16_t one = f32_to_f16(1);
            for (size_t i = 0; i < count_blocks(&m.weight); i++) {
                uint8_t *block = m.raw + i * bytes;
                memset(block, pattern % 3 == 0 ? 0 : pattern % 3 == 1 ? 0xff : 0xf0, bytes);
                if (dtype == DTYPE_Q6_K)
                    memset(block + 192, (int)(i & 1) ? -128 : 127, SUPER_PARTS);
                else
                    memset(block + 4, pattern < 3 ? 0xff : 0, 12);
                memcpy(super_scale_at(dtype, block), &one, sizeof one);
                if (dtype != DTYPE_Q6_K) memcpy(block + 2, &one, sizeof one);
            }
            pack_matrix(b, &m);
            struct linear_args a = {.x = padded_tensor(DTYPE_F32, ROWS, N_IN, 0),
                                    .y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0),
                                    .weight = &m.weight};
            for (int i = 0; i < ROWS; i++)
                for (int k = 0; k < N_IN; k++)
                    tensor_set(a.x, i, k,
                               i == 1 || (i > 1 && (k >> (i - 2) & 1)) ? -127.0f : 127.0f);
            backend_linear(b, &a);
            check_linear(&a, &m);
            free_linear(&a);
            free_matrix(b, &m);
        }
}

static void test_linear_extremes(void **state) {
    (void)state;
    for_each_variant(linear_extremes, 1);
}

/* The same product on every variant but generic, which does not fuse: the first fills `vectors`,
 * the others compare. */
static float *vectors;

static void linear_agrees(struct backend *b) {
    enum { N_OUT = 75, N_IN = 1536, ROWS = 9 };
    if (strstr(backend_describe(b), "generic") != NULL) return;
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = new_matrix(dtypes[d], N_OUT, N_IN);
        size_t bytes = super_block_bytes(dtypes[d]);
        for (size_t i = 0; i < count_blocks(&m.weight); i++) {
            uint16_t scale = f32_to_f16(sinf((float)i));
            for (size_t k = 0; k < bytes; k++) m.raw[i * bytes + k] = (uint8_t)(i * 31 + k * k * 7);
            memcpy(super_scale_at(dtypes[d], m.raw + i * bytes), &scale, sizeof scale);
            if (dtypes[d] != DTYPE_Q6_K) memcpy(m.raw + i * bytes + 2, &scale, sizeof scale);
        }
        pack_matrix(b, &m);
        struct tensor x = padded_tensor(DTYPE_F32, ROWS, N_IN, 0),
                      y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0);
        for (int i = 0; i < ROWS * N_IN; i++) tensor_set(x, 0, i, cosf((float)i));
        backend_linear(b, &(struct linear_args){.y = y, .x = x, .weight = &m.weight});
        size_t size = ROWS * N_OUT * sizeof *vectors;
        if (vectors == NULL) vectors = xcalloc(ARRAY_COUNT(dtypes), size);
        float *kept = vectors + d * ROWS * N_OUT;
        if (kept[0] == 0) memcpy(kept, y.data, size);
        assert_true(kept[0] != 0);
        assert_memory_equal(kept, y.data, size);
        free(x.data);
        free(y.data);
        free_matrix(b, &m);
    }
}

static void test_linear_variants(void **state) {
    (void)state;
    for_each_variant(linear_agrees, 1);
    free(vectors);
}

/* Zeros stay zero, tiny numbers vanish, and what is not finite makes its own row NaN and no other.
 */
static void linear_special(struct backend *b) {
    enum { N_OUT = 19, N_IN = 512, ROWS = 8 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = random_matrix(b, dtypes[d], N_OUT, N_IN);
        struct tensor x = random_tensor(DTYPE_F32, ROWS, N_IN, 0),
                      y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0);
        for (int k = 0; k < N_IN; k++) {
            tensor_set(x, 1, k, 0);
            tensor_set(x, 2, k, 1e-39f);
        }
        tensor_set(x, 3, 40, NAN);
        tensor_set(x, 4, 511, INFINITY);
        tensor_set(x, 5, 0, -INFINITY);
        backend_linear(b, &(struct linear_args){.y = y, .x = x, .weight = &m.weight});
        for (int j = 0; j < N_OUT; j++) {
            for (int i = 1; i <= 2; i++) assert_true(tensor_get(y, i, j) == 0);
            for (int i = 3; i <= 5; i++) assert_true(isnan(tensor_get(y, i, j)));
            assert_true(isfinite(tensor_get(y, 0, j)) && isfinite(tensor_get(y, 7, j)));
        }
        free(x.data);
        free(y.data);
        free_matrix(b, &m);
    }
}

static void test_linear_special(void **state) {
    (void)state;
    for_each_variant(linear_special, 1);
}

/* Against x as it is: each x is off by at most 1 / 254 of its super-block's largest. */
static void linear_error(struct backend *b) {
    enum { N_OUT = 16, N_IN = 1024, ROWS = 7 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = random_matrix(b, dtypes[d], N_OUT, N_IN);
        struct linear_args a = random_linear(&m.weight, ROWS, 0);
        float *w = xcalloc(N_IN, sizeof *w);
        backend_linear(b, &a);
        for (int j = 0; j < N_OUT; j++) {
            kquants_widen(w, dtypes[d],
                          m.raw + (size_t)j * (N_IN / SUPER_BLOCK) * super_block_bytes(dtypes[d]),
                          N_IN);
            for (int i = 0; i < ROWS; i++) {
                double sum = 0, bound = 0;
                for (int s = 0; s < N_IN; s += SUPER_BLOCK) {
                    double largest = 0, weights = 0;
                    for (int k = s; k < s + SUPER_BLOCK; k++) {
                        sum += (double)w[k] * (double)tensor_get(a.x, i, k);
                        largest = fmax(largest, fabs((double)tensor_get(a.x, i, k)));
                        weights += fabs((double)w[k]);
                    }
                    bound += largest / 254 * weights;
                }
                assert_true(fabs(sum - (double)tensor_get(a.y, i, j)) <= bound * (1 + 1e-4));
            }
        }
        free(w);
        free_linear(&a);
        free_matrix(b, &m);
    }
}

static void test_linear_error(void **state) {
    (void)state;
    for_each_variant(linear_error, 1);
}

/* The variants round activations alike, to the bit. */
static void test_quantise(void **state) {
    (void)state;
    enum { SUPERS = 64 };
    float *x = random_array(SUPERS * SUPER_BLOCK);
    for (int s = 0; s < SUPERS; s++)
        for (int k = 0; k < SUPER_BLOCK; k++)
            x[s * SUPER_BLOCK + k] *= ldexpf(1, 8 * (s - 45) > 100 ? 100 : 8 * (s - 45));
    for (int k = 0; k < SUPER_BLOCK; k++) x[k] = (float)(k % 100) + 0.5f; /* halves round to even */
    x[255] = 127;
    x[5 * SUPER_BLOCK + 3] = NAN;
    x[6 * SUPER_BLOCK + 255] = -INFINITY;
    struct super_input *one = xcalloc(2 * SUPERS, sizeof *one),
                       *other = xcalloc(2 * SUPERS, sizeof *other);
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        quantise_supers_generic(one, 2, x, SUPERS, dtypes[d]);
        for (int v = 0; cpu_variants[v] != NULL; v++) {
            if (!cpu_supports(cpu_variants[v])) continue;
            cpu_variants[v]->quantise_supers(other, 2, x, SUPERS, dtypes[d]);
            for (int s = 0; s < 2 * SUPERS; s++) {
                assert_memory_equal(one[s].q, other[s].q, SUPER_BLOCK);
                assert_memory_equal(one[s].offsets, other[s].offsets, sizeof one[s].offsets);
                assert_true(one[s].scale == other[s].scale ||
                            (isnan(one[s].scale) && isnan(other[s].scale)));
            }
        }
        assert_int_equal(one[0].q[2], 2);
        assert_int_equal(one[0].q[3], 4);
    }
    free(one);
    free(other);
    free(x);
}

/* Rows read back out of the packed form are those that the file's form widens to. */
static void embed_rows(struct backend *b) {
    enum { VOCABULARY = 37, DIM = 768 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = random_matrix(b, dtypes[d], VOCABULARY, DIM);
        struct tensor y = padded_tensor(DTYPE_F32, VOCABULARY, DIM, 3);
        int32_t ids[VOCABULARY];
        float expected[DIM];
        for (int i = 0; i < VOCABULARY; i++) ids[i] = VOCABULARY - 1 - i;
        backend_embed(b, &(struct embed_args){.y = y, .word = &m.weight, .ids = ids});
        for (int i = 0; i < VOCABULARY; i++) {
            const uint8_t *row =
                m.raw + (size_t)ids[i] * (DIM / SUPER_BLOCK) * super_block_bytes(dtypes[d]);
            kquants_widen(expected, dtypes[d], row, DIM);
            assert_memory_equal(expected, tensor_at(y, i, 0), sizeof expected);
        }
        assert_gaps_untouched(y);
        free(y.data);
        free_matrix(b, &m);
    }
}

static void test_embed(void **state) {
    (void)state;
    for_each_variant(embed_rows, 2);
}

/* Columns past n_out are zeros, and memory that was not clear before is written as a whole. */
static void pack_again(struct backend *b) {
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct super_matrix m = random_matrix(b, dtypes[d], 21, 512);
        size_t bytes = b->ops->packed_bytes(&m.weight);
        assert_int_equal(bytes, 2 * 2 * packed_super_bytes(dtypes[d]));
        for (int lane = 5; lane < TILE_COLUMNS; lane++)
            for (size_t s = 0; s < 2; s++) {
                struct super_block found, zero = {0};
                packed_super_read(&found, dtypes[d], packed_super(&m.weight, 1, s), lane);
                assert_memory_equal(&found, &zero, sizeof zero);
            }
        for (int i = 0; i < 21; i++)
            for (size_t s = 0; s < 2; s++) {
                struct super_block found;
                packed_super_read(&found, dtypes[d], packed_super(&m.weight, i / 16, s), i % 16);
                assert_memory_equal(&found, &m.blocks[(size_t)i * 2 + s], sizeof found);
            }
        free_matrix(b, &m);
    }
}

static void test_pack(void **state) {
    (void)state;
    for_each_variant(pack_again, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_batch_invariance),
        cmocka_unit_test(test_linear_many_rows),
        cmocka_unit_test(test_linear_extremes),
        cmocka_unit_test(test_linear_variants),
        cmocka_unit_test(test_linear_special),
        cmocka_unit_test(test_linear_error),
        cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
