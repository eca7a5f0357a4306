/* tests/cuda/test_cuda_blocks.c: int8, int4 and fp8 weights on the CUDA backend, and few rows with
 * f16 and bf16 weights: against the same weights in f32, to which the device rounds nothing or, for
 * many rows, what it says it rounds; against the CPU's own int8 and int4 products within the bound
 * of their rounding; a row alone against a row in a batch. Arguments as for test_cuda_ops. */
#include "kernels/cuda/open.h"
#include "kernels/quantise.h"
#include "tests/cuda/cuda_ops.h"

static const enum dtype dtypes[] = {DTYPE_INT8, DTYPE_INT4, DTYPE_FP8},
                        half_dtypes[] = {DTYPE_F16, DTYPE_BF16};

/* Blocks of random integers, as files hold them, and their values; for other types random floats,
 * and what they became: for fp8 that is yet to be read. */
struct blocks_matrix {
    struct host_matrix host;
    int n_out, n_in;
    float *wide; /* [n_out, n_in] */
};

static uint16_t *random_halves(size_t n, float size) {
    uint16_t *halves = xmalloc((n + 1) * sizeof *halves);
    for (size_t i = 0; i < n; i++) halves[i] = f32_to_f16(size * random_value());
    return halves;
}

/* Rows of very different size, one of zeros, and in each weights that are subnormal in e4m3. */
static struct blocks_matrix random_floats(int n_out, int n_in) {
    size_t n = (size_t)n_out * (size_t)n_in;
    struct blocks_matrix m = {
        .host.dtype = DTYPE_F32, .n_out = n_out, .n_in = n_in, .wide = xmalloc(n * sizeof *m.wide)};
    float *values = random_array(n);
    for (int i = 0; i < n_out; i++)
        for (int k = 0; k < n_in; k++) {
            float *at = &values[(size_t)i * (size_t)n_in + (size_t)k];
            *at *= i == 4 ? 0 : ldexpf(k % 3 ? 1 : 1e-4f, i % 7 - 5);
        }
    m.host.values = values;
    return m;
}

static struct blocks_matrix random_matrix(enum dtype dtype, int n_out, int n_in) {
    if (!dtype_quantised(dtype)) {
        struct blocks_matrix m = random_floats(n_out, n_in);
        size_t n = (size_t)n_out * (size_t)n_in;
        for (size_t i = 0; i < n && dtype != DTYPE_FP8; i++) {
            uint16_t half;
            dtype_convert(&half, dtype, (const float *)m.host.values + i, DTYPE_F32, 1);
            dtype_convert(&m.wide[i], DTYPE_F32, &half, dtype, 1);
        }
        return m;
    }
    struct blocks_matrix m = {.host.dtype = dtype, .n_out = n_out, .n_in = n_in};
    size_t n = (size_t)n_out * (size_t)n_in, bytes = dtype == DTYPE_INT4 ? n / 2 : n;
    int8_t *values = xmalloc(bytes);
    for (size_t i = 0; i < bytes; i++) values[i] = (int8_t)(random_int(255) - 127);
    m.host.values = values;
    m.host.scales = random_halves(n / QUANTISE_BLOCK, dtype == DTYPE_INT8 ? 1.0f / 127 : 1.0f / 15);
    if (dtype == DTYPE_INT4) m.host.minimums = random_halves(n / QUANTISE_BLOCK, 1);
    m.wide = xmalloc(n * sizeof *m.wide);
    struct quantised_row first = {values, (uint16_t *)(uintptr_t)m.host.scales,
                                  (uint16_t *)(uintptr_t)m.host.minimums};
    for (int i = 0; i < n_out; i++)
        dequantise_row(m.wide + (size_t)i * (size_t)n_in, dtype,
                       quantised_row_at(first, dtype, n_in, i), n_in);
    return m;
}

static void matrix_free(struct blocks_matrix *m) {
    free((void *)(uintptr_t)m->host.values);
    free((void *)(uintptr_t)m->host.scales);
    free((void *)(uintptr_t)m->host.minimums);
    free(m->wide);
}

