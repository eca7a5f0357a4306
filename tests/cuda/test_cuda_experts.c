/* tests/cuda/test_cuda_experts.c: mixtures of experts on the CUDA backend against the CPU.
 * Arguments as for test_cuda_ops. */
#include "kernels/cuda/open.h"
#include "kernels/quantise.h"
#include "tests/cuda/cuda_ops.h"

static struct route_args route_on(struct both y, struct both logits, bool renormalise,
                                  bool on_device) {
    return (struct route_args){.y = on_device ? y.device : y.host,
                               .logits = on_device ? logits.device : logits.host,
                               .renormalise = renormalise};
}

static void check_route(struct both logits, int used, bool renormalise) {
    if (!chosen()) return;
    struct both y = both_empty(DTYPE_F32, logits.host.rows, 2 * used, 1);
    struct route_args on_cpu = route_on(y, logits, renormalise, false),
                      on_device = route_on(y, logits, renormalise, true);
    backend_route(reference, &on_cpu);
    backend_route(device, &on_device);
    assert_both(y, 1e-6, "route");
    both_free(y);
}

static void test_route(void **state) {
    (void)state;
    static const int sizes[][2] = {{1, 1}, {5, 5}, {8, 2}, {33, 4}, {128, 8}};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct both logits = both_random(DTYPE_F32, 5, sizes[s][0], 3);
        check_route(logits, sizes[s][1], s % 2);
        both_free(logits);
    }
}

/* Sigmoids, a bias that chooses and does not weigh, groups, a scale, an
 * epsilon, a factor of each expert. */
static void test_route_rules(void **state) {
    (void)state;
    static const int sizes[][4] = {{7, 3, 0, 0}, {12, 4, 4, 2}, {256, 8, 8, 4}};
    for (int rules = 0; rules < 64; rules++)
        for (size_t s = 0; s < ARRAY_COUNT(sizes) && chosen(); s++) {
            struct both logits = both_random(DTYPE_F32, 5, sizes[s][0], 3),
                        bias = both_vector(sizes[s][0]), factors = both_vector(sizes[s][0]),
                        y = both_empty(DTYPE_F32, 5, 2 * sizes[s][1], 1);
            struct route_args on_cpu = route_on(y, logits, rules & 4, false),
                              on_device = route_on(y, logits, rules & 4, true);
            on_cpu.sigmoid = on_device.sigmoid = rules & 2;
            on_cpu.scale = on_device.scale = rules & 8 ? 2.5f : 0;
            on_cpu.epsilon = on_device.epsilon = rules & 2 ? 0.125f : 0;
            on_cpu.groups = on_device.groups = sizes[s][2];
            on_cpu.groups_used = on_device.groups_used = sizes[s][3];
            on_cpu.group_best = on_device.group_best = rules & 16 ? 1 : 0;
            on_cpu.bias = rules & 1 ? bias.host.data : NULL;
            on_device.bias = rules & 1 ? bias.device.data : NULL;
            on_cpu.factors = rules & 32 ? factors.host.data : NULL;
            on_device.factors = rules & 32 ? factors.device.data : NULL;
            backend_route(reference, &on_cpu);
            backend_route(device, &on_device);
            assert_both(y, 1e-6, "route by rules");
            both_free(logits);
            both_free(bias);
            both_free(factors);
            both_free(y);
        }
}

/* Equal logits, NaN among others, and nothing but NaN. */
static void test_route_order(void **state) {
    (void)state;
    enum { COLS = 70 };
    struct tensor host = padded_tensor(DTYPE_F32, 4, COLS, 0);
    for (int j = 0; j < COLS; j++) {
        tensor_set(host, 0, j, 1);
        tensor_set(host, 1, j, (float)(j % 3));
        tensor_set(host, 2, j, j % 2 ? -(float)j : NAN);
    }
    struct both logits = both_copy(host);
    check_route(logits, 6, true);
    check_route(logits, COLS, false);
    both_free(logits);
}

struct packed {
    struct weight on_cpu, on_device;
};

static struct weight pack(struct backend *b, enum dtype dtype, int n_out, int n_in,
                          const struct host_matrix *host) {
    struct weight w = {.dtype = dtype, .n_out = n_out, .n_in = n_in};
    struct error e;
    if (backend_pack(b, &w, host, &e)) fail_msg("%s", e.text);
    return w;
}

