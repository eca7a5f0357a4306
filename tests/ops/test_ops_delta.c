/* tests/ops/test_ops_delta.c: short convolutions, and behind them gated delta nets and state spaces
 * against the recurrence in double, on every variant: one sequence and several, cut into spans
 * anywhere, in the bits of each row alone; and rows that are weighed by gates. */
#include "tests/ops/ops.h"

enum { ROWS = 70, STATES = 6 };

/* A net, and rows of one or more sequences. */
struct net {
    enum delta_rule rule;
    float write_scale;
    int key_heads, value_heads, key_dim, value_dim, kernel, channels;
    struct tensor x, gates, filter, convolved, states, y;
    float *rate, *bias, *skip, *filter_bias;
};

/* The steps of state spaces. */
static const float least = 0.3f, most = 2;

static struct net net_make(enum delta_rule rule, int key_heads, int value_heads, int key_dim,
                           int value_dim, int kernel) {
    struct net net = {.rule = rule,
                      .key_heads = key_heads,
                      .value_heads = value_heads,
                      .key_dim = key_dim,
                      .value_dim = value_dim,
                      .kernel = kernel};
    net.channels = 2 * key_heads * key_dim + value_heads * value_dim;
    int columns = (kernel - 1) * net.channels + value_heads * key_dim * value_dim;
    bool adds = rule == DELTA_ADDS;
    net.write_scale = value_heads % 2 == 0 ? 2 : 0;
    net.x = random_tensor(DTYPE_F32, ROWS, net.channels, 3);
    net.convolved = padded_tensor(DTYPE_F32, ROWS, net.channels, 1);
    net.gates = random_tensor(DTYPE_F32, ROWS, (adds ? 1 : 2) * value_heads, 1);
    net.filter = random_tensor(DTYPE_F32, net.channels, kernel, 0);
    net.states = padded_tensor(DTYPE_F32, STATES, columns, 5);
    net.y = padded_tensor(DTYPE_F32, ROWS, value_heads * value_dim, 2);
    net.rate = random_array((size_t)value_heads);
    net.bias = random_array((size_t)value_heads);
    net.skip = random_array((size_t)value_heads);
    net.filter_bias = adds ? random_array((size_t)net.channels) : NULL;
    for (int i = 0; i < value_heads; i++) net.rate[i] = fabsf(net.rate[i]);
    tensor_set(net.gates, 3, adds ? 0 : value_heads,
               40); /* softplus of so much is the number itself */
    return net;
}

static void net_free(struct net *net) {
    free(net->x.data);
    free(net->gates.data);
    free(net->filter.data);
    free(net->states.data);
    free(net->y.data);
    free(net->convolved.data);
    free(net->rate);
    free(net->bias);
    free(net->skip);
    free(net->filter_bias);
}

static void net_run(struct backend *b, const struct net *net, const struct state_span *spans,
                    int n) {
    backend_convolve(b, &(struct convolve_args){.y = net->convolved,
                                                .x = net->x,
                                                .filter = net->filter,
                                                .bias = net->filter_bias,
                                                .activation = ACTIVATION_SILU,
                                                .spans = spans,
                                                .n_spans = n,
                                                .states = net->states});
    backend_delta(b, &(struct delta_args){.y = net->y,
                                          .x = net->convolved,
                                          .gates = net->gates,
                                          .rate = net->rate,
                                          .bias = net->bias,
                                          .skip = net->skip,
                                          .least = least,
                                          .most = most,
                                          .rule = net->rule,
                                          .write_scale = net->write_scale,
                                          .spans = spans,
                                          .n_spans = n,
                                          .states = net->states,
                                          .key_heads = net->key_heads,
                                          .value_heads = net->value_heads,
                                          .key_dim = net->key_dim,
                                          .value_dim = net->value_dim});
    assert_int_equal(backend_sync(b, NULL), STATUS_OK);
}

/* The convolved channel of row `row` of a sequence that begins at row 0. */
static double channel(const struct net *net, int row, int at) {
    double sum = net->filter_bias ? (double)net->filter_bias[at] : 0;
    for (int j = 0; j < net->kernel; j++) {
        int from = row - net->kernel + 1 + j;
        if (from >= 0)
            sum += (double)tensor_get(net->filter, at, j) * (double)tensor_get(net->x, from, at);
    }
    return sum / (1 + exp(-sum));
}