static struct weight packed(struct backend *b, const struct blocks_matrix *m, enum dtype dtype,
                            const struct host_matrix *host) {
    struct weight w = {.dtype = dtype, .n_out = m->n_out, .n_in = m->n_in};
    struct error e;
    if (backend_pack(b, &w, host, &e)) fail_msg("%s", e.text);
    return w;
}

/* e4m3 by its definition; 0 .. 126 are its numbers without a sign in rising order. */
static double e4m3(int code) {
    int exponent = code / 8, mantissa = code % 8;
    return exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
}

/* Row `id` of a table on the device, which embed hands out as it is. */
static void read_row(const struct weight *w, int id, float *to) {
    struct both y = both_empty(DTYPE_F32, 1, w->n_in, 0);
    backend_embed(device, &(struct embed_args){.y = y.device, .word = w, .ids = &(int32_t){id}});
    backend_download(device, to, y.device.data, tensor_bytes(y.host));
    device_sync();
    both_free(y);
}

/* Row i of the weight is the nearest that a scale of its largest / 448 allows, and goes to m->wide.
 */
static void check_fp8_row(struct blocks_matrix *m, const struct weight *w, int i) {
    const float *from = (const float *)m->host.values + (size_t)i * (size_t)m->n_in;
    float *found = m->wide + (size_t)i * (size_t)m->n_in;
    double largest = 0;
    read_row(w, i, found);
    for (int k = 0; k < m->n_in; k++) largest = fmax(largest, fabs((double)from[k]));
    for (int k = 0; k < m->n_in; k++) {
        double nearest = INFINITY, size = fabs((double)from[k]),
               off = fabs((double)found[k] - (double)from[k]);
        for (int code = 0; code < 127; code++)
            nearest = fmin(nearest, fabs(size - e4m3(code) * largest / 448));
        if (!(off <= nearest + 1e-6 * size))
            fail_msg("fp8 (%d, %d): %g became %g, the row's largest is %g", i, k, (double)from[k],
                     (double)found[k], largest);
    }
}

static float *rounded_to_bf16(const float *from, size_t n) {
    float *to = xmalloc((n + 1) * sizeof *to);
    for (size_t i = 0; i < n; i++) to[i] = bf16_to_f32(f32_to_bf16(from[i]));
    return to;
}

/* Linear */

struct blocks_case {
    int rows, n_out, n_in, gap;
    enum dtype dtype;
    enum activation activation;
    bool bias;
};

/* The CPU's product with f32 weights, of x and W as they are or, for many rows, rounded to bf16. */
static void linear_in_f32(struct linear_args a, const struct blocks_matrix *m) {
    bool many = a.x.rows > CUDA_FEW_ROWS;
    size_t n = (size_t)m->n_out * (size_t)m->n_in;
    float *wide = many ? rounded_to_bf16(m->wide, n) : m->wide;
    struct tensor x = padded_tensor(DTYPE_F32, a.x.rows, a.x.cols, 0);
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < x.cols; j++) {
            float v = tensor_get(a.x, i, j);
            tensor_set(x, i, j, many ? bf16_to_f32(f32_to_bf16(v)) : v);
        }
    struct weight w = packed(reference, m, DTYPE_F32, &(struct host_matrix){.values = wide});
    a.x = x;
    a.weight = &w;
    backend_linear(reference, &a);
    backend_release(reference, w.data);
    free(x.data);
    if (many) free(wide);
}

/* Against the CPU's own product of these blocks. It rounds each x by up to 1/254 of the largest of
 * its 32, the device by up to 2^-9 of itself, and W by as much, where rows are many. */
