/* tests/ops/test_ops_rows.c: norm, add, glu, rope, gather, scatter and mean against double loops,
 * strided and in place; rows that become int8; activations and the exponential against libm; the
 * 16-bit conversions over all their values; opening a backend. */
#include "tests/ops/ops.h"

#include <time.h>

#include "kernels/comm/comm.h"
#include "kernels/cpu/cpu.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
static const int row_counts[] = {0, 1, 3, 8, 17, 70};
static const int sizes[] = {1, 3, 7, 16, 33, 127, 768};

static void norm_one(struct backend *b, int rows, int cols, enum norm_kind kind) {
    float *gamma = random_array((size_t)cols), *beta = random_array((size_t)cols);
    struct tensor x = random_tensor(DTYPE_F32, rows, cols, 3),
                  y = padded_tensor(DTYPE_F32, rows, cols, 1);
    /* A mean far from zero shows a variance computed with cancellation. */
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            tensor_set(x, i, j, tensor_get(x, i, j) + (float)(i % 3 * 100));
    struct norm_args a = {.y = y, .x = x, .gamma = gamma, .epsilon = 1e-5f, .kind = kind};
    a.beta = kind == NORM_LAYER ? beta : NULL;
    backend_norm(b, &a);
    for (int i = 0; i < rows; i++) {
        double mean = 0, variance = 0;
        for (int j = 0; j < cols; j++) mean += (double)tensor_get(x, i, j) / cols;
        if (kind == NORM_RMS) mean = 0;
        for (int j = 0; j < cols; j++) variance += pow(tensor_get(x, i, j) - mean, 2) / cols;
        for (int j = 0; j < cols; j++) {
            double v = (tensor_get(x, i, j) - mean) / sqrt(variance + 1e-5) * gamma[j] +
                       (a.beta ? beta[j] : 0);
            /* The centre is an f32: at 200 that is 8e-6 of error, over the row's deviation. */
            double bound = 1e-6 + 1e-5 * (kind == NORM_LAYER) * (cols > 1) / sqrt(variance + 1e-5);
            assert_true(fabs(tensor_get(y, i, j) - v) <= bound * (1 + fabs(v)));
        }
    }
    assert_gaps_untouched(y);
    /* One row alone and in place has the same bits. */
    for (int i = 0; i < rows; i++) {
        a.x = a.y = tensor_rows(x, i, 1);
        backend_norm(b, &a);
        assert_rows_equal(x, i, y, i);
    }
    free(x.data);
    free(y.data);
    free(gamma);
    free(beta);
}

static void norm_sizes(struct backend *b) {
    for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
        for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
            norm_one(b, row_counts[r], sizes[s], NORM_LAYER);
            norm_one(b, row_counts[r], sizes[s], NORM_RMS);
        }
}

static void add_sizes(struct backend *b) {
    for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
        for (int with = 0; with < 8; with++) {
            int rows = row_counts[r], cols = sizes[r];
            struct tensor x = random_tensor(DTYPE_F32, rows, cols, 1),
                          z = random_tensor(DTYPE_F32, rows, cols, 2);
            struct tensor own = padded_tensor(DTYPE_F32, rows, cols, 0), y = with & 4 ? z : own;
            float *bias = random_array((size_t)cols), *scale = random_array((size_t)rows);
            struct tensor before = random_tensor(DTYPE_F32, rows, cols, 0);
            for (int i = 0; i < rows; i++) {
                if (i % 3 == 0) scale[i] = 0;
                /* A closed gate lets nothing through, whatever is behind it. */
                if (i % 3 == 0 && with & 2) tensor_set(z, i, 0, NAN);
                for (int j = 0; j < cols; j++) tensor_set(before, i, j, tensor_get(z, i, j));
            }
            struct add_args a = {.y = y, .a = x, .b = z, .bias = with & 1 ? bias : NULL};
            a.row_scale = with & 2 ? scale : NULL;
            backend_add(b, &a);
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++) {
                    float gate = with & 2 ? scale[i] : 1, kept = tensor_get(x, i, j);
                    double v = gate == 0 ? kept
                                         : kept + (double)gate * (tensor_get(before, i, j) +
                                                                  (with & 1 ? bias[j] : 0));
                    assert_true(gate == 0 ? tensor_get(y, i, j) == kept
                                          : fabs(tensor_get(y, i, j) - v) <= 4e-7);
                }
            free(x.data);
            free(z.data);
            free(own.data);
            free(before.data);
            free(bias);
            free(scale);
        }
}