/* Rows of `wide` as blocks, and what they hold back in `wide`. The caller frees the planes. */
static struct host_matrix quantise_matrix(enum dtype dtype, float *wide, int n_out, int n_in) {
    size_t n = (size_t)n_out * (size_t)n_in;
    struct quantised_row first = {xmalloc(n), xmalloc(n), dtype == DTYPE_INT4 ? xmalloc(n) : NULL};
    for (int i = 0; i < n_out; i++) {
        float *row = wide + (size_t)i * (size_t)n_in;
        struct quantised_row to = quantised_row_at(first, dtype, n_in, i);
        assert_true(quantise_row(dtype, to, row, NULL, n_in));
        dequantise_row(row, dtype, to, n_in);
    }
    return (struct host_matrix){
        .dtype = dtype, .values = first.values, .scales = first.scales, .minimums = first.minimums};
}

/* As the device rounds what many rows meet; f32 as it is. */
static float round_value(enum dtype dtype, float v) {
    if (dtype == DTYPE_F32) return v;
    return dtype == DTYPE_F16 ? f16_to_f32(f32_to_f16(v)) : bf16_to_f32(f32_to_bf16(v));
}

/* Random numbers. Of blocks the CPU has the numbers in f32, because its own products round x; for
 * many rows they are rounded to bf16, as on the device. */
static struct packed pack_both(enum dtype dtype, int n_out, int n_in, bool many) {
    size_t n = (size_t)n_out * (size_t)n_in;
    float *wide = random_array(n);
    struct host_matrix plain = {.values = wide};
    struct packed w;
    if (dtype_quantised(dtype)) {
        struct host_matrix blocks = quantise_matrix(dtype, wide, n_out, n_in);
        w.on_device = pack(device, dtype, n_out, n_in, &blocks);
        free((void *)(uintptr_t)blocks.values);
        free((void *)(uintptr_t)blocks.scales);
        free((void *)(uintptr_t)blocks.minimums);
    } else {
        w.on_device = pack(device, dtype, n_out, n_in, &plain);
    }
    for (size_t i = 0; i < n && many && dtype_quantised(dtype); i++)
        wide[i] = round_value(dtype, wide[i]);
    w.on_cpu = pack(reference, dtype_quantised(dtype) || dtype == DTYPE_FP8 ? DTYPE_F32 : dtype,
                    n_out, n_in, &plain);
    free(wide);
    return w;
}

enum { EXPERTS = 5, USED = 2 };

/* A mixture on both sides: the weights, and everything that has rows. */
struct mixture {
    struct weight fc1[2][EXPERTS], fc2[2][EXPERTS];
    struct both y, x, routes, shared, gate, few, parts, wide, gated;
    struct both biases1, biases2; /* an expert a row */
    float *bias1[2][EXPERTS], *bias2[2][EXPERTS];
    bool biased; /* with a shifted, cut gate too */
};

static void mixture_open(struct mixture *m, enum dtype dtype, int rows, int hidden, int ffn) {
    for (int i = 0; i < EXPERTS; i++) {
        bool many = rows > CUDA_FEW_ROWS;
        struct packed up = pack_both(dtype, 2 * ffn, hidden, many),
                      down = pack_both(dtype, hidden, ffn, many);
        m->fc1[0][i] = up.on_cpu;
        m->fc1[1][i] = up.on_device;
        m->fc2[0][i] = down.on_cpu;
        m->fc2[1][i] = down.on_device;
    }
    struct tensor routes = padded_tensor(DTYPE_F32, rows, 2 * USED, 0);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < USED; j++) {
            tensor_set(routes, i, j, random_value());
            tensor_set(routes, i, USED + j, (float)((i * 3 + j) % EXPERTS));
        }
    m->routes = both_copy(routes);
    m->y = both_empty(DTYPE_F32, rows, hidden, 1);
    m->x = both_random(DTYPE_F32, rows, hidden, 4);
    m->shared = both_random(DTYPE_F32, rows, hidden, 0);
    m->gate = both_random(DTYPE_F32, rows, 1, 5);
    m->few = both_empty(DTYPE_F32, rows, hidden, 0);
    m->parts = both_empty(DTYPE_F32, rows, USED * hidden, 0);
    m->wide = both_empty(DTYPE_F32, rows, 2 * ffn, 2);
    m->gated = both_empty(DTYPE_F32, rows, ffn, 1);
    m->biases1 = both_random(DTYPE_F32, EXPERTS, 2 * ffn, 0);
    m->biases2 = both_random(DTYPE_F32, EXPERTS, hidden, 0);
    m->biased = false;
    for (int i = 0; i < EXPERTS; i++)
        for (int side = 0; side < 2; side++) {
            struct tensor first = side ? m->biases1.device : m->biases1.host,
                          second = side ? m->biases2.device : m->biases2.host;
            m->bias1[side][i] = tensor_rows(first, i, 1).data;
            m->bias2[side][i] = tensor_rows(second, i, 1).data;
        }
}