static void assert_near_cpu(struct both y, struct both x, const struct blocks_matrix *m) {
    backend_download(device, y.host.data, y.device.data, tensor_bytes(y.host));
    device_sync();
    struct weight w = packed(reference, m, m->host.dtype, &m->host);
    struct tensor expected = padded_tensor(DTYPE_F32, y.host.rows, y.host.cols, 0);
    backend_linear(reference, &(struct linear_args){.y = expected, .x = x.host, .weight = &w});
    double relative = 1 / 254.0 + (x.host.rows > CUDA_FEW_ROWS ? 2 * 0x1p-9 : 0) + 2e-5;
    double *largest =
        xmalloc((size_t)m->n_in * sizeof *largest); /* of the 32 that each x is one of */
    for (int i = 0; i < expected.rows; i++) {
        for (int k = 0; k < m->n_in; k++) {
            double size = fabs((double)tensor_get(x.host, i, k));
            int block = k / QUANTISE_BLOCK * QUANTISE_BLOCK;
            largest[block] = k == block ? size : fmax(largest[block], size);
        }
        for (int j = 0; j < expected.cols; j++) {
            double bound = 0;
            for (int k = 0; k < m->n_in; k++)
                bound += fabs((double)m->wide[(size_t)j * (size_t)m->n_in + (size_t)k]) * relative *
                         largest[k / QUANTISE_BLOCK * QUANTISE_BLOCK];
            double a = (double)tensor_get(expected, i, j), b = (double)tensor_get(y.host, i, j);
            if (!(fabs(a - b) <= bound))
                fail_msg("(%d, %d): %.9g, the CPU's is %.9g, bound %g", i, j, b, a, bound);
        }
    }
    free(largest);
    free(expected.data);
    backend_release(reference, w.data);
}

static void check_linear(const struct blocks_case *c) {
    if (!chosen()) return;
    struct blocks_matrix m = random_matrix(c->dtype, c->n_out, c->n_in);
    struct both x = both_random(DTYPE_F32, c->rows, c->n_in, c->gap);
    struct both y = both_empty(DTYPE_F32, c->rows, c->n_out, c->gap), bias = both_vector(c->n_out);
    struct weight w = packed(device, &m, c->dtype, &m.host);
    for (int i = 0; i < c->n_out && c->dtype == DTYPE_FP8; i++) check_fp8_row(&m, &w, i);
    struct linear_args a = {.y = y.host, .x = x.host, .activation = c->activation};
    if (c->bias) a.bias = bias.host.data;
    linear_in_f32(a, &m);
    a = (struct linear_args){
        .y = y.device, .x = x.device, .weight = &w, .activation = c->activation};
    if (c->bias) a.bias = bias.device.data;
    backend_linear(device, &a);
    assert_both(y, 2e-5 * fmax(1, c->n_in / 1024.0),
                dtype_name(c->dtype)); /* f32 sums in another order */
    if (!c->bias && c->activation == ACTIVATION_NONE && dtype_quantised(c->dtype))
        assert_near_cpu(y, x, &m);
    backend_release(device, w.data);
    matrix_free(&m);
    both_free(x);
    both_free(y);
    both_free(bias);
}

/* Lines that are full, that hold one block, and more threads than a row has pieces for. */
static void test_linear_shapes(void **state) {
    (void)state;
    static const int row_counts[] = {0, 1, 2, 3, 4, 5, 8, 11, 16, 17, 37};
    static const int sizes[][2] = {{1, 32},   {3, 64},   {4, 96},  {7, 128},
                                   {61, 160}, {16, 256}, {5, 416}, {2, 4128}};
    for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
        for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
            for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
                check_linear(&(struct blocks_case){.rows = row_counts[r],
                                                   .n_out = sizes[s][0],
                                                   .n_in = sizes[s][1],
                                                   .gap = (int)(r + s) % 3 * 2,
                                                   .dtype = dtypes[d],
                                                   .bias = (r + s + d) % 2});
}

/* Rows that end within a line, or before its second block; one thread a row, and more than a block
 * has. */