/* The channels of a key from `first` on; of a delta net divided by their length and multiplied by
 * `scale`. */
static void take_key(const struct net *net, int row, int first, double scale, double *to) {
    double squares = 0;
    for (int i = 0; i < net->key_dim; i++) {
        to[i] = channel(net, row, first + i);
        squares += to[i] * to[i];
    }
    for (int i = 0; i < net->key_dim && net->rule == DELTA_CORRECTS; i++)
        to[i] *= scale / sqrt(squares + 1e-6);
}

static double softplus(double a) { return a > 30 ? a : log1p(exp(a)); }

/* One row of one head: S as the formula has it. */
static void reference_row(const struct net *net, int row, int head, double *state, double *y) {
    bool adds = net->rule == DELTA_ADDS;
    int group = net->value_heads / net->key_heads, keys = net->key_dim, values = net->value_dim,
        key_head = head / group, all = net->key_heads * keys;
    int v = head * values + (adds ? 0 : 2 * all),
        k_at = key_head * keys + (adds ? net->value_heads * values : all),
        q_at = adds ? k_at + all : key_head * keys;
    double q[DELTA_MAX_HEAD], k[DELTA_MAX_HEAD];
    double gate = (double)tensor_get(net->gates, row, head);
    double a = adds ? gate : (double)tensor_get(net->gates, row, net->value_heads + head);
    double step = softplus(a + (double)net->bias[head]);
    if (adds) step = fmin(fmax(step, (double)least), (double)most);
    double decay = exp(-(double)net->rate[head] * step);
    double scale = net->write_scale > 0 ? (double)net->write_scale : 1;
    double strength = adds ? step : scale / (1 + exp(-gate));
    take_key(net, row, q_at, 1 / sqrt((double)keys), q);
    take_key(net, row, k_at, 1, k);
    for (int c = 0; c < values; c++) {
        double found = 0, value = channel(net, row, v + c);
        y[c] = adds ? (double)net->skip[head] * value : 0;
        for (int i = 0; i < keys; i++) {
            state[i * values + c] *= decay;
            found += adds ? 0 : k[i] * state[i * values + c];
        }
        double write = strength * (value - found);
        for (int i = 0; i < keys; i++) {
            state[i * values + c] += k[i] * write;
            y[c] += q[i] * state[i * values + c];
        }
    }
}

static void check_reference(const struct net *net) {
    double *state = calloc((size_t)net->key_dim * (size_t)net->value_dim, sizeof *state);
    double y[DELTA_MAX_HEAD],
        tolerance = net->rule == DELTA_ADDS ? 1e-4 : 2e-6; /* sums are longer */
    for (int head = 0; head < net->value_heads; head++) {
        memset(state, 0, (size_t)net->key_dim * (size_t)net->value_dim * sizeof *state);
        for (int row = 0; row < ROWS; row++) {
            reference_row(net, row, head, state, y);
            for (int c = 0; c < net->value_dim; c++) {
                double found = (double)tensor_get(net->y, row, head * net->value_dim + c);
                if (!(fabs(found - y[c]) <= tolerance))
                    fail_msg("head %d row %d column %d: %.9g, expected %.9g", head, row, c, found,
                             y[c]);
            }
        }
    }
    free(state);
}

/* Cuts rows [0, ROWS) anywhere; the parts go from one state to another, and some leave a copy. */
static int cut_rows(struct state_span *spans) {
    int n = 0, at = 0, state = STATES - 1;
    bool begun = false;
    while (at < ROWS) {
        int rows = 1 + random_int(ROWS - at), to = random_int(STATES - 1);
        spans[n] = (struct state_span){at, rows, begun ? state : -1, to, begun};
        n++;
        if (random_int(3) == 0) {
            spans[n] = (struct state_span){at + rows, 0, to, (to + 1) % (STATES - 1), 1};
            n++;
        }
        at += rows;
        state = to;
        begun = true;
    }
    return n;
}

