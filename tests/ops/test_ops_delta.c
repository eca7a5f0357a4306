/* tests/ops/test_ops_delta.c: gated delta nets against the recurrence in double, on every variant:
 * one sequence and several, cut into spans anywhere, in the bits of each row alone; and rows that
 * are weighed by gates. */
#include "tests/ops/ops.h"

enum { ROWS = 70, STATES = 6 };

/* A net, and rows of one or more sequences. */
struct net {
    int key_heads, value_heads, key_dim, value_dim, kernel, channels;
    struct tensor x, gates, filter, states, y;
    float *rate, *bias;
};

static struct net net_make(int key_heads, int value_heads, int key_dim, int value_dim, int kernel) {
    struct net net = {.key_heads = key_heads,
                      .value_heads = value_heads,
                      .key_dim = key_dim,
                      .value_dim = value_dim,
                      .kernel = kernel};
    net.channels = 2 * key_heads * key_dim + value_heads * value_dim;
    int columns = (int)delta_state_columns(key_heads, value_heads, key_dim, value_dim, kernel);
    net.x = random_tensor(DTYPE_F32, ROWS, net.channels, 3);
    net.gates = random_tensor(DTYPE_F32, ROWS, 2 * value_heads, 1);
    net.filter = random_tensor(DTYPE_F32, net.channels, kernel, 0);
    net.states = padded_tensor(DTYPE_F32, STATES, columns, 5);
    net.y = padded_tensor(DTYPE_F32, ROWS, value_heads * value_dim, 2);
    net.rate = random_array((size_t)value_heads);
    net.bias = random_array((size_t)value_heads);
    for (int i = 0; i < value_heads; i++) net.rate[i] = fabsf(net.rate[i]);
    tensor_set(net.gates, 3, value_heads, 40); /* softplus of so much is the number itself */
    return net;
}

static void net_free(struct net *net) {
    free(net->x.data);
    free(net->gates.data);
    free(net->filter.data);
    free(net->states.data);
    free(net->y.data);
    free(net->rate);
    free(net->bias);
}

static void net_run(struct backend *b, const struct net *net, const struct state_span *spans,
                    int n) {
    backend_delta(b, &(struct delta_args){.y = net->y,
                                          .x = net->x,
                                          .gates = net->gates,
                                          .filter = net->filter,
                                          .rate = net->rate,
                                          .bias = net->bias,
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
    double sum = 0;
    for (int j = 0; j < net->kernel; j++) {
        int from = row - net->kernel + 1 + j;
        if (from >= 0)
            sum += (double)tensor_get(net->filter, at, j) * (double)tensor_get(net->x, from, at);
    }
    return sum / (1 + exp(-sum));
}

/* n channels from `first` on, divided by their length and multiplied by `scale`. */
static void unit_vector(const struct net *net, int row, int first, double scale, double *to) {
    double squares = 0;
    for (int i = 0; i < net->key_dim; i++) {
        to[i] = channel(net, row, first + i);
        squares += to[i] * to[i];
    }
    for (int i = 0; i < net->key_dim; i++) to[i] *= scale / sqrt(squares + 1e-6);
}

/* One row of one head: S as the formula has it. */
static void reference_row(const struct net *net, int row, int head, double *state, double *y) {
    int group = net->value_heads / net->key_heads, keys = net->key_dim, values = net->value_dim,
        key_head = head / group, v = 2 * net->key_heads * keys + head * values;
    double q[DELTA_MAX_HEAD], k[DELTA_MAX_HEAD];
    double a =
        (double)tensor_get(net->gates, row, net->value_heads + head) + (double)net->bias[head];
    double decay = exp(-(double)net->rate[head] * (a > 30 ? a : log1p(exp(a))));
    double strength = 1 / (1 + exp(-(double)tensor_get(net->gates, row, head)));
    unit_vector(net, row, key_head * keys, 1 / sqrt((double)keys), q);
    unit_vector(net, row, (net->key_heads + key_head) * keys, 1, k);
    for (int c = 0; c < values; c++) {
        double found = 0;
        y[c] = 0;
        for (int i = 0; i < keys; i++) {
            state[i * values + c] *= decay;
            found += k[i] * state[i * values + c];
        }
        double write = strength * (channel(net, row, v + c) - found);
        for (int i = 0; i < keys; i++) {
            state[i * values + c] += k[i] * write;
            y[c] += q[i] * state[i * values + c];
        }
    }
}

static void check_reference(const struct net *net) {
    double *state = calloc((size_t)net->key_dim * (size_t)net->value_dim, sizeof *state);
    double y[DELTA_MAX_HEAD];
    for (int head = 0; head < net->value_heads; head++) {
        memset(state, 0, (size_t)net->key_dim * (size_t)net->value_dim * sizeof *state);
        for (int row = 0; row < ROWS; row++) {
            reference_row(net, row, head, state, y);
            for (int c = 0; c < net->value_dim; c++) {
                double found = (double)tensor_get(net->y, row, head * net->value_dim + c);
                if (!(fabs(found - y[c]) <= 2e-6))
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

static void delta_values(struct backend *b) {
    static const int shapes[][5] = {{2, 4, 8, 20, 4},    {1, 1, 3, 5, 1},   {3, 3, 16, 16, 2},
                                    {2, 2, 128, 128, 4}, {1, 4, 33, 67, 8}, {2, 8, 64, 130, 3}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct net net =
            net_make(shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], shapes[s][4]);
        net_run(b, &net, &(struct state_span){0, ROWS, -1, -1, 0}, 1);
        assert_gaps_untouched(net.y);
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
}

static void test_delta(void **state) {
    (void)state;
    for_each_variant(delta_values, 2);
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

static void test_gate(void **state) {
    (void)state;
    for_each_variant(gate_values, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_delta), cmocka_unit_test(test_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