static void test_linear_halves(void **state) {
    (void)state;
    static const int row_counts[] = {1, 2, 3, 8, CUDA_FEW_ROWS},
                     widths[] = {4, 32, 36, 64, 100, 132, 516, 4132};
    for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
        for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
            for (size_t d = 0; d < ARRAY_COUNT(half_dtypes); d++)
                check_linear(&(struct blocks_case){.rows = row_counts[r],
                                                   .n_out = 1 + (int)w,
                                                   .n_in = widths[w],
                                                   .gap = (int)(r + w) % 3 * 2,
                                                   .dtype = half_dtypes[d],
                                                   .activation = (enum activation)((r + w) % 7),
                                                   .bias = (r + w + d) % 2});
}

static void test_linear_activations(void **state) {
    (void)state;
    for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_SIGMOID; activation++)
        for (int bias = 0; bias < 2; bias++)
            for (int rows = 3; rows < 20; rows += 16)
                check_linear(&(struct blocks_case){.rows = rows,
                                                   .n_out = 19,
                                                   .n_in = 96,
                                                   .dtype = dtypes[(activation + bias) % 3],
                                                   .activation = (enum activation)activation,
                                                   .bias = bias});
}

/* More than a tile of W in bf16, the last one short; the order of threads is one, for it takes a
 * second. */
static void test_linear_tiles(void **state) {
    (void)state;
    if (schedule != 0) return;
    check_linear(&(struct blocks_case){
        .rows = CUDA_FEW_ROWS + 1, .n_out = 83, .n_in = 1 << 18, .dtype = DTYPE_INT4});
}

/* Rows [first, first + rows) alone have the bits that they have among CUDA_FEW_ROWS. */
static void test_linear_batches(void **state) {
    (void)state;
    enum { N_OUT = 11, N_IN = 1376 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes) + ARRAY_COUNT(half_dtypes); d++) {
        if (!chosen()) continue;
        enum dtype dtype =
            d < ARRAY_COUNT(dtypes) ? dtypes[d] : half_dtypes[d - ARRAY_COUNT(dtypes)];
        struct blocks_matrix m = random_matrix(dtype, N_OUT, N_IN);
        struct weight w = packed(device, &m, dtype, &m.host);
        struct both x = both_random(DTYPE_F32, CUDA_FEW_ROWS, N_IN, 4),
                    y = both_empty(DTYPE_F32, CUDA_FEW_ROWS, N_OUT, 0);
        struct linear_args a = {
            .y = y.device, .x = x.device, .weight = &w, .activation = ACTIVATION_SILU};
        backend_linear(device, &a);
        backend_download(device, y.host.data, y.device.data, tensor_bytes(y.host));
        device_sync();
        for (int rows = 1; rows < CUDA_FEW_ROWS; rows++) {
            int first = rows % (CUDA_FEW_ROWS - rows + 1);
            struct both part = both_empty(DTYPE_F32, rows, N_OUT, 3);
            a.x = tensor_rows(x.device, first, rows);
            a.y = part.device;
            backend_linear(device, &a);
            backend_download(device, part.host.data, part.device.data, tensor_bytes(part.host));
            device_sync();
            for (int i = 0; i < rows; i++) assert_rows_equal(part.host, i, y.host, first + i);
            both_free(part);
        }
        backend_release(device, w.data);
        matrix_free(&m);
        both_free(x);
        both_free(y);
    }
}

/* NaN spoils its own row and no other, on both ways. */
static void test_linear_nan(void **state) {
    (void)state;
    enum { N_OUT = 9, N_IN = 96 };
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
        for (int rows = 5; rows < 20; rows += 14) {
            struct blocks_matrix m = random_matrix(dtypes[d], N_OUT, N_IN);
            struct weight w = packed(device, &m, dtypes[d], &m.host);
            struct tensor spoilt = random_tensor(DTYPE_F32, rows, N_IN, 0);
            tensor_set(spoilt, 3, 50, NAN);
            struct both x = both_copy(spoilt), y = both_empty(DTYPE_F32, rows, N_OUT, 0);
            backend_linear(device,
                           &(struct linear_args){.y = y.device, .x = x.device, .weight = &w});
            backend_download(device, y.host.data, y.device.data, tensor_bytes(y.host));
            device_sync();
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < N_OUT; j++)
                    assert_int_equal(isnan(tensor_get(y.host, i, j)) != 0, i == 3);
            backend_release(device, w.data);
            matrix_free(&m);
            both_free(x);
            both_free(y);
        }
}