static void test_norm_add(void **state) {
    (void)state;
    for_each_variant(norm_sizes, 2);
    for_each_variant(add_sizes, 2);
}

static double activated(double x, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: return x;
        case ACTIVATION_GELU_TANH:
            return x / (1 + exp(-2 * 0.79788456 * x * (1 + 0.044715 * x * x)));
        case ACTIVATION_GELU_ERF: return 0.5 * x * erfc(-x / sqrt(2));
        case ACTIVATION_SILU: return x / (1 + exp(-x));
        case ACTIVATION_RELU: return x > 0 ? x : 0;
        case ACTIVATION_RELU_SQUARED: return x > 0 ? x * x : 0;
        case ACTIVATION_QUICK_GELU: return x / (1 + exp(-1.702 * x));
        case ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    }
    return NAN;
}

/* The gate runs from -30 to 30 in small steps, through glu with the other half 1, so that y is the
 * activation. */
static void glu_values(struct backend *b) {
    enum { N = 6001 };
    struct tensor x = padded_tensor(DTYPE_F32, 1, 2 * N, 0), y = padded_tensor(DTYPE_F32, 1, N, 0);
    for (int j = 0; j < N; j++) {
        tensor_set(x, 0, j, (float)(j - N / 2) * 0.01f);
        tensor_set(x, 0, N + j, 1);
    }
    for (int kind = ACTIVATION_NONE; kind <= ACTIVATION_SIGMOID; kind++) {
        backend_glu(
            b, &(struct glu_args){.y = y, .x = x, .gating = {.activation = (enum activation)kind}});
        for (int j = 0; j < N; j++) {
            double v = activated(tensor_get(x, 0, j), (enum activation)kind);
            if (!(fabs(tensor_get(y, 0, j) - v) <= 1e-6 * fmax(1, fabs(v)) * 0.5))
                fail_msg("activation %d of %g: %.9g, expected %.9g", kind, tensor_get(x, 0, j),
                         tensor_get(y, 0, j), v);
        }
    }
    free(x.data);
    free(y.data);
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        x = random_tensor(DTYPE_F32, 17, 2 * sizes[s], 1);
        y = padded_tensor(DTYPE_F32, 17, sizes[s], 4);
        backend_glu(b,
                    &(struct glu_args){.y = y, .x = x, .gating = {.activation = ACTIVATION_SILU}});
        for (int i = 0; i < 17; i++)
            for (int j = 0; j < sizes[s]; j++) {
                double v = activated(tensor_get(x, i, j), ACTIVATION_SILU) *
                           tensor_get(x, i, sizes[s] + j);
                assert_true(fabs(tensor_get(y, i, j) - v) <= 3e-7);
            }
        assert_gaps_untouched(y);
        struct tensor half = tensor_cols(x, sizes[s], sizes[s]);
        const struct gating plain = {.activation = ACTIVATION_RELU_SQUARED, .plain = 1};
        backend_glu(b, &(struct glu_args){.y = y, .x = half, .gating = plain});
        backend_glu(b, &(struct glu_args){.y = half, .x = half, .gating = plain});
        for (int i = 0; i < 17; i++) assert_rows_equal(y, i, half, i);
        assert_gaps_untouched(y);
        free(x.data);
        free(y.data);
    }
}

static void test_activations(void **state) {
    (void)state;
    for_each_variant(glu_values, 2);
}

/* The vector exponential over its whole range against double, in units of the last place of the
 * result. */
static void exp_values(struct backend *b) {
    const struct cpu_kernels *kernels = cpu_of(b)->kernels;
    double worst = 0;
    float x[1000], y[1000];
    for (int block = 0; block < 2000; block++) {
        for (int i = 0; i < 1000; i++)
            x[i] = -87.3f + (float)(block * 1000 + i) * (float)(176.0 / 2e6);
        kernels->exp(y, x, 1000);
        for (int i = 0; i < 1000; i++) {
            double expected = exp(x[i]);
            worst = fmax(worst, fabs(y[i] - expected) / ldexp(1, ilogb(expected) - 23));
        }
    }
    print_message("  %s: worst error %.2f ulp\n", kernels->name, worst);
    assert_true(worst <= 2);
    float special[] = {-INFINITY, -1000, -104, -95, 0, -0.0f, 89, 1000, INFINITY, NAN}, out[10];
    kernels->exp(out, special, 10);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[4] == 1 && out[5] == 1);
    assert_true(fabs(out[3] - exp(-95)) <= 3e-45);
    assert_true(isinf(out[6]) && isinf(out[7]) && isinf(out[8]) && isnan(out[9]));
}

