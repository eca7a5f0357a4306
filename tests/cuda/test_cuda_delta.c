/* tests/cuda/test_cuda_delta.c: layers that keep states, and gates, on the device against the CPU
 * in plain loops: sequences side by side, rows cut into spans, states that are copied and ones that
 * nobody keeps; and the bits of a row alone. */
#include "tests/cuda/cuda_ops.h"

enum { ROWS = 23, STATES = 5 };

struct net {
    enum delta_rule rule;
    int key_heads, value_heads, key_dim, value_dim;
    struct both x, gates, filter, filter_bias, convolved, states, rate, bias, skip, y;
};

static struct net net_make(enum delta_rule rule, int key_heads, int value_heads, int key_dim,
                           int value_dim, int kernel) {
    int channels = 2 * key_heads * key_dim + value_heads * value_dim;
    int columns = (kernel - 1) * channels + value_heads * key_dim * value_dim;
    struct net net = {
        .rule = rule,
        .key_heads = key_heads,
        .value_heads = value_heads,
        .key_dim = key_dim,
        .value_dim = value_dim,
        .x = both_random(DTYPE_F32, ROWS, channels, 3),
        .gates = both_random(DTYPE_F32, ROWS, (rule == DELTA_ADDS ? 1 : 2) * value_heads, 1),
        .convolved = both_empty(DTYPE_F32, ROWS, channels, 1),
        .filter_bias = both_vector(channels),
        .skip = both_vector(value_heads),
        .filter = both_random(DTYPE_F32, channels, kernel, 0),
        .states = both_random(DTYPE_F32, STATES, columns, 4),
        .y = both_empty(DTYPE_F32, ROWS, value_heads * value_dim, 2)};
    struct tensor rate = random_tensor(DTYPE_F32, 1, value_heads, 0);
    for (int i = 0; i < value_heads; i++) tensor_set(rate, 0, i, fabsf(tensor_get(rate, 0, i)));
    net.rate = both_copy(rate);
    net.bias = both_vector(value_heads);
    return net;
}

static void net_free(struct net *net) {
    struct both *all[] = {&net->x,      &net->gates,    &net->filter, &net->filter_bias,
                          &net->states, &net->rate,     &net->bias,   &net->skip,
                          &net->y,      &net->convolved};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) both_free(*all[i]);
}

static void net_run(const struct net *net, bool host, const struct state_span *listed, int n) {
    struct backend *b = host ? reference : device;
#define SIDE(member) (host ? net->member.host : net->member.device)
    backend_convolve(b, &(struct convolve_args){.y = SIDE(convolved),
                                                .x = SIDE(x),
                                                .filter = SIDE(filter),
                                                .bias = SIDE(filter_bias).data,
                                                .activation = ACTIVATION_SILU,
                                                .spans = listed,
                                                .n_spans = n,
                                                .states = SIDE(states)});
    backend_delta(b, &(struct delta_args){.y = SIDE(y),
                                          .x = SIDE(convolved),
                                          .gates = SIDE(gates),
                                          .states = SIDE(states),
                                          .rate = SIDE(rate).data,
                                          .bias = SIDE(bias).data,
                                          .skip = SIDE(skip).data,
                                          .spans = listed,
                                          .n_spans = n,
                                          .rule = net->rule,
                                          .key_heads = net->key_heads,
                                          .value_heads = net->value_heads,
                                          .key_dim = net->key_dim,
                                          .value_dim = net->value_dim,
                                          .least = 0.3f,
                                          .most = 2});
#undef SIDE
}

/* Two sequences: one from nothing, with a copy and drafts; one that goes on in place. */
static const struct state_span spans[] = {{0, 9, -1, 0, 0},  {9, 0, 0, 1, 1},  {9, 2, 0, 0, 1},
                                          {11, 4, 0, -1, 1}, {15, 1, 2, 2, 0}, {16, 7, 2, 3, 1}};