/* Embed */

/* A table of more than one piece of pinned memory: rows from both, with and without positions. */
static void check_embed(enum dtype dtype, int vocab, int cols, bool position) {
    if (!chosen()) return;
    enum { ROWS = 9, POSITIONS = 13 };
    struct blocks_matrix m = random_matrix(dtype, vocab, cols);
    struct weight on_cpu = packed(reference, &m, dtype, &m.host),
                  on_device = packed(device, &m, dtype, &m.host);
    struct both y = both_empty(DTYPE_F32, ROWS, cols, position ? 1 : 4),
                at = both_random(DTYPE_F32, POSITIONS, cols, 0);
    int32_t ids[ROWS] = {0, vocab - 1}, positions[ROWS] = {POSITIONS - 1};
    for (int i = 2; i < ROWS; i++) ids[i] = random_int(vocab);
    struct embed_args a = {.y = y.host, .word = &on_cpu, .ids = ids, .positions = positions};
    a.position = position ? &at.host : NULL;
    backend_embed(reference, &a);
    a.y = y.device;
    a.word = &on_device;
    a.position = position ? &at.device : NULL;
    backend_embed(device, &a);
    assert_both(y, 0, "embed");
    backend_release(reference, on_cpu.data);
    backend_release(device, on_device.data);
    matrix_free(&m);
    both_free(y);
    both_free(at);
}

static void test_embed(void **state) {
    (void)state;
    static const int widths[] = {32, 96, 256, 1056};
    for (size_t d = 0; d < 2; d++)
        for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
            for (int position = 0; position < 2; position++)
                check_embed(dtypes[d], 23, widths[w], position);
}

static void test_embed_large(void **state) {
    (void)state;
    if (schedule != 0) return;
    for (size_t d = 0; d < 2; d++) check_embed(dtypes[d], 131101, 32, false);
    struct blocks_matrix m = random_floats(65579, 96);
    struct weight w = packed(device, &m, DTYPE_FP8, &m.host);
    for (int i = 0; i < m.n_out; i += 6557) check_fp8_row(&m, &w, i);
    backend_release(device, w.data);
    matrix_free(&m);
}

/* No packed layout of this device may be kept in files; another dtype is refused, as on the CPU,
 * and there fp8; fp8 of what is not finite everywhere. */
static void test_refusals(void **state) {
    (void)state;
    struct blocks_matrix m = random_matrix(DTYPE_INT8, 2, 32);
    struct weight w = {.dtype = DTYPE_BF16, .n_out = 2, .n_in = 32};
    struct error e;
    assert_null(device->ops->packed_layout);
    assert_int_equal(backend_pack(device, &w, &m.host, &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "int8"));
    matrix_free(&m);
    m = random_floats(3, 64);
    w = (struct weight){.dtype = DTYPE_FP8, .n_out = 3, .n_in = 64};
    assert_int_equal(backend_pack(reference, &w, &m.host, &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "fp8"));
    ((float *)(uintptr_t)m.host.values)[100] = -INFINITY;
    assert_int_equal(backend_pack(device, &w, &m.host, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "not finite"));
    matrix_free(&m);
    char super_block[256] = {0};
    w = (struct weight){.dtype = DTYPE_Q4_K, .n_out = 1, .n_in = SUPER_BLOCK};
    struct host_matrix host = {.values = super_block, .dtype = DTYPE_Q4_K};
    assert_int_equal(backend_pack(device, &w, &host, &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "q4_k weights are multiplied on the CPU only"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(test_linear_shapes), TEST(test_linear_halves),  TEST(test_linear_activations),
        TEST(test_linear_tiles),  TEST(test_linear_batches), TEST(test_linear_nan),
        TEST(test_embed),         TEST(test_embed_large),    TEST(test_refusals)};
    RUN_TESTS(argc, argv, tests);
}