static void test_exp(void **state) {
    (void)state;
    for_each_variant(exp_values, 1);
}

/* Of every row one position, or three that the pairs take in turn by thirds. */
static void rope_sizes(struct backend *b, int sections) {
    static const int shapes[][3] = {{1, 2, 2}, {4, 8, 8},     {3, 64, 32},
                                    {2, 7, 6}, {5, 128, 128}, {2, 5, 0}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            int heads = shapes[s][0], head_dim = shapes[s][1], half = shapes[s][2] / 2;
            int first = sections > 1 ? head_dim - 2 * half : 0;
            struct tensor x = random_tensor(DTYPE_F32, 33, heads * head_dim, 3);
            struct tensor before = padded_tensor(DTYPE_F32, 33, heads * head_dim, 0);
            int32_t positions[33 * 3];
            uint8_t section_of[64];
            float inv_freq[64];
            for (int i = 0; i < half; i++) inv_freq[i] = powf(10000, -(float)i / (float)half);
            for (int i = 0; i < half; i++) section_of[i] = (uint8_t)(i * sections / half);
            for (int i = 0; i < 33; i++) {
                for (int j = 0; j < sections; j++)
                    positions[i * sections + j] = (i + j) * (i + 5 * j) * 37;
                memcpy(tensor_at(before, i, 0), tensor_at(x, i, 0), (size_t)x.cols * sizeof(float));
            }
            backend_rope(b, &(struct rope_args){.x = x,
                                                .positions = positions,
                                                .inv_freq = inv_freq,
                                                .section_of = sections > 1 ? section_of : NULL,
                                                .sections = sections > 1 ? sections : 0,
                                                .heads = heads,
                                                .head_dim = head_dim,
                                                .first = first,
                                                .rotated = 2 * half,
                                                .interleaved = interleaved});
            for (int i = 0; i < 33; i++)
                for (int j = 0; j < heads * head_dim; j++) {
                    int d = j % head_dim - first;
                    bool turns = d >= 0 && d < 2 * half;
                    double v = tensor_get(before, i, j);
                    if (turns) {
                        int pair = interleaved ? d / 2 : d % half;
                        bool second = interleaved ? d % 2 : d >= half;
                        int other = interleaved ? j ^ 1 : second ? j - half : j + half;
                        if (interleaved) other = j - d + (d ^ 1);
                        float angle =
                            (float)positions[i * sections + section_of[pair]] * inv_freq[pair];
                        double u = tensor_get(before, i, other);
                        v = v * cos(angle) + (second ? u : -u) * sin(angle);
                    }
                    assert_true(fabs(tensor_get(x, i, j) - v) <= (turns ? 3e-7 : 0));
                }
            assert_gaps_untouched(x);
            free(x.data);
            free(before.data);
        }
}

static void rope_one_position(struct backend *b) { rope_sizes(b, 1); }

static void rope_three_positions(struct backend *b) { rope_sizes(b, 3); }

static void test_rope(void **state) {
    (void)state;
    for_each_variant(rope_one_position, 2);
    for_each_variant(rope_three_positions, 2);
}

/* The value a dtype holds of an element of another. */
static float through(enum dtype to, struct tensor from, int row, int col) {
    uint32_t stored = 0;
    float v;
    dtype_convert(&stored, to, tensor_at(from, row, col), from.dtype, 1);
    dtype_convert(&v, DTYPE_F32, &stored, to, 1);
    return v;
}

