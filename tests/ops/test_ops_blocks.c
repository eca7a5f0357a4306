/* tests/ops/test_ops_blocks.c: linear and embed with int8, int4 and MXFP4 weights: every variant
 * against double loops over the integers that the format defines, the extremes where sums could
 * saturate, and a row alone against a row in a batch.
 */
#include "kernels/cpu/variants.h"
#include "kernels/mxfp4.h"
#include "tests/ops/ops.h"

static const enum dtype dtypes[] = {DTYPE_INT8, DTYPE_INT4, DTYPE_MXFP4};

/* A host matrix, what it packs into, and its integers. */
struct matrix {
    struct weight weight;
    struct host_matrix host;
    int8_t *q;                /* [n_out, n_in]; of MXFP4 twice its numbers */
    float *scales, *minimums; /* [n_out, n_in / QUANTISE_BLOCK], as f16 holds them; of MXFP4 powers
                                 of two; minimums but of int4 are 0 */
};

static void *copy_of(const void *from, size_t bytes) { return memcpy(xmalloc(bytes), from, bytes); }

static uint16_t *halves_of(float *values, size_t n) {
    uint16_t *halves = xmalloc(n * sizeof *halves);
    dtype_convert(halves, DTYPE_F16, values, DTYPE_F32, n);
    dtype_convert(values, DTYPE_F32, halves, DTYPE_F16, n);
    return halves;
}

/* Scales of doubled numbers become the powers of two below them, and the bytes that say so. */
static uint8_t *exponents_of(float *scales, size_t n) {
    uint8_t *bytes = xmalloc(n);
    for (size_t i = 0; i < n; i++) {
        int exponent;
        frexpf(scales[i], &exponent);
        bytes[i] = (uint8_t)(exponent - 1 + 128);
        scales[i] = ldexpf(1, exponent - 1);
    }
    return bytes;
}

static int code_of(const struct matrix *m, size_t i) {
    int code = 0;
    if (m->weight.dtype == DTYPE_INT4) return m->q[i];
    while (mxfp4_doubled(code) != m->q[i]) code++;
    return code;
}

/* Packs q, scales and minimums, all of which it takes over. */
static void pack_matrix(struct backend *b, struct matrix *m) {
    size_t n = (size_t)m->weight.n_out * (size_t)m->weight.n_in, blocks = n / QUANTISE_BLOCK;
    uint8_t *values = copy_of(m->q, n);
    bool exponents = m->weight.dtype == DTYPE_MXFP4;
    for (size_t i = 0; dtype_two_a_byte(m->weight.dtype) && i < n / 2; i++)
        values[i] = (uint8_t)(code_of(m, 2 * i) | code_of(m, 2 * i + 1) << 4);
    m->host = (struct host_matrix){.values = values, .dtype = m->weight.dtype};
    if (exponents)
        m->host.exponents = exponents_of(m->scales, blocks);
    else
        m->host.scales = halves_of(m->scales, blocks);
    for (size_t i = 0; i < blocks && m->weight.dtype != DTYPE_INT4; i++) m->minimums[i] = 0;
    if (m->weight.dtype == DTYPE_INT4) m->host.minimums = halves_of(m->minimums, blocks);
    assert_int_equal(backend_pack(b, &m->weight, &m->host, NULL), STATUS_OK);
}

static struct matrix new_matrix(enum dtype dtype, int n_out, int n_in) {
    size_t n = (size_t)n_out * (size_t)n_in;
    return (struct matrix){.weight = {.dtype = dtype, .n_out = n_out, .n_in = n_in},
                           .q = xmalloc(n),
                           .scales = xcalloc(n / QUANTISE_BLOCK, sizeof(float)),
                           .minimums = xcalloc(n / QUANTISE_BLOCK, sizeof(float))};
}

