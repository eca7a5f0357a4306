/* tests/ops/test_ops_experts.c: the choice of experts and their sum against double loops, in every
 * variant, and the promise that a row's result does not depend on the rows that share its experts.
 */
#include "kernels/quantise.h"
#include "tests/ops/ops.h"

enum { EXPERTS = 7, USED = 3, HIDDEN = 32, FFN = 64, ROWS = 37 };

static struct tensor route(struct backend *b, struct tensor logits, int used, bool renormalise) {
    struct tensor y = padded_tensor(DTYPE_F32, logits.rows, 2 * used, 3);
    backend_route(b, &(struct route_args){.y = y, .logits = logits, .renormalise = renormalise});
    assert_gaps_untouched(y);
    return y;
}

/* Weights fall, are those of the softmax, and no expert that was left out is likelier than one that
 * was taken. */
static void check_routes(struct tensor logits, struct tensor y, bool renormalise) {
    int used = y.cols / 2;
    for (int i = 0; i < y.rows; i++) {
        bool taken[40] = {false};
        double sum = 0, kept = 0, least = INFINITY;
        for (int j = 0; j < logits.cols; j++) sum += exp(tensor_get(logits, i, j));
        for (int j = 0; j < used; j++)
            kept += exp(tensor_get(logits, i, (int)tensor_get(y, i, used + j)));
        for (int j = 0; j < used; j++) {
            int expert = (int)tensor_get(y, i, used + j);
            double logit = tensor_get(logits, i, expert);
            assert_true(!taken[expert] && logit <= least);
            assert_true(fabs(tensor_get(y, i, j) - exp(logit) / (renormalise ? kept : sum)) <=
                        1e-6);
            taken[expert] = true;
            least = logit;
        }
        for (int j = 0; j < logits.cols; j++)
            assert_true(taken[j] || tensor_get(logits, i, j) <= least);
    }
}

static void route_sizes(struct backend *b) {
    static const int sizes[][2] = {{1, 1}, {2, 2}, {7, 3}, {33, 1}, {40, 8}};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
        for (int renormalise = 0; renormalise < 2; renormalise++) {
            struct tensor logits = random_tensor(DTYPE_F32, ROWS, sizes[s][0], 2);
            struct tensor y = route(b, logits, sizes[s][1], renormalise);
            check_routes(logits, y, renormalise);
            free(logits.data);
            free(y.data);
        }
}

/* The lowest expert first among equals; NaN last, and its row is NaN. */
static void route_order(struct backend *b) {
    const float rows[][5] = {
        {1, 2, 2, 1, 2}, {0, 0, 0, 0, 0}, {-1, NAN, -3, -2, -9}, {NAN, NAN, NAN, NAN, NAN}};
    const int expected[][4] = {{1, 2, 4, 0}, {0, 1, 2, 3}, {0, 3, 2, 4}, {0, 1, 2, 3}};
    struct tensor logits = padded_tensor(DTYPE_F32, 4, 5, 0);
    memcpy(logits.data, rows, sizeof rows);
    struct tensor y = route(b, logits, 4, true);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            assert_int_equal((int)tensor_get(y, i, 4 + j), expected[i][j]);
            assert_int_equal(isnan(tensor_get(y, i, j)), i >= 2);
        }
    assert_true(tensor_get(y, 1, 0) == 0.25f && tensor_get(y, 1, 3) == 0.25f);
    free(logits.data);
    free(y.data);
}

/* Groups of the two best sums, or of the best scores, and within them the best scores, found by
 * trying every set apart. */
static void choose_slowly(const struct route_args *args, const double *keys, bool *chosen) {
    int n = args->logits.cols, groups = max_int(args->groups, 1), size = n / groups;
    bool open[64] = {false};
    for (int used = 0; used < max_int(args->groups_used, 1); used++) {
        double best = -INFINITY;
        int group = 0;
        for (int g = 0; g < groups; g++)
            for (int a = g * size; a < (g + 1) * size; a++)
                for (int b = g * size; b < (g + 1) * size; b++) {
                    bool alone = args->group_best == 1 || size == 1;
                    double sum = keys[a] + (alone ? 0 : keys[b]);
                    if (open[g * size] || (a == b) != alone || sum <= best) continue;
                    best = sum;
                    group = g;
                }
        for (int i = group * size; i < (group + 1) * size; i++) open[i] = true;
    }
    for (int j = 0; j < args->y.cols / 2; j++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (open[i] && !chosen[i] && (best < 0 || keys[i] > keys[best])) best = i;
        chosen[best] = true;
    }
}