static void gather_scatter(struct backend *b) {
    enum { FROM = 29, TO = 41 };
    for (size_t d = 0; d < 9; d++)
        for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
            enum dtype to = dtypes[d / 3], from = dtypes[d % 3];
            struct tensor x = random_tensor(from, FROM, sizes[s], 2),
                          y = padded_tensor(to, TO, sizes[s], 1);
            int32_t rows[TO];
            for (int i = 0; i < TO; i++) rows[i] = i % 7 == 3 ? -1 : i * 5 % FROM;
            backend_gather_rows(b, &(struct gather_rows_args){.y = y, .x = x, .rows = rows});
            for (int i = 0; i < TO; i++)
                for (int j = 0; j < sizes[s]; j++)
                    assert_true(tensor_get(y, i, j) ==
                                (rows[i] < 0 ? 0 : through(to, x, rows[i], j)));
            assert_gaps_untouched(y);
            free(y.data);
            y = random_tensor(to, TO, sizes[s], 1);
            struct tensor before = padded_tensor(to, TO, sizes[s], 0);
            for (int i = 0; i < TO; i++)
                memcpy(tensor_at(before, i, 0), tensor_at(y, i, 0),
                       (size_t)sizes[s] * dtype_bytes(to));
            int32_t source[TO];
            for (int i = 0; i < TO; i++) source[i] = -1;
            for (int i = 0; i < FROM; i++) {
                rows[i] = i % 5 == 2 ? -1 : i == FROM - 1 ? 0 : i * 3 % TO;
                if (rows[i] >= 0) source[rows[i]] = i;
            }
            backend_scatter_rows(b, &(struct scatter_rows_args){.y = y, .x = x, .rows = rows});
            for (int i = 0; i < TO; i++)
                for (int j = 0; j < sizes[s]; j++) {
                    float v =
                        source[i] < 0 ? tensor_get(before, i, j) : through(to, x, source[i], j);
                    assert_true(tensor_get(y, i, j) == v);
                }
            assert_gaps_untouched(y);
            free(x.data);
            free(y.data);
            free(before.data);
        }
}

/* Rows for a cache of int8: of many sizes, with zeros, and groups that have no scale. */
enum { NARROWED = 23, GROUPS = 5 };

static struct tensor rows_to_narrow(int width) {
    static const float odd[] = {0, NAN, INFINITY, -INFINITY, 0x1p-101f, 0x1p-99f, 3e38f};
    struct tensor x = random_tensor(DTYPE_F32, NARROWED, GROUPS * width, 2);
    for (int i = 0; i < NARROWED; i++)
        for (int j = 0; j < x.cols; j++)
            tensor_set(x, i, j, tensor_get(x, i, j) * powf(10, (float)(i % 9 - 4)));
    for (size_t i = 0; i < ARRAY_COUNT(odd); i++)
        for (int j = 0; j < width; j++)
            if (!isfinite(odd[i]) ? j == width / 2 : true)
                tensor_set(x, (int)i, (int)i % GROUPS * width + j, odd[i]);
    return x;
}

/* One group against its definition: the scale is the least of bf16 that will do, and the rounding
 * has the bits of single steps in f32, in every variant. */
static void check_narrowed(const float *x, int width, const int8_t *q, float scale) {
    float largest = 0;
    bool finite = true;
    for (int j = 0; j < width; j++) {
        finite = finite && isfinite(x[j]);
        largest = fmaxf(largest, fabsf(x[j]));
    }
    if (!finite) {
        assert_true(isnan(scale));
        return;
    }
    if (largest < 0x1p-100f) {
        assert_true(scale == 0);
        for (int j = 0; j < width; j++) assert_int_equal(q[j], 0);
        return;
    }
    float below = bf16_to_f32((uint16_t)(f32_to_bf16(scale) - 1)), inverse = 1 / scale;
    assert_true(scale >= largest / 127 && below < largest / 127);
    for (int j = 0; j < width; j++) {
        assert_true(fabs((double)x[j] / (double)scale - q[j]) <= 0.5 + 1e-4);
        assert_int_equal(q[j], (int)nearbyintf(x[j] * inverse));
    }
}

static void scatter_narrowing(struct backend *b) {
    enum { TO = 40 };
    static const int widths[] = {1, 3, 16, 33, 64, 300};
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++) {
        struct tensor x = rows_to_narrow(widths[w]), y = random_keys(DTYPE_INT8, TO, x.cols, 3),
                      scales = random_scales(DTYPE_INT8, TO, GROUPS, 1),
                      copy = random_keys(DTYPE_INT8, TO, x.cols, 0);
        int32_t rows[NARROWED], source[TO], all[TO];
        memset(source, -1, sizeof source);
        for (int i = 0; i < TO; i++) all[i] = i;
        backend_gather_rows(b, &(struct gather_rows_args){.y = copy, .x = y, .rows = all});
        for (int i = 0; i < TO; i++) assert_rows_equal(copy, i, y, i);
        for (int i = 0; i < NARROWED; i++) {
            rows[i] = i % 5 == 3 ? -1 : i == NARROWED - 1 ? 0 : i * 3 % TO;
            if (rows[i] >= 0) source[rows[i]] = i;
        }
        backend_scatter_rows(
            b, &(struct scatter_rows_args){.y = y, .x = x, .rows = rows, .scales = scales});
        for (int i = 0; i < TO; i++) {
            if (source[i] < 0) assert_rows_equal(copy, i, y, i);
            for (int g = 0; g < GROUPS && source[i] >= 0; g++)
                check_narrowed(tensor_at(x, source[i], g * widths[w]), widths[w],
                               tensor_at(y, i, g * widths[w]), tensor_get(scales, i, g));
        }
        assert_gaps_untouched(scales);
        free(x.data);
        free(y.data);
        free(scales.data);
        free(copy.data);
    }
}