/* However rows are cut, in one call or in several: the bits of the whole. */
static void check_cuts(struct backend *b, struct net *net, const float *whole) {
    struct state_span spans[2 * ROWS];
    size_t bytes = (size_t)net->y.rows * (size_t)net->y.stride * sizeof(float);
    for (int round = 0; round < 12; round++) {
        int n = cut_rows(spans);
        if (round % 2 == 0) {
            net_run(b, net, spans, n);
        } else {
            for (int i = 0; i < n; i++) {
                spans[i].follows = 0;
                net_run(b, net, &spans[i], 1);
            }
        }
        assert_memory_equal(net->y.data, whole, bytes);
    }
}

/* Rows that nobody keeps leave every state as it is, and see what others would see. */
static void check_drafts(struct backend *b, struct net *net, const float *whole) {
    size_t bytes = (size_t)net->states.rows * (size_t)net->states.stride * sizeof(float),
           rows = (size_t)net->y.rows * (size_t)net->y.stride * sizeof(float);
    float *before = malloc(bytes);
    net_run(b, net, &(struct state_span){0, 30, -1, 2, 0}, 1);
    memcpy(before, net->states.data, bytes);
    net_run(b, net, &(struct state_span){30, ROWS - 30, 2, -1, 0}, 1);
    assert_memory_equal(net->states.data, before, bytes);
    assert_memory_equal(net->y.data, whole, rows);
    const struct state_span both[] = {{0, 50, -1, 0, 0}, {50, 0, 0, 1, 1}, {50, 20, 0, -1, 1}};
    net_run(b, net, both, 3);
    assert_memory_equal(net->y.data, whole, rows);
    float *states = net->states.data;
    assert_memory_equal(states, states + net->states.stride,
                        (size_t)net->states.cols * sizeof(float));
    free(before);
}

static void check_net(struct backend *b, enum delta_rule rule, const int *shape) {
    struct net net = net_make(rule, shape[0], shape[1], shape[2], shape[3], shape[4]);
    net_run(b, &net, &(struct state_span){0, ROWS, -1, -1, 0}, 1);
    assert_gaps_untouched(net.y);
    assert_gaps_untouched(net.convolved);
    check_reference(&net);
    size_t bytes = (size_t)net.y.rows * (size_t)net.y.stride * sizeof(float);
    float *whole = malloc(bytes);
    memcpy(whole, net.y.data, bytes);
    check_cuts(b, &net, whole);
    check_drafts(b, &net, whole);
    assert_gaps_untouched(net.states);
    free(whole);
    net_free(&net);
}

/* With more heads than a piece has, too. */
static void delta_values(struct backend *b) {
    static const int shapes[][5] = {{2, 4, 8, 20, 4},    {1, 1, 3, 5, 1},    {3, 3, 16, 16, 2},
                                    {2, 2, 128, 128, 4}, {1, 4, 33, 67, 8},  {2, 8, 64, 130, 3},
                                    {1, 37, 5, 4, 4},    {2, 4, 256, 256, 2}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        check_net(b, DELTA_CORRECTS, shapes[s]);
        check_net(b, DELTA_ADDS, shapes[s]);
    }
}

static void test_delta(void **state) {
    (void)state;
    for_each_variant(delta_values, 2);
}

/* Channels alone: values without activation, and the bits of the whole however rows are cut. */
static void check_convolution(struct backend *b, int channels, int kernel) {
    struct net net = {.kernel = kernel, .channels = channels};
    net.x = random_tensor(DTYPE_F32, ROWS, channels, 3);
    net.filter = random_tensor(DTYPE_F32, channels, kernel, 0);
    net.filter_bias = random_array((size_t)channels);
    net.states = padded_tensor(DTYPE_F32, STATES, (kernel - 1) * channels + 1, 5);
    net.y = padded_tensor(DTYPE_F32, ROWS, channels, 2);
    size_t bytes = (size_t)net.y.rows * (size_t)net.y.stride * sizeof(float);
    float *whole = malloc(bytes);
    for (int round = 0; round < 8; round++) {
        struct state_span spans[2 * ROWS] = {{0, ROWS, -1, -1, 0}};
        struct convolve_args args = {.y = net.y, .x = net.x, .filter = net.filter, .spans = spans};
        args.bias = net.filter_bias;
        args.states = net.states;
        args.n_spans = round == 0 ? 1 : cut_rows(spans);
        backend_convolve(b, &args);
        assert_int_equal(backend_sync(b, NULL), STATUS_OK);
        if (round == 0) memcpy(whole, net.y.data, bytes);
        assert_memory_equal(net.y.data, whole, bytes);
    }
    for (int row = 0; row < ROWS; row++)
        for (int at = 0; at < channels; at++) {
            double sum = (double)net.filter_bias[at];
            for (int j = max_int(0, kernel - 1 - row); j < kernel; j++)
                sum += (double)tensor_get(net.filter, at, j) *
                       (double)tensor_get(net.x, row - kernel + 1 + j, at);
            assert_true(fabs((double)tensor_get(net.y, row, at) - sum) <= 2e-6);
        }
    assert_gaps_untouched(net.y);
    free(whole);
    free(net.x.data);
    free(net.filter.data);
    free(net.states.data);
    free(net.y.data);
    free(net.filter_bias);
}