static void check_ruled_row(const struct route_args *args, int row) {
    int n = args->logits.cols, used = args->y.cols / 2;
    double scores[64], keys[64], sum = 0, kept = 0, last = INFINITY;
    bool chosen[64] = {false};
    for (int i = 0; i < n; i++) sum += exp(tensor_get(args->logits, row, i));
    for (int i = 0; i < n; i++) {
        double logit = tensor_get(args->logits, row, i);
        scores[i] = args->sigmoid ? 1 / (1 + exp(-logit)) : exp(logit) / sum;
        keys[i] = scores[i] + (args->bias ? (double)args->bias[i] : 0);
    }
    choose_slowly(args, keys, chosen);
    for (int i = 0; i < n; i++) kept += chosen[i] ? scores[i] : 0;
    for (int j = 0; j < used; j++) {
        int expert = (int)tensor_get(args->y, row, used + j);
        double weight = scores[expert] / (args->renormalise ? kept : 1);
        weight *= args->scale > 0 ? (double)args->scale : 1;
        weight *= args->factors ? (double)args->factors[expert] : 1;
        assert_true(chosen[expert] && keys[expert] <= last);
        assert_true(fabs(tensor_get(args->y, row, j) - weight) <= 1e-6);
        chosen[expert] = false;
        last = keys[expert];
    }
}

/* Sigmoids, a bias that chooses and does not weigh, groups, a scale, a factor of each expert. */
static void route_rules(struct backend *b) {
    static const int sizes[][4] = {{7, 3, 0, 0}, {12, 4, 4, 2}, {64, 8, 8, 4}, {6, 6, 3, 3}};
    for (int rules = 0; rules < 64; rules++)
        for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
            int n = sizes[s][0], used = sizes[s][1];
            struct tensor logits = random_tensor(DTYPE_F32, ROWS, n, 2),
                          bias = random_tensor(DTYPE_F32, 1, n, 0),
                          factors = random_tensor(DTYPE_F32, 1, n, 0);
            struct route_args args = {.y = padded_tensor(DTYPE_F32, ROWS, 2 * used, 3),
                                      .logits = logits,
                                      .bias = rules & 1 ? bias.data : NULL,
                                      .factors = rules & 32 ? factors.data : NULL,
                                      .sigmoid = rules & 2,
                                      .renormalise = rules & 4,
                                      .groups = sizes[s][2],
                                      .groups_used = sizes[s][3],
                                      .group_best = rules & 16 ? 1 : 0,
                                      .scale = rules & 8 ? 2.5f : 0};
            backend_route(b, &args);
            assert_gaps_untouched(args.y);
            for (int i = 0; i < ROWS; i++) check_ruled_row(&args, i);
            free(logits.data);
            free(bias.data);
            free(factors.data);
            free(args.y.data);
        }
}

static void test_route(void **state) {
    (void)state;
    for_each_variant(route_sizes, 2);
    for_each_variant(route_order, 1);
}

/* A mixture with its rows, and the weights as f32: what packing makes of them. */
struct mixture {
    struct experts_args args;
    struct weight fc1[EXPERTS], fc2[EXPERTS];
    float *wide1[EXPERTS], *wide2[EXPERTS];
    float *bias1[EXPERTS], *bias2[EXPERTS];
};

static float *pack_random(struct backend *b, struct weight *w, enum dtype dtype, int n_out,
                          int n_in) {
    size_t n = (size_t)n_out * (size_t)n_in;
    float *wide = random_array(n);
    uint8_t *values = xmalloc(n);
    uint16_t *scales = xmalloc(n / QUANTISE_BLOCK * sizeof *scales),
             *minimums = xmalloc(n / QUANTISE_BLOCK * 2);
    struct host_matrix host = {.values = wide};
    struct quantised_row rows = {values, scales, dtype == DTYPE_INT4 ? minimums : NULL};
    *w = (struct weight){.dtype = dtype, .n_out = n_out, .n_in = n_in};
    if (dtype_quantised(dtype)) {
        for (int i = 0; i < n_out; i++)
            assert_true(quantise_row(dtype, quantised_row_at(rows, dtype, n_in, i), wide + i * n_in,
                                     NULL, n_in));
        host = (struct host_matrix){
            .values = values, .scales = scales, .minimums = rows.minimums, .dtype = dtype};
    }
    assert_int_equal(backend_pack(b, w, &host, NULL), STATUS_OK);
    free(values);
    free(scales);
    free(minimums);
    return wide;
}