static void test_narrowing(void **state) {
    (void)state;
    for_each_variant(scatter_narrowing, 1);
    for_each_variant(scatter_narrowing, 3);
}

static void mean_sizes(struct backend *b) {
    static const int32_t starts[] = {0, 1, 1, 18, 20, 70};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
        for (int normalize = 0; normalize < 2; normalize++) {
            struct tensor x = random_tensor(DTYPE_F32, 70, sizes[s], 1),
                          y = padded_tensor(DTYPE_F32, 5, sizes[s], 1);
            backend_mean_rows(b, &(struct mean_rows_args){
                                     .y = y, .x = x, .starts = starts, .normalize = normalize});
            for (int i = 0; i < 5; i++) {
                double mean[768] = {0}, squares = 0;
                for (int j = 0; j < sizes[s]; j++) {
                    for (int r = starts[i]; r < starts[i + 1]; r++) mean[j] += tensor_get(x, r, j);
                    if (starts[i + 1] > starts[i]) mean[j] /= starts[i + 1] - starts[i];
                    squares += mean[j] * mean[j];
                }
                double scale = normalize && squares > 0 ? 1 / sqrt(squares) : 1;
                for (int j = 0; j < sizes[s]; j++)
                    assert_true(fabs(tensor_get(y, i, j) - mean[j] * scale) <= 2e-7);
            }
            assert_gaps_untouched(y);
            free(x.data);
            free(y.data);
        }
}

static void test_rows(void **state) {
    (void)state;
    for_each_variant(gather_scatter, 2);
    for_each_variant(mean_sizes, 2);
}

/* All 65536 patterns of each 16-bit type go to f32 and back unchanged (NaN stays NaN); rounding is
 * to nearest even. */
static void test_conversions(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        float h = f16_to_f32((uint16_t)v), g = bf16_to_f32((uint16_t)v);
        int exponent = (int)(v >> 10 & 31);
        double sign = v & 0x8000 ? -1 : 1, fraction = v & 1023;
        if (exponent == 31) {
            assert_true(fraction != 0 ? isnan(h) : h == (float)(sign * INFINITY));
        } else {
            double exact =
                exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
            assert_true((double)h == sign * exact && !signbit(h) == (sign > 0));
        }
        assert_true(isnan(h) ? isnan(f16_to_f32(f32_to_f16(h))) : f32_to_f16(h) == v);
        assert_true(isnan(g) ? isnan(bf16_to_f32(f32_to_bf16(g))) : f32_to_bf16(g) == v);
        /* Halfway to the next pattern rounds to the even one, a little past it away. */
        if (isnan(h) || (v & 0x7fff) >= 0x7bff) continue;
        float next = f16_to_f32((uint16_t)(v + 1)), middle = h + (next - h) / 2;
        assert_int_equal(f32_to_f16(middle), v + (v & 1));
        assert_int_equal(f32_to_f16(nextafterf(middle, h)), v);
        assert_int_equal(f32_to_f16(nextafterf(middle, next)), v + 1);
        if (isnan(g) || (v & 0x7fff) >= 0x7f7f) continue;
        next = bf16_to_f32((uint16_t)(v + 1));
        middle = g + (next - g) / 2;
        assert_int_equal(f32_to_bf16(middle), v + (v & 1));
        assert_int_equal(f32_to_bf16(nextafterf(middle, g)), v);
        assert_int_equal(f32_to_bf16(nextafterf(middle, next)), v + 1);
    }
}

static void open_fails(const char *device, const char *forced, int threads, enum status expected) {
    struct backend *b = (struct backend *)&expected;
    struct error e;
    if (forced != NULL) setenv("RETRO_CPU", forced, 1);
    assert_int_equal(backend_open(&b, device, &(struct backend_options){.threads = threads}, &e),
                     expected);
    assert_int_equal(e.status, expected);
    assert_null(b);
    unsetenv("RETRO_CPU");
}