static struct matrix random_matrix(struct backend *b, enum dtype dtype, int n_out, int n_in) {
    struct matrix m = new_matrix(dtype, n_out, n_in);
    size_t n = (size_t)n_out * (size_t)n_in;
    for (size_t i = 0; i < n; i++)
        m.q[i] = (int8_t)(dtype == DTYPE_INT8   ? random_int(255) - 127
                          : dtype == DTYPE_INT4 ? random_int(16)
                                                : mxfp4_doubled(random_int(16)));
    for (size_t i = 0; i < n / QUANTISE_BLOCK; i++) {
        m.scales[i] = random_value() / 64;
        if (dtype == DTYPE_INT4) m.minimums[i] = random_value() / 8;
    }
    pack_matrix(b, &m);
    return m;
}

static void free_matrix(struct backend *b, struct matrix *m) {
    backend_release(b, m->weight.data);
    free((void *)(uintptr_t)m->host.values);
    free((void *)(uintptr_t)m->host.scales);
    free((void *)(uintptr_t)m->host.minimums);
    free((void *)(uintptr_t)m->host.exponents);
    free(m->q);
    free(m->scales);
    free(m->minimums);
}

/* One block of x as kernels/backend.h says it is rounded. */
struct block {
    int q[QUANTISE_BLOCK];
    float scale;
};

static struct block round_block(const float *x, enum dtype weights) {
    struct block block = {.scale = 0};
    float largest = 0;
    for (int k = 0; k < QUANTISE_BLOCK; k++) largest = fmaxf(largest, fabsf(x[k]));
    if (largest < 1e-30f) return block;
    float inverse = 127 / largest;
    block.scale = largest / 127;
    if (weights == DTYPE_INT4) {
        block.scale = 1;
        while (127 * block.scale < largest) block.scale *= 2;
        while (127 * block.scale / 2 >= largest) block.scale /= 2;
        inverse = 1 / block.scale;
    }
    for (int k = 0; k < QUANTISE_BLOCK; k++) block.q[k] = (int)rintf(x[k] * inverse);
    return block;
}

/* Element (row of x, column j): the value, and the sum of magnitudes that its rounding errors are
 * relative to. */
static double expect(const struct matrix *m, const float *x, int j, double *magnitude) {
    double sum = 0;
    size_t n_in = (size_t)m->weight.n_in, blocks = n_in / QUANTISE_BLOCK;
    for (size_t b = 0; b < blocks; b++) {
        struct block block = round_block(x + b * QUANTISE_BLOCK, m->weight.dtype);
        const int8_t *w = m->q + (size_t)j * n_in + b * QUANTISE_BLOCK;
        int dot = 0, total = 0;
        for (int k = 0; k < QUANTISE_BLOCK; k++) {
            dot += w[k] * block.q[k];
            total += block.q[k];
        }
        double scale = (double)m->scales[(size_t)j * blocks + b],
               minimum = (double)m->minimums[(size_t)j * blocks + b];
        double product = scale * (double)block.scale * dot,
               rest = minimum * (double)block.scale * total;
        sum += product + rest;
        *magnitude += fabs(product) + fabs(rest);
    }
    return sum;
}

static void check_linear(const struct linear_args *a, const struct matrix *m) {
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
    struct matrix m = random_matrix(b, dtype, shape[0], shape[1]);
    struct linear_args a = random_linear(&m.weight, rows, round);
    if (round % 5 == 0) a.activation = ACTIVATION_RELU;
    backend_linear(b, &a);
    check_linear(&a, &m);
    assert_gaps_untouched(a.y);
    free_linear(&a);
    free_matrix(b, &m);
}

static void linear_sizes(struct backend *b) {
    static const int outs[] = {1, 3, 8, 15, 16, 17, 33, 63, 64, 127, 257, -1},
                     ins[] = {32, 64, 96, 160, 256, 768, -1};
    static const int rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17, 31, -1};
    sweep_linear(b, &(struct linear_sweep){outs, ins, rows, DTYPE_INT8, DTYPE_INT4, {79, 96}},
                 run_linear);
    sweep_linear(b, &(struct linear_sweep){outs, ins, rows, DTYPE_MXFP4, DTYPE_MXFP4, {79, 96}},
                 run_linear);
}