static struct tensor plain_rows(int cols) { return padded_tensor(DTYPE_F32, ROWS, cols, 1); }

static void mixture_open(struct mixture *m, struct backend *b, enum dtype dtype) {
    for (int i = 0; i < EXPERTS; i++) {
        m->wide1[i] = pack_random(b, &m->fc1[i], dtype, 2 * FFN, HIDDEN);
        m->wide2[i] = pack_random(b, &m->fc2[i], dtype, HIDDEN, FFN);
        m->bias1[i] = random_array(2 * FFN);
        m->bias2[i] = random_array(HIDDEN);
    }
    struct tensor logits = random_tensor(DTYPE_F32, ROWS, EXPERTS, 0);
    for (int i = 0; i < ROWS; i++) tensor_set(logits, i, 4, -50); /* an expert that nobody uses */
    m->args = (struct experts_args){.y = plain_rows(HIDDEN),
                                    .x = random_tensor(DTYPE_F32, ROWS, HIDDEN, 2),
                                    .routes = route(b, logits, USED, true),
                                    .fc1 = m->fc1,
                                    .fc2 = m->fc2,
                                    .shared = random_tensor(DTYPE_F32, ROWS, HIDDEN, 0),
                                    .gate = random_tensor(DTYPE_F32, ROWS, 1, 6),
                                    .few = plain_rows(HIDDEN),
                                    .parts = plain_rows(USED * HIDDEN),
                                    .wide = plain_rows(2 * FFN),
                                    .gated = plain_rows(FFN),
                                    .n_experts = EXPERTS,
                                    .gating = {.activation = ACTIVATION_SILU}};
    free(logits.data);
}

static void mixture_close(struct mixture *m, struct backend *b) {
    const struct experts_args *a = &m->args;
    struct tensor all[] = {a->y,   a->x,     a->routes, a->shared, a->gate,
                           a->few, a->parts, a->wide,   a->gated};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) free(all[i].data);
    for (int i = 0; i < EXPERTS; i++) {
        backend_release(b, m->fc1[i].data);
        backend_release(b, m->fc2[i].data);
        free(m->wide1[i]);
        free(m->wide2[i]);
        free(m->bias1[i]);
        free(m->bias2[i]);
    }
}

/* out += weight * expert(row of x), or expert(weight * row). */
static void add_expert(const struct mixture *m, const struct experts_args *args, int row,
                       int expert, double weight, double out[HIDDEN]) {
    const struct gating *gating = &args->gating;
    double limit = gating->limit > 0 ? (double)gating->limit : INFINITY,
           slope = gating->activation == ACTIVATION_QUICK_GELU ? 1.702 : 1,
           given = args->weighs_inputs ? weight : 1;
    if (args->weighs_inputs) weight = 1;
    for (int j = 0; args->bias2 && j < HIDDEN; j++) out[j] += weight * m->bias2[expert][j];
    for (int f = 0; f < FFN; f++) {
        double gate = args->bias1 ? m->bias1[expert][f] : 0,
               up = args->bias1 ? m->bias1[expert][FFN + f] : 0;
        for (int j = 0; j < HIDDEN; j++) {
            double x = given * tensor_get(m->args.x, row, j);
            gate += x * m->wide1[expert][f * HIDDEN + j];
            up += x * m->wide1[expert][(FFN + f) * HIDDEN + j];
        }
        gate = fmin(gate, limit);
        up = fmax(-limit, fmin(up, limit)) + gating->shift;
        double inner = weight * up * gate / (1 + exp(-slope * gate));
        for (int j = 0; j < HIDDEN; j++) out[j] += inner * m->wide2[expert][j * FFN + f];
    }
}