static void convolution_values(struct backend *b) {
    static const int shapes[][2] = {{1, 1}, {16, 3}, {37, 2}, {300, 3}, {513, 8}, {256, 4}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
        check_convolution(b, shapes[s][0], shapes[s][1]);
}

static void test_convolution(void **state) {
    (void)state;
    for_each_variant(convolution_values, 2);
}

static struct tensor copy_of(struct tensor t) {
    size_t bytes = (size_t)t.rows * (size_t)t.stride * sizeof(float);
    void *data = xmalloc(bytes);
    memcpy(data, t.data, bytes);
    t.data = data;
    return t;
}

static void gate_values(struct backend *b) {
    static const int sizes[] = {1, 16, 37, 256, 300, 1000};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
        for (int kind = 0; kind < 3; kind++) {
            struct tensor x = random_tensor(DTYPE_F32, 9, sizes[s], 1),
                          by = random_tensor(DTYPE_F32, 9, sizes[s], 4),
                          own = padded_tensor(DTYPE_F32, 9, sizes[s], 2);
            struct tensor y = kind == 0 ? own : kind == 1 ? x : by;
            struct tensor before = copy_of(x), weights = copy_of(by);
            backend_gate(
                b, &(struct gate_args){.y = y, .x = x, .by = by, .activation = ACTIVATION_SIGMOID});
            for (int i = 0; i < 9; i++)
                for (int j = 0; j < sizes[s]; j++) {
                    double expected =
                        tensor_get(weights, i, j) / (1 + exp(-(double)tensor_get(before, i, j)));
                    assert_true(fabs(tensor_get(y, i, j) - expected) <= 3e-7);
                }
            assert_gaps_untouched(y);
            free(x.data);
            free(by.data);
            free(own.data);
            free(before.data);
            free(weights.data);
        }
}

/* A column weighs several. */
static void gate_head_values(struct backend *b) {
    static const int sizes[][2] = {{1, 16}, {4, 1}, {4, 16}, {5, 7}, {300, 3}};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
        for (int inplace = 0; inplace < 2; inplace++) {
            int heads = sizes[s][0], each = sizes[s][1];
            struct tensor x = random_tensor(DTYPE_F32, 9, heads, 1),
                          by = random_tensor(DTYPE_F32, 9, heads * each, 4),
                          own = padded_tensor(DTYPE_F32, 9, heads * each, 2);
            struct tensor y = inplace ? by : own, weights = copy_of(by);
            backend_gate(
                b, &(struct gate_args){.y = y, .x = x, .by = by, .activation = ACTIVATION_SIGMOID});
            for (int i = 0; i < 9; i++)
                for (int j = 0; j < heads * each; j++) {
                    double expected =
                        tensor_get(weights, i, j) / (1 + exp(-(double)tensor_get(x, i, j / each)));
                    assert_true(fabs(tensor_get(y, i, j) - expected) <= 3e-7);
                }
            assert_gaps_untouched(y);
            free(x.data);
            free(by.data);
            free(own.data);
            free(weights.data);
        }
}

static void test_gate(void **state) {
    (void)state;
    for_each_variant(gate_values, 2);
    for_each_variant(gate_head_values, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_delta),
                                       cmocka_unit_test(test_convolution),
                                       cmocka_unit_test(test_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