static void mixture_close(struct mixture *m) {
    struct both *all[] = {&m->y,     &m->x,    &m->routes, &m->shared,  &m->gate,   &m->few,
                          &m->parts, &m->wide, &m->gated,  &m->biases1, &m->biases2};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) both_free(*all[i]);
    for (int i = 0; i < EXPERTS; i++) {
        backend_release(reference, m->fc1[0][i].data);
        backend_release(reference, m->fc2[0][i].data);
        backend_release(device, m->fc1[1][i].data);
        backend_release(device, m->fc2[1][i].data);
    }
}

static struct tensor side(struct both t, int on_device) { return on_device ? t.device : t.host; }

/* Rows [first, first + rows). */
static struct experts_args mixture_on(const struct mixture *m, int on_device, int first, int rows) {
#define ROWS(name) tensor_rows(side(m->name, on_device), first, rows)
    struct gating gating = {.activation = ACTIVATION_SILU};
    if (m->biased) gating = (struct gating){ACTIVATION_QUICK_GELU, 0.5f, 1, 0};
    return (struct experts_args){.y = ROWS(y),
                                 .x = ROWS(x),
                                 .routes = ROWS(routes),
                                 .fc1 = m->fc1[on_device],
                                 .fc2 = m->fc2[on_device],
                                 .shared = ROWS(shared),
                                 .gate = ROWS(gate),
                                 .few = ROWS(few),
                                 .parts = ROWS(parts),
                                 .wide = ROWS(wide),
                                 .gated = ROWS(gated),
                                 .n_experts = EXPERTS,
                                 .bias1 = m->biased ? m->bias1[on_device] : NULL,
                                 .bias2 = m->biased ? m->bias2[on_device] : NULL,
                                 .gating = gating};
#undef ROWS
}

static void run_mixture(const struct mixture *m, int on_device, bool shared) {
    struct experts_args a = mixture_on(m, on_device, 0, m->x.host.rows);
    if (!shared) a.shared.data = a.gate.data = NULL;
    backend_experts(on_device ? device : reference, &a);
}

static void round_rows(enum dtype dtype, struct tensor t) {
    for (int i = 0; i < t.rows; i++)
        for (int j = 0; j < t.cols; j++)
            tensor_set(t, i, j, round_value(dtype, tensor_get(t, i, j)));
}

/* The rows' part of expert e, to a->few. */
static void run_rounded(const struct experts_args *a, enum dtype dtype, int e) {
    backend_linear(reference, &(struct linear_args){.y = a->wide, .x = a->x, .weight = &a->fc1[e]});
    backend_glu(reference, &(struct glu_args){.y = a->gated, .x = a->wide, .gating = a->gating});
    round_rows(dtype, a->gated);
    backend_linear(reference,
                   &(struct linear_args){.y = a->few, .x = a->gated, .weight = &a->fc2[e]});
}