static void experts_sum(struct backend *b) {
    struct mixture m;
    mixture_open(&m, b, DTYPE_F32);
    for (int with = 0; with < 5; with++) {
        struct experts_args a = m.args;
        a.weighs_inputs = with == 4;
        if (with == 0) a.shared = (struct tensor){0};
        if (with != 1) a.gate = (struct tensor){0};
        if (with == 3) {
            a.bias1 = m.bias1;
            a.bias2 = m.bias2;
            a.gating = (struct gating){ACTIVATION_QUICK_GELU, 0.5f, 1, 0};
        }
        backend_experts(b, &a);
        for (int i = 0; i < ROWS; i++) {
            double out[HIDDEN] = {0}, gate = 1;
            if (with == 1) gate = 1 / (1 + exp(-tensor_get(m.args.gate, i, 0)));
            for (int j = 0; j < USED; j++)
                add_expert(&m, &a, i, (int)tensor_get(a.routes, i, USED + j),
                           tensor_get(a.routes, i, j), out);
            for (int j = 0; j < HIDDEN; j++) {
                double expected = out[j] + (with ? gate * tensor_get(m.args.shared, i, j) : 0);
                assert_true(fabs(tensor_get(a.y, i, j) - expected) <= 1e-4);
            }
        }
        assert_gaps_untouched(a.y);
    }
    mixture_close(&m, b);
}

/* Experts without gate, whose widened rows and activated ones are in one place. */
static void experts_plain(struct backend *b) {
    struct mixture m;
    struct weight plain[EXPERTS];
    float *wide[EXPERTS];
    mixture_open(&m, b, DTYPE_F32);
    for (int i = 0; i < EXPERTS; i++) wide[i] = pack_random(b, &plain[i], DTYPE_F32, FFN, HIDDEN);
    struct experts_args a = m.args;
    a.fc1 = plain;
    a.gate = (struct tensor){0};
    a.wide = a.gated;
    a.gating = (struct gating){.activation = ACTIVATION_RELU_SQUARED, .plain = 1};
    backend_experts(b, &a);
    for (int i = 0; i < ROWS; i++) {
        double out[HIDDEN] = {0};
        for (int j = 0; j < USED * FFN; j++) {
            int expert = (int)tensor_get(a.routes, i, USED + j / FFN), f = j % FFN;
            double inner = 0;
            for (int c = 0; c < HIDDEN; c++)
                inner += (double)tensor_get(a.x, i, c) * (double)wide[expert][f * HIDDEN + c];
            inner = (double)tensor_get(a.routes, i, j / FFN) * fmax(0, inner) * fmax(0, inner);
            for (int c = 0; c < HIDDEN; c++) out[c] += inner * (double)m.wide2[expert][c * FFN + f];
        }
        for (int c = 0; c < HIDDEN; c++)
            assert_true(fabs((double)tensor_get(a.y, i, c) - out[c] -
                             (double)tensor_get(a.shared, i, c)) <= 1e-4);
    }
    assert_gaps_untouched(a.y);
    for (int i = 0; i < EXPERTS; i++) {
        backend_release(b, plain[i].data);
        free(wide[i]);
    }
    mixture_close(&m, b);
}

static void test_plain_experts(void **state) {
    (void)state;
    for_each_variant(experts_plain, 2);
}

static void test_experts(void **state) {
    (void)state;
    for_each_variant(experts_sum, 2);
}

/* The first `rows` of t from `first` on. */
static struct experts_args mixture_rows(const struct experts_args *a, int first, int rows) {
    struct experts_args part = *a;
    struct tensor *all[] = {&part.x,   &part.routes, &part.shared, &part.gate,
                            &part.few, &part.parts,  &part.wide,   &part.gated};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        if (all[i]->data) *all[i] = tensor_rows(*all[i], first, rows);
    part.y = padded_tensor(DTYPE_F32, rows, a->y.cols, 0);
    return part;
}

static void check_parts(struct backend *b, const struct experts_args *all, int most) {
    backend_experts(b, all);
    for (int rows = 1; rows <= most; rows++)
        for (int first = 0; first + rows <= all->x.rows; first += rows) {
            struct experts_args part = mixture_rows(all, first, rows);
            backend_experts(b, &part);
            for (int i = 0; i < rows; i++) assert_rows_equal(part.y, i, all->y, first + i);
            free(part.y.data);
        }
}