static void test_linear(void **state) {
    (void)state;
    for_each_variant(linear_sizes, 2);
}

static void linear_batches(struct backend *b) {
    static const int shapes[][2] = {{257, 96}, {64, 768}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
        for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
            struct matrix m = random_matrix(b, dtypes[d], shapes[s][0], shapes[s][1]);
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
    enum { N_IN = 16384, ROWS = 130, N_OUT = 16 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct matrix m = random_matrix(b, dtypes[d], N_OUT, N_IN);
        assert_true(ROWS * (N_IN / QUANTISE_BLOCK) * sizeof(struct input_block) > INPUT_BYTES);
        struct linear_args all = {.x = random_tensor(DTYPE_F32, ROWS, N_IN, 0),
                                  .y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0),
                                  .weight = &m.weight};
        struct linear_args one = all;
        one.y = padded_tensor(DTYPE_F32, 1, N_OUT, 0);
        backend_linear(b, &all);
        for (int i = 0; i < ROWS; i++) {
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

/* Weights and activations at their ends, in every combination of signs along K: x of +-127 has the
 * scale 1, so results are integers below 2^24, and exact. */
static void linear_extremes(struct backend *b) {
    enum { N_OUT = 33, N_IN = 1024, ROWS = 7, PATTERNS = 6 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            struct matrix m = new_matrix(dtypes[d], N_OUT, N_IN);
            for (int i = 0; i < N_OUT * N_IN / QUANTISE_BLOCK; i++) m.scales[i] = 1;
            for (int j = 0; j < N_OUT; j++)
                for (int k = 0; k < N_IN; k++) {
                    bool low = pattern >= 2 && (k >> (pattern - 2) & 1);
                    int most = dtypes[d] == DTYPE_INT8 ? 127 : MXFP4_LARGEST;
                    m.q[j * N_IN + k] = (int8_t)(dtypes[d] == DTYPE_INT4 ? low ? 0 : 15
                                                 : low != (j & 1)        ? -most
                                                                         : most);
                }
            pack_matrix(b, &m);
            struct tensor x = padded_tensor(DTYPE_F32, ROWS, N_IN, 0),
                          y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0);
            for (int i = 0; i < ROWS; i++)
                for (int k = 0; k < N_IN; k++)
                    tensor_set(x, i, k,
                               pattern == 1 || (i > 1 && (k >> (i - 2) & 1)) ? -127.0f : 127.0f);
            backend_linear(b, &(struct linear_args){.y = y, .x = x, .weight = &m.weight});
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < N_OUT; j++) {
                    double expected = 0;
                    for (int k = 0; k < N_IN; k++)
                        expected += m.q[j * N_IN + k] * (double)tensor_get(x, i, k);
                    assert_true((double)tensor_get(y, i, j) == expected);
                }
            free(x.data);
            free(y.data);
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
    enum { N_OUT = 75, N_IN = 352, ROWS = 9 };
    if (strstr(backend_describe(b), "generic") != NULL) return;
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct matrix m = new_matrix(dtypes[d], N_OUT, N_IN);
        for (int i = 0; i < N_OUT * N_IN; i++)
            m.q[i] = (int8_t)(d == 0   ? i * 7 % 255 - 127
                              : d == 1 ? i * 7 % 16
                                       : mxfp4_doubled(i * 7 % 16));
        for (int i = 0; i < N_OUT * N_IN / QUANTISE_BLOCK; i++)
            m.scales[i] = m.minimums[i] = sinf((float)i);
        pack_matrix(b, &m);
        struct tensor x = padded_tensor(DTYPE_F32, ROWS, N_IN, 0),
                      y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0);
        for (int i = 0; i < ROWS * N_IN; i++) tensor_set(x, 0, i, cosf((float)i));
        backend_linear(b, &(struct linear_args){.y = y, .x = x, .weight = &m.weight});
        size_t bytes = ROWS * N_OUT * sizeof *vectors;
        if (vectors == NULL) vectors = xcalloc(ARRAY_COUNT(dtypes), bytes);
        float *kept = vectors + d * ROWS * N_OUT;
        if (kept[0] == 0) memcpy(kept, y.data, bytes);
        assert_true(kept[0] != 0);
        assert_memory_equal(kept, y.data, bytes);
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
    enum { N_OUT = 19, N_IN = 96, ROWS = 8 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct matrix m = random_matrix(b, dtypes[d], N_OUT, N_IN);
        struct tensor x = random_tensor(DTYPE_F32, ROWS, N_IN, 0),
                      y = padded_tensor(DTYPE_F32, ROWS, N_OUT, 0);
        for (int k = 0; k < N_IN; k++) {
            tensor_set(x, 1, k, 0);
            tensor_set(x, 2, k, 1e-39f);
        }
        tensor_set(x, 3, 40, NAN);
        tensor_set(x, 4, 95, INFINITY);
        tensor_set(x, 5, 0, -INFINITY);
        tensor_set(x, 6, 1, 3e38f);
        backend_linear(b, &(struct linear_args){.y = y, .x = x, .weight = &m.weight});
        for (int j = 0; j < N_OUT; j++) {
            for (int i = 1; i <= 2; i++) assert_true(tensor_get(y, i, j) == 0);
            for (int i = 3; i <= 5; i++) assert_true(isnan(tensor_get(y, i, j)));
            assert_true(isfinite(tensor_get(y, 0, j)) && isfinite(tensor_get(y, 7, j)));
            assert_false(isnan(tensor_get(y, 6, j)));
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

/* The variants round activations alike, to the bit. */
static void test_quantise(void **state) {
    (void)state;
    enum { BLOCKS = 512 };
    float *x = random_array(BLOCKS * QUANTISE_BLOCK);
    for (int b = 0; b < BLOCKS; b++)
        for (int k = 0; k < QUANTISE_BLOCK; k++)
            x[b * QUANTISE_BLOCK + k] *= ldexpf(1, b - 256 > 100 ? 100 : b - 256);
    for (int k = 0; k < QUANTISE_BLOCK; k++) x[k] = (float)k + 0.5f; /* halves round to even */
    x[31] = 127;
    x[5 * QUANTISE_BLOCK + 3] = NAN;
    x[6 * QUANTISE_BLOCK + 31] = -INFINITY;
    struct input_block *one = xcalloc(2 * BLOCKS, sizeof *one),
                       *other = xcalloc(2 * BLOCKS, sizeof *other);
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        quantise_generic(one, 2, x, BLOCKS, dtypes[d]);
        for (int v = 0; cpu_variants[v] != NULL; v++) {
            if (!cpu_supports(cpu_variants[v])) continue;
            cpu_variants[v]->quantise(other, 2, x, BLOCKS, dtypes[d]);
            for (int b = 0; b < 2 * BLOCKS; b++) {
                assert_memory_equal(one[b].q, other[b].q, QUANTISE_BLOCK);
                assert_true(one[b].scale == other[b].scale ||
                            (isnan(one[b].scale) && isnan(other[b].scale)));
                assert_true(isnan(one[b].scale) || one[b].offset == other[b].offset);
                assert_true(one[b].power == other[b].power ||
                            (isnan(one[b].power) && isnan(other[b].power)));
                if (b % 2 == 0 && dtypes[d] == DTYPE_INT4 && !isnan(one[b].scale))
                    assert_true(exp2f(one[b].power) == one[b].scale);
            }
        }
        assert_int_equal(one[0].q[2], 2);
        assert_int_equal(one[0].q[3], 4);
    }
    free(one);
    free(other);
    free(x);
}

/* Rows read back out of the packed form are scale * q + minimum. */
static void embed_rows(struct backend *b) {
    enum { VOCABULARY = 37, DIM = 96, ROWS = 50 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct matrix m = random_matrix(b, dtypes[d], VOCABULARY, DIM);
        struct tensor y = padded_tensor(DTYPE_F32, ROWS, DIM, 3);
        int32_t ids[ROWS];
        for (int i = 0; i < ROWS; i++) ids[i] = i < VOCABULARY ? i : random_int(VOCABULARY);
        backend_embed(b, &(struct embed_args){.y = y, .word = &m.weight, .ids = ids});
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < DIM; k++) {
                int block = (ids[i] * DIM + k) / QUANTISE_BLOCK;
                float scaled = m.scales[block] * (float)m.q[ids[i] * DIM + k];
                assert_true(tensor_get(y, i, k) == scaled + m.minimums[block]);
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

/* A backend refuses a layout that it cannot pack. */
static void pack_mismatch(struct backend *b) {
    float values[64] = {0};
    struct weight w = {.dtype = DTYPE_INT8, .n_out = 2, .n_in = 32};
    struct error e;
    assert_int_equal(
        backend_pack(b, &w, &(struct host_matrix){.values = values, .dtype = DTYPE_F32}, &e),
        STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "int8"));
    assert_null(w.data);
}

/* A packed weight may lie in memory of somebody else: a copy of the packed bytes gives the same
 * product. */
static void pack_copy(struct backend *b) {
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++) {
        struct matrix m = random_matrix(b, dtypes[d], 21, 160);
        size_t bytes = b->ops->packed_bytes(&m.weight);
        void *copy = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memcpy(copy, m.weight.data, bytes);
        struct weight other = m.weight;
        other.data = copy;
        struct tensor x = random_tensor(DTYPE_F32, 3, 160, 0),
                      y = padded_tensor(DTYPE_F32, 3, 21, 0),
                      z = padded_tensor(DTYPE_F32, 3, 21, 0);
        backend_linear(b, &(struct linear_args){.y = y, .x = x, .weight = &m.weight});
        backend_linear(b, &(struct linear_args){.y = z, .x = x, .weight = &other});
        for (int i = 0; i < 3; i++) assert_rows_equal(y, i, z, i);
        free(copy);
        free(x.data);
        free(y.data);
        free(z.data);
        free_matrix(b, &m);
    }
    pack_mismatch(b);
}

static void test_pack(void **state) {
    (void)state;
    for_each_variant(pack_copy, 1);
}

/* Every code and exponent against the definition: (-1)^s 2^(e - 1) (1 + m / 2), or m / 2 where e is
 * 0; and what bf16 makes of it. */
static void test_mxfp4_numbers(void **state) {
    (void)state;
    for (int byte = 1; byte <= MXFP4_MOST; byte++)
        for (int code = 0; code < 16; code++) {
            uint8_t codes[QUANTISE_BLOCK / 2], exponent = (uint8_t)byte;
            float wide[QUANTISE_BLOCK];
            memset(codes, code << 4, sizeof codes);
            mxfp4_widen(wide, codes, &exponent, QUANTISE_BLOCK);
            int power = code >> 1 & 3, mantissa = code & 1;
            double size = power ? ldexp(1 + mantissa / 2.0, power - 1) : mantissa / 2.0;
            double expected = ldexp(code & 8 ? -size : size, byte - 127);
            assert_true(wide[0] == 0 && (double)wide[1] == expected);
            assert_true(bf16_to_f32(f32_to_bf16(wide[31])) == wide[31]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mxfp4_numbers),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_batch_invariance),
        cmocka_unit_test(test_linear_many_rows),
        cmocka_unit_test(test_linear_extremes),
        cmocka_unit_test(test_linear_variants),
        cmocka_unit_test(test_linear_special),
        cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