static void check_net(enum delta_rule rule, int key_heads, int value_heads, int key_dim,
                      int value_dim, int kernel) {
    if (!chosen()) return;
    struct net net = net_make(rule, key_heads, value_heads, key_dim, value_dim, kernel);
    net_run(&net, true, spans, (int)ARRAY_COUNT(spans));
    net_run(&net, false, spans, (int)ARRAY_COUNT(spans));
    assert_both(net.convolved, 1e-5, "convolve");
    assert_both(net.y, 1e-5, "delta");
    assert_both(net.states, 1e-5, "states");
    net_free(&net);
}

static void test_delta(void **state) {
    (void)state;
    for (int rule = DELTA_CORRECTS; rule <= DELTA_ADDS; rule++) {
        check_net((enum delta_rule)rule, 2, 4, 8, 20, 4);
        check_net((enum delta_rule)rule, 1, 1, 3, 5, 1);
        check_net((enum delta_rule)rule, 1, 3, 33, 67, 8);
        check_net((enum delta_rule)rule, 2, 2, 128, 128, 4);
        check_net((enum delta_rule)rule, 1, 2, 64, 256, 2);
        check_net((enum delta_rule)rule, 1, 30, 16, 8, 4);
    }
}

static float *download_rows(struct tensor t) {
    float *rows = xmalloc(tensor_bytes(t));
    backend_download(device, rows, t.data, tensor_bytes(t));
    device_sync();
    return rows;
}

/* Row by row, with another sequence beside, and at once. */
static void check_rows_alone(enum delta_rule rule) {
    struct net net = net_make(rule, 2, 4, 8, 20, 4);
    const struct state_span whole = {0, ROWS, -1, 4, 0};
    net_run(&net, false, &whole, 1);
    float *expected = download_rows(net.y.device), *kept = download_rows(net.states.device);
    for (int row = 0; row < ROWS; row++) {
        const struct state_span one = {row, 1, row == 0 ? -1 : 4, 4, 0};
        net_run(&net, false, &one, 1);
    }
    float *found = download_rows(net.y.device), *states = download_rows(net.states.device);
    size_t last = 4 * (size_t)net.states.host.stride,
           columns = (size_t)net.states.host.cols * sizeof(float);
    assert_memory_equal(found, expected, tensor_bytes(net.y.host));
    assert_memory_equal(states + last, kept + last, columns);
    free(expected);
    free(kept);
    free(found);
    free(states);
    net_free(&net);
}

static void test_rows_alone(void **state) {
    (void)state;
    check_rows_alone(DELTA_CORRECTS);
    check_rows_alone(DELTA_ADDS);
}

static void test_gate(void **state) {
    (void)state;
    static const int sizes[] = {1, 5, 64, 300, 1028};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
        for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_SIGMOID; activation++) {
            struct both x = both_random(DTYPE_F32, 3, sizes[s], activation % 2 * 4),
                        by = both_random(DTYPE_F32, 3, sizes[s], 4);
            struct gate_args a = {
                .y = x.host, .x = x.host, .by = by.host, .activation = (enum activation)activation};
            backend_gate(reference, &a);
            a.y = a.x = x.device;
            a.by = by.device;
            backend_gate(device, &a);
            assert_both(x, 1e-6, "gate");
            both_free(x);
            both_free(by);
        }
}

static void test_gate_of_heads(void **state) {
    (void)state;
    static const int sizes[][2] = {{1, 16}, {4, 16}, {5, 7}, {3, 128}, {300, 3}};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct both x = both_random(DTYPE_F32, 3, sizes[s][0], 1),
                    by = both_random(DTYPE_F32, 3, sizes[s][0] * sizes[s][1], 4);
        struct gate_args a = {
            .y = by.host, .x = x.host, .by = by.host, .activation = ACTIVATION_SIGMOID};
        backend_gate(reference, &a);
        a.y = a.by = by.device;
        a.x = x.device;
        backend_gate(device, &a);
        assert_both(by, 1e-6, "gate of heads");
        both_free(x);
        both_free(by);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {TEST(test_delta), TEST(test_rows_alone), TEST(test_gate),
                                       TEST(test_gate_of_heads)};
    RUN_TESTS(argc, argv, tests);
}