/* All rows in one call against batches of every size, bit for bit. */
static void experts_batches(struct backend *b) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_INT8, DTYPE_INT4};
    for (size_t t = 0; t < ARRAY_COUNT(dtypes); t++) {
        struct mixture m;
        mixture_open(&m, b, dtypes[t]);
        check_parts(b, &m.args, ROWS - 1);
        m.args.weighs_inputs = true;
        check_parts(b, &m.args, 2);
        m.args.bias1 = m.bias1;
        m.args.bias2 = m.bias2;
        check_parts(b, &m.args, 2);
        mixture_close(&m, b);
    }
}

/* Experts of types that come in super-blocks, of one type or of two. */
enum { WIDE = SUPER_BLOCK, FEW = 5 };

static struct weight pack_bytes(struct backend *b, enum dtype dtype, int n_out, int n_in) {
    struct weight w = {.dtype = dtype, .n_out = n_out, .n_in = n_in};
    size_t n = (size_t)n_out * (size_t)n_in;
    uint8_t *raw = xmalloc(2 * n), *exponents = xmalloc(n / QUANTISE_BLOCK);
    if (dtype == DTYPE_MXFP4)
        for (size_t i = 0; i < n / 2; i++) raw[i] = (uint8_t)random_bits();
    else
        random_supers(raw, dtype, n / SUPER_BLOCK);
    for (size_t i = 0; i < n / QUANTISE_BLOCK; i++) exponents[i] = (uint8_t)(118 + random_int(8));
    struct host_matrix host = {.values = raw, .dtype = dtype};
    if (dtype == DTYPE_MXFP4) host.exponents = exponents;
    assert_int_equal(backend_pack(b, &w, &host, NULL), STATUS_OK);
    free(raw);
    free(exponents);
    return w;
}

static void check_supers(struct backend *b, enum dtype first, enum dtype second, enum dtype last) {
    struct weight fc1[EXPERTS], fc2[EXPERTS];
    struct tensor logits = random_tensor(DTYPE_F32, FEW, EXPERTS, 0);
    for (int i = 0; i < EXPERTS; i++) {
        fc1[i] = pack_bytes(b, first, 2 * WIDE, WIDE);
        fc2[i] = pack_bytes(b, i == EXPERTS / 2 ? last : second, WIDE, WIDE);
    }
    struct experts_args a = {.y = padded_tensor(DTYPE_F32, FEW, WIDE, 1),
                             .x = random_tensor(DTYPE_F32, FEW, WIDE, 2),
                             .routes = route(b, logits, USED, true),
                             .fc1 = fc1,
                             .fc2 = fc2,
                             .few = padded_tensor(DTYPE_F32, FEW, WIDE, 1),
                             .parts = padded_tensor(DTYPE_F32, FEW, USED * WIDE, 1),
                             .wide = padded_tensor(DTYPE_F32, FEW, 2 * WIDE, 1),
                             .gated = padded_tensor(DTYPE_F32, FEW, WIDE, 1),
                             .n_experts = EXPERTS,
                             .gating = {.activation = ACTIVATION_SILU}};
    check_parts(b, &a, 2);
    struct tensor all[] = {logits, a.y, a.x, a.routes, a.few, a.parts, a.wide, a.gated};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) free(all[i].data);
    for (int i = 0; i < EXPERTS; i++) {
        backend_release(b, fc1[i].data);
        backend_release(b, fc2[i].data);
    }
}

static void experts_supers(struct backend *b) {
    check_supers(b, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q6_K);
    check_supers(b, DTYPE_Q5_K, DTYPE_Q4_K, DTYPE_Q6_K);
    check_supers(b, DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_MXFP4);
}

static void test_supers(void **state) {
    (void)state;
    for_each_variant(experts_supers, 2);
}

static void test_batches(void **state) {
    (void)state;
    for_each_variant(experts_batches, 2);
}

static void test_route_rules(void **state) {
    (void)state;
    for_each_variant(route_rules, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),         cmocka_unit_test(test_experts),
        cmocka_unit_test(test_plain_experts), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_supers),        cmocka_unit_test(test_route_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