/* The CPU's answer for inputs of both products that are rounded; the mixture's x stays rounded. */
static void expect_rounded(const struct mixture *m, enum dtype dtype, bool shared) {
    struct experts_args a = mixture_on(m, 0, 0, m->x.host.rows);
    round_rows(dtype, a.x);
    for (int i = 0; i < a.y.rows; i++)
        for (int j = 0; j < a.y.cols; j++) {
            float gate = 1 / (1 + expf(-tensor_get(a.gate, i, 0)));
            tensor_set(a.y, i, j, shared ? gate * tensor_get(a.shared, i, j) : 0);
        }
    for (int e = 0; e < EXPERTS; e++) {
        run_rounded(&a, dtype, e);
        for (int i = 0; i < a.y.rows; i++)
            for (int slot = 0; slot < USED; slot++) {
                if ((int)tensor_get(a.routes, i, USED + slot) != e) continue;
                float weight = tensor_get(a.routes, i, slot);
                for (int j = 0; j < a.y.cols; j++)
                    tensor_set(a.y, i, j, tensor_get(a.y, i, j) + weight * tensor_get(a.few, i, j));
            }
    }
}

/* Many rows and the gated ones are rounded to the type of f16 and bf16 weights, and to bf16 with
 * weights in blocks, which are rounded too. A gated value on the edge is rounded the other way now
 * and then: 2^-9 of some tens. Nothing else is rounded to less than f32. */
static void check_mixture(enum dtype dtype, int rows, int hidden, int ffn, bool shared) {
    if (!chosen()) return;
    bool rounds = dtype != DTYPE_F32 && hidden % 4 == 0 && rows > CUDA_FEW_ROWS;
    struct mixture m;
    mixture_open(&m, dtype, rows, hidden, ffn);
    run_mixture(&m, 1, shared);
    if (rounds)
        expect_rounded(&m, dtype, shared);
    else
        run_mixture(&m, 0, shared);
    assert_both(m.y, rounds ? 0.05 : 1e-4, "experts");
    mixture_close(&m);
}

static void test_experts(void **state) {
    (void)state;
    static const int row_counts[] = {1, 3, 19};
    for (size_t i = 0; i < ARRAY_COUNT(row_counts); i++)
        for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
            check_mixture(dtype, row_counts[i], dtype == DTYPE_F16 ? 36 : 64,
                          dtype == DTYPE_BF16 ? 20 : 32, i != 1);
}

/* Tiles that are not full, several of them, rows that are no whole quads, and blocks. */
static void test_shapes(void **state) {
    (void)state;
    static const int row_counts[] = {2, CUDA_FEW_ROWS, 40};
    static const struct {
        enum dtype dtype;
        int hidden, ffn;
    } shapes[] = {{DTYPE_F32, 37, 21},  {DTYPE_F16, 34, 18},   {DTYPE_F16, 68, 36},
                  {DTYPE_BF16, 76, 72}, {DTYPE_INT8, 160, 96}, {DTYPE_INT4, 288, 32}};
    for (size_t i = 0; i < ARRAY_COUNT(row_counts); i++)
        for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
            check_mixture(shapes[s].dtype, row_counts[i], shapes[s].hidden, shapes[s].ffn, i != 1);
    /* Two tiles of one expert. */
    check_mixture(DTYPE_F32, 170, 37, 21, true);
    check_mixture(DTYPE_BF16, 170, 36, 20, true);
}

/* Experts whose weights differ in type: each is multiplied as its own. */
static void test_mixed_types(void **state) {
    (void)state;
    if (!chosen()) return;
    struct mixture m;
    mixture_open(&m, DTYPE_F32, 9, 64, 32);
    for (int i = 1; i < EXPERTS; i += 2) {
        struct packed up = pack_both(DTYPE_INT8, 64, 64, false);
        backend_release(reference, m.fc1[0][i].data);
        backend_release(device, m.fc1[1][i].data);
        m.fc1[0][i] = up.on_cpu;
        m.fc1[1][i] = up.on_device;
    }
    for (int on_device = 0; on_device < 2; on_device++) run_mixture(&m, on_device, true);
    assert_both(m.y, 1e-4, "experts of two types");
    mixture_close(&m);
}

/* Biases of both products, and gates that are cut off. */
static void test_biases(void **state) {
    (void)state;
    static const int row_counts[] = {1, 7, 40};
    for (size_t i = 0; i < ARRAY_COUNT(row_counts); i++) {
        if (!chosen()) continue;
        struct mixture m;
        mixture_open(&m, DTYPE_F32, row_counts[i], 37, 21);
        m.biased = true;
        for (int on_device = 0; on_device < 2; on_device++) run_mixture(&m, on_device, i == 1);
        assert_both(m.y, 1e-4, "experts with biases");
        mixture_close(&m);
    }
}