static void test_open(void **state) {
    (void)state;
    open_fails("cuda:0", NULL, 0, STATUS_UNSUPPORTED);
    open_fails("tpu", NULL, 0, STATUS_UNSUPPORTED);
    open_fails("", NULL, 0, STATUS_UNSUPPORTED);
    open_fails("cpu", "sse9", 0, STATUS_INVALID);
    open_fails("cpu", "", 0, STATUS_INVALID);
    open_fails("cpu", NULL, -1, STATUS_INVALID);
    struct backend *b;
    assert_int_equal(backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, NULL),
                     STATUS_OK);
    assert_non_null(strstr(backend_describe(b), "1 thread"));
    /* Memory is zeroed and aligned, small and large; what cannot be had is an error with its
     * purpose in the text. */
    for (size_t bytes = 0; bytes < (size_t)40 << 20; bytes = bytes * 7 + 1) {
        void *p;
        assert_int_equal(backend_alloc(b, &p, bytes, "a test", NULL), STATUS_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < bytes; i++)
            if (((char *)p)[i] != 0) fail_msg("byte %zu of %zu is not zero", i, bytes);
        backend_release(b, p);
    }
    struct error e;
    void *p;
    assert_int_equal(backend_alloc(b, &p, SIZE_MAX - 5, "the moon", &e), STATUS_NO_MEMORY);
    assert_non_null(strstr(e.text, "the moon"));
    /* The first failure sticks: ops do nothing until sync reports it. */
    float x = 1, y = 2;
    struct tensor one = tensor_make(&x, DTYPE_F32, 1, 1), two = tensor_make(&y, DTYPE_F32, 1, 1);
    error_set(&b->error, STATUS_DEVICE, "pulled out");
    backend_add(b, &(struct add_args){.y = one, .a = one, .b = two});
    assert_true(x == 1);
    assert_int_equal(backend_sync(b, &e), STATUS_DEVICE);
    assert_string_equal(e.text, "pulled out");
    backend_add(b, &(struct add_args){.y = one, .a = one, .b = two});
    assert_true(x == 3);
    assert_int_equal(backend_sync(b, &e), STATUS_OK);
    backend_close(b);
}

enum { POOL_PIECES = 97 };
static int pool_counts[POOL_PIECES];

static void count_piece(const void *context, int piece, int thread) {
    const int *threads = context;
    assert_in_range(thread, 0, *threads - 1);
    pool_counts[piece]++; /* a piece that two threads took, or none, shows in the sum */
}

/* Thousands of short jobs, back to back and after pauses in which helpers fall asleep: each piece
 * runs exactly once. */
static void test_pool(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct pool *p;
        int expected[POOL_PIECES] = {0};
        memset(pool_counts, 0, sizeof pool_counts);
        assert_int_equal(pool_open(&p, threads, NULL), STATUS_OK);
        for (int job = 0; job < 3000; job++) {
            int pieces = job % (POOL_PIECES + 1);
            pool_run(p, 1000, pieces, count_piece, &threads);
            for (int i = 0; i < pieces; i++) expected[i]++;
            if (job % 500 == 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
            assert_memory_equal(pool_counts, expected, sizeof expected);
        }
        pool_close(p);
    }
}

static void test_comm_single(void **state) {
    (void)state;
    struct backend *b;
    struct comm *c;
    assert_int_equal(backend_open(&b, "cpu", NULL, NULL), STATUS_OK);
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    assert_true(c->rank == 0 && c->size == 1);
    struct tensor x = random_tensor(DTYPE_F32, 7, 5, 2), y = padded_tensor(DTYPE_F32, 7, 5, 1);
    float first = tensor_get(x, 0, 0);
    comm_allreduce_sum(c, b, x);
    assert_true(tensor_get(x, 0, 0) == first);
    comm_allgather_cols(c, b, y, x);
    for (int i = 0; i < 7; i++) assert_rows_equal(x, i, y, i);
    comm_allgather_cols(c, b, x, x);
    for (int i = 0; i < 7; i++) assert_rows_equal(x, i, y, i);
    comm_close(c);
    backend_close(b);
    free(x.data);
    free(y.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_add),    cmocka_unit_test(test_activations),
        cmocka_unit_test(test_exp),         cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_open),        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_comm_single), cmocka_unit_test(test_narrowing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
