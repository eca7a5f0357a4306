/* tests/cuda/test_cuda_experts.c: mixtures of experts on the CUDA backend against the CPU. Arguments as for
 * test_cuda_ops. */
#include "kernels/cuda/open.h"
#include "tests/cuda/cuda_ops.h"

static struct route_args route_on(struct both y, struct both logits, bool renormalise, bool on_device) {
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

static struct packed pack_both(enum dtype dtype, int n_out, int n_in) {
    struct packed w = {.on_cpu = {.dtype = dtype, .n_out = n_out, .n_in = n_in}};
    struct host_matrix matrix = {.values = random_array((size_t)n_out * (size_t)n_in)};
    struct error e;
    w.on_device = w.on_cpu;
    assert_int_equal(backend_pack(reference, &w.on_cpu, &matrix, &e), STATUS_OK);
    assert_int_equal(backend_pack(device, &w.on_device, &matrix, &e), STATUS_OK);
    free((void *)(uintptr_t)matrix.values);
    return w;
}

enum { EXPERTS = 5, USED = 2 };

/* A mixture on both sides: the weights, and everything that has rows. */
struct mixture {
    struct weight fc1[2][EXPERTS], fc2[2][EXPERTS];
    struct both y, x, routes, shared, gate, few, parts, wide, gated;
};

static void mixture_open(struct mixture *m, enum dtype dtype, int rows, int hidden, int ffn) {
    for (int i = 0; i < EXPERTS; i++) {
        struct packed up = pack_both(dtype, 2 * ffn, hidden), down = pack_both(dtype, hidden, ffn);
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
}

static void mixture_close(struct mixture *m) {
    struct both *all[] = {&m->y, &m->x, &m->routes, &m->shared, &m->gate, &m->few, &m->parts, &m->wide, &m->gated};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) both_free(*all[i]);
    for (int i = 0; i < EXPERTS; i++) {
        backend_release(reference, m->fc1[0][i].data);
        backend_release(reference, m->fc2[0][i].data);
        backend_release(device, m->fc1[1][i].data);
        backend_release(device, m->fc2[1][i].data);
    }
}

static struct tensor side(struct both t, int on_device) { return on_device ? t.device : t.host; }

static void run_mixture(const struct mixture *m, int on_device, bool shared) {
    struct experts_args a = {.y = side(m->y, on_device),
                             .x = side(m->x, on_device),
                             .routes = side(m->routes, on_device),
                             .fc1 = m->fc1[on_device],
                             .fc2 = m->fc2[on_device],
                             .few = side(m->few, on_device),
                             .parts = side(m->parts, on_device),
                             .wide = side(m->wide, on_device),
                             .gated = side(m->gated, on_device),
                             .n_experts = EXPERTS,
                             .activation = ACTIVATION_SILU};
    if (shared) {
        a.shared = side(m->shared, on_device);
        a.gate = side(m->gate, on_device);
    }
    backend_experts(on_device ? device : reference, &a);
}

/* Many rows are rounded to the type of f16 and bf16 weights: 2^-9 of terms whose sizes add up to some tens. Nothing
 * else is rounded to less than f32. */
static void test_experts(void **state) {
    (void)state;
    static const int row_counts[] = {1, 3, 19};
    for (size_t i = 0; i < ARRAY_COUNT(row_counts); i++)
        for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
            if (!chosen()) continue;
            bool rounds = dtype != DTYPE_F32 && row_counts[i] > CUDA_FEW_ROWS;
            struct mixture m;
            mixture_open(&m, dtype, row_counts[i], dtype == DTYPE_F16 ? 36 : 64, dtype == DTYPE_BF16 ? 20 : 32);
            for (int on_device = 0; on_device < 2; on_device++) run_mixture(&m, on_device, i != 1);
            assert_both(m.y, rounds ? 0.1 : 1e-4, "experts");
            mixture_close(&m);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {TEST(test_route), TEST(test_route_order), TEST(test_experts)};
    RUN_TESTS(argc, argv, tests);
}