static float *download_rows(struct tensor t) {
    float *rows = xmalloc((size_t)t.rows * (size_t)t.stride * sizeof *rows);
    backend_download(device, rows, t.data, (size_t)t.rows * (size_t)t.stride * sizeof *rows);
    device_sync();
    return rows;
}

/* Rows [first, first + n) computed by themselves are what they are among `rows`, to the bit. */
static void check_alone(const struct mixture *m, int rows, int first, int n) {
    struct experts_args all = mixture_on(m, 1, 0, rows), some = mixture_on(m, 1, first, n);
    backend_experts(device, &all);
    float *expected = download_rows(some.y);
    backend_experts(device, &some);
    float *found = download_rows(some.y);
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)i * (size_t)some.y.stride;
        assert_memory_equal(found + at, expected + at, (size_t)some.y.cols * sizeof *found);
    }
    free(expected);
    free(found);
}

static void test_rows_alone(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16,
                                        DTYPE_INT8, DTYPE_INT4, DTYPE_FP8};
    for (size_t i = 0; i < ARRAY_COUNT(dtypes); i++) {
        if (!chosen()) continue;
        struct mixture m;
        mixture_open(&m, dtypes[i], 40, 64, 32);
        check_alone(&m, CUDA_FEW_ROWS, 0, 1);
        check_alone(&m, CUDA_FEW_ROWS, 7, 2);
        check_alone(&m, CUDA_FEW_ROWS, 3, 11);
        check_alone(&m, 40, 20, CUDA_FEW_ROWS + 1);
        mixture_close(&m);
    }
}

/* A mixture of one expert is its MLP, to the bit where rows are few. */
static void check_single(enum dtype dtype, int rows) {
    struct mixture m;
    mixture_open(&m, dtype, rows, 64, 32);
    struct experts_args a = mixture_on(&m, 1, 0, rows);
    struct both routes = both_empty(DTYPE_F32, rows, 2, 0);
    for (int i = 0; i < rows; i++) {
        tensor_set(routes.host, i, 0, 1);
        tensor_set(routes.host, i, 1, 0);
    }
    backend_upload(device, routes.device.data, routes.host.data, tensor_bytes(routes.host));
    a.routes = routes.device;
    a.parts = tensor_cols(a.parts, 0, a.x.cols);
    a.shared.data = a.gate.data = NULL;
    a.n_experts = 1;
    backend_experts(device, &a);
    float *found = download_rows(a.y);
    backend_linear(device, &(struct linear_args){.y = a.wide, .x = a.x, .weight = &a.fc1[0]});
    backend_glu(device, &(struct glu_args){.y = a.gated, .x = a.wide, .gating = a.gating});
    backend_linear(device, &(struct linear_args){.y = a.y, .x = a.gated, .weight = &a.fc2[0]});
    float *expected = download_rows(a.y);
    for (int i = 0; i < rows; i++) {
        const size_t at = (size_t)i * (size_t)a.y.stride;
        for (int j = 0; j < a.y.cols; j++) {
            float one = found[at + (size_t)j], other = expected[at + (size_t)j];
            bool few = rows <= CUDA_FEW_ROWS && dtype != DTYPE_F32;
            if (few ? one != other : !(fabsf(one - other) <= 0.02f * fmaxf(1, fabsf(other))))
                fail_msg("%s, %d rows: (%d, %d) is %.9g, the MLP %.9g", dtype_name(dtype), rows, i,
                         j, (double)one, (double)other);
        }
    }
    free(found);
    free(expected);
    both_free(routes);
    mixture_close(&m);
}

static void test_single_expert(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16,
                                        DTYPE_INT8, DTYPE_INT4, DTYPE_FP8};
    static const int row_counts[] = {1, 15, 17};
    for (size_t i = 0; i < ARRAY_COUNT(dtypes); i++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            if (chosen()) check_single(dtypes[i], row_counts[r]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(test_route),      TEST(test_route_order),   TEST(test_experts),
        TEST(test_shapes),     TEST(test_mixed_types),   TEST(test_biases),
        TEST(test_rows_alone), TEST(test_single_expert), TEST(test_route_rules)};
    RUN_TESTS(argc, argv, tests);
}
