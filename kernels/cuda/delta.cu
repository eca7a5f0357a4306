/* kernels/cuda/delta.cu: layers that keep states, their short convolutions, and rows that are
 * weighed by gates. See struct convolve_args and struct delta_args.
 *
 * A thread convolves a channel of all rows of a sequence. Of heads that keep a matrix, a block for
 * each value head and sequence walks its rows: a thread has one column of the state, which meets no
 * other column. */
#include "kernels/cuda/common.cuh"

/* y = activation(x) by */

struct gate_kernel_args {
    view y, x, by;
    enum activation activation;
    int each; /* columns that a column of x weighs */
};

/* The weights of columns from `col` on. */
template <int V>
__device__ static lanes<V> load_weights(const struct gate_kernel_args &k, int row, int col) {
    const float *x = (const float *)k.x.data + row * k.x.stride;
    if (k.each == 1) return lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    lanes<V> weights = {};
    for (int j = 0; j < V; j++) weights.at[j] = x[(col + j) / k.each];
    return weights;
}

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads x and by, writes y. */
template <int V>
__global__ void gate_rows_kernel(struct gate_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> x = load_weights<V>(k, row, col);
    lanes<V> by = lanes_load<V>(k.by.data, DTYPE_F32, row * k.by.stride + col);
    for (int j = 0; j < V; j++) x.at[j] = value_activate(x.at[j], k.activation) * by.at[j];
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, x);
}

void cuda_gate(struct backend *backend, const struct gate_args *args) {
    int each = args->y.cols / args->x.cols;
    struct gate_kernel_args gate_kernel_args = {args->y, args->x, args->by, args->activation, each};
    bool wide = view_divides(&args->y, 4) && view_divides(&args->by, 4) &&
                (each > 1 || view_divides(&args->x, 4));
    int v = wide ? 4 : 1;
    kernel_launch(backend, v == 4 ? gate_rows_kernel<4> : gate_rows_kernel<1>,
                  row_grid(args->y.rows, args->y.cols, v), row_threads(args->y.cols, v), 0,
                  gate_kernel_args);
}

/* Convolutions. */

struct convolve_kernel_args {
    view y, x, filter, states;
    const float *bias;
    const struct state_span *spans; /* round by round */
    int first;                      /* of the round's */
    enum activation activation;
};

/* Channel `channel` of the row that stands `row` rows behind a span's first; those before it are of
 * the state. */
__device__ static float channel_at(const struct convolve_kernel_args &k,
                                   const struct state_span &span, int row, int channel) {
    if (row >= 0) return ((const float *)k.x.data)[(span.first + row) * k.x.stride + channel];
    if (span.from < 0) return 0;
    const float *before = (const float *)k.states.data + span.from * k.states.stride;
    return before[(int64_t)(k.filter.cols - 1 + row) * k.x.cols + channel];
}

/* grid (spans of the round, pieces of channels), block 32 .. 256: a thread convolves one channel of
 * all rows of the span, then leaves its latest rows in the state. Bound by bytes: reads and writes
 * x once, the filter stays in registers or the cache. */
__global__ void convolve_kernel(struct convolve_kernel_args k) {
    int channel = first_column<1>(), kernel = k.filter.cols;
    const struct state_span span = k.spans[k.first + (int)blockIdx.x];
    if (channel >= k.x.cols) return;
    const float *filter = (const float *)k.filter.data + (int64_t)channel * kernel;
    float bias = k.bias ? k.bias[channel] : 0;
    for (int row = 0; row < span.n; row++) {
        float sum = bias;
        for (int j = 0; j < kernel; j++)
            sum += filter[j] * channel_at(k, span, row - kernel + 1 + j, channel);
        ((float *)k.y.data)[(span.first + row) * k.y.stride + channel] =
            value_activate(sum, k.activation);
    }
    if (span.to < 0) return;
    float *to = (float *)k.states.data + span.to * k.states.stride + channel;
    for (int j = 0; j < kernel - 1; j++)
        to[(int64_t)j * k.x.cols] = channel_at(k, span, span.n - kernel + 1 + j, channel);
}

/* Heads that keep a matrix. */

struct delta_kernel_args {
    view y, x, gates, states;
    const float *rate, *bias, *skip;
    float *spare;                   /* states that nobody keeps, S of each head */
    const struct state_span *spans; /* round by round */
    int first;                      /* of the round's */
    enum delta_rule rule;
    int key_heads, value_heads, key_dim, value_dim;
    float least, most, write_scale;
    int unused = 0;
};

/* S of a head; NULL of state -1. */
__device__ static float *state_matrix(const struct delta_kernel_args &k, int state, int head) {
    int64_t size = (int64_t)k.key_dim * k.value_dim;
    if (state == -1) return NULL;
    if (state < 0) return k.spare + ((int64_t)(-2 - state) * k.value_heads + head) * size;
    return (float *)k.states.data + state * k.states.stride + k.states.cols -
           (k.value_heads - head) * size;
}

/* How much of a head's state stays, and how much of what a value asks for is written. */
struct delta_weights {
    float decay, strength;
};
__device__ static struct delta_weights weigh_row(const struct delta_kernel_args &k,
                                                 const float *gates, int head) {
    bool adds = k.rule == DELTA_ADDS;
    float a = gates[adds ? head : k.value_heads + head] + k.bias[head];
    float step = a > 20 ? a : log1pf(expf(a));
    if (adds) step = fminf(fmaxf(step, k.least), k.most);
    return {expf(-k.rate[head] * step), adds ? step : k.write_scale / (1 + expf(-gates[head]))};
}

enum { DELTA_THREADS = DELTA_MAX_HEAD };

/* q and k of a row, with the length that the delta rule gives them. */
__device__ static void take_keys(const struct delta_kernel_args &k, const float *channels, int head,
                                 float *q, float *key, float *sums) {
    int at = (int)threadIdx.x, keys = k.key_dim, all = k.key_heads * keys, values = 0;
    bool adds = k.rule == DELTA_ADDS;
    if (adds) values = k.value_heads * k.value_dim;
    const float *first = channels + values + head * keys + at, *second = first + all;
    float qi = at < keys ? *(adds ? second : first) : 0,
          ki = at < keys ? *(adds ? first : second) : 0;
    if (!adds) {
        float q_size = block_sum(qi * qi, sums), k_size = block_sum(ki * ki, sums);
        qi = qi / sqrtf(q_size + 1e-6f) / sqrtf((float)keys);
        ki = ki / sqrtf(k_size + 1e-6f);
    }
    if (at < keys) {
        q[at] = qi;
        key[at] = ki;
    }
}

/* grid (spans of the round, value heads), block 256, shared q, k [DELTA_MAX_HEAD each] and one
 * float per warp. Bound by the state's bytes: reads and writes it twice a row, from the cache. */
__global__ void __launch_bounds__(DELTA_THREADS, 4) delta_rule_kernel(struct delta_kernel_args k) {
    DYNAMIC_SHARED(shared);
    float *q = (float *)shared, *key = q + DELTA_MAX_HEAD, *sums = key + DELTA_MAX_HEAD;
    const struct state_span span = k.spans[k.first + (int)blockIdx.x];
    int head = (int)blockIdx.y, at = (int)threadIdx.x, keys = k.key_dim, values = k.value_dim;
    int key_head = head / (k.value_heads / k.key_heads);
    bool mine = at < values, adds = k.rule == DELTA_ADDS;
    const float *from = state_matrix(k, span.from, head);
    float *state = state_matrix(k, span.to, head);
    for (int i = 0; mine && i < keys && state != from; i++)
        state[i * values + at] = from ? from[i * values + at] : 0;
    for (int row = 0; row < span.n; row++) {
        int64_t place = span.first + row;
        const float *channels = (const float *)k.x.data + place * k.x.stride;
        take_keys(k, channels, key_head, q, key, sums);
        __syncthreads();
        struct delta_weights weights =
            weigh_row(k, (const float *)k.gates.data + place * k.gates.stride, head);
        if (mine) {
            int64_t before = adds ? 0 : 2 * (int64_t)k.key_heads * keys;
            float *column = state + at, found = 0, y = 0;
            float value = channels[before + (int64_t)head * values + at];
            for (int i = 0; i < keys && !adds; i++) found += key[i] * column[i * values];
            float write = (value - found * weights.decay) * weights.strength;
            for (int i = 0; i < keys; i++) {
                float next = column[i * values] * weights.decay + key[i] * write;
                column[i * values] = next;
                y += q[i] * next;
            }
            if (adds) y += k.skip[head] * value;
            ((float *)k.y.data)[place * k.y.stride + head * values + at] = y;
        }
        __syncthreads();
    }
}

/* Spans of one sequence run one behind the other: a round is the next span of each. Lists those of
 * a round behind the n that are listed, and returns how many are. One that leaves no state has a
 * spare one, -2, -3, ..., where `spare` counts them. */
static int list_round(const struct state_span *spans, int n_spans, int round,
                      struct state_span *listed, int n, int *spare) {
    int depth = 0;
    for (int i = 0; i < n_spans; i++) {
        depth = i > 0 && spans[i].follows ? depth + 1 : 0;
        if (depth != round) continue;
        listed[n] = spans[i];
        if (listed[n].to < 0 && spare) {
            listed[n].to = -2 - *spare;
            *spare += 1;
        }
        n++;
    }
    return n;
}

static int count_spare(const struct delta_args *args) {
    int n = 0;
    for (int i = 0; i < args->n_spans; i++) n += args->spans[i].to < 0;
    return n;
}

/* The rounds' spans, in order, on the device; `ends` has where each ends. */
static const struct state_span *stage_spans(struct backend *backend, const struct state_span *spans,
                                            int n_spans, bool spares, int **ends) {
    struct cuda *cuda = cuda_of(backend);
    size_t n = (size_t)n_spans, span = sizeof(struct state_span);
    char *room = (char *)host_list_reserve(&cuda->spans, n * (span + sizeof(int)));
    struct state_span *listed = (struct state_span *)room;
    *ends = (int *)(room + n * span);
    int spare = 0, done = 0;
    for (int round = 0; done < n_spans; round++) {
        done = list_round(spans, n_spans, round, listed, done, spares ? &spare : NULL);
        (*ends)[round] = done;
    }
    return array_stage(backend, listed, n);
}

void cuda_convolve(struct backend *backend, const struct convolve_args *args) {
    if (args->n_spans == 0) return;
    int *ends, threads = row_threads(args->x.cols, 1);
    const struct state_span *spans = stage_spans(backend, args->spans, args->n_spans, false, &ends);
    if (spans == NULL) return; /* a failure */
    struct convolve_kernel_args k = {args->y, args->x, args->filter,    args->states, args->bias,
                                     spans,   0,       args->activation};
    for (int round = 0; k.first < args->n_spans; round++) {
        dim3 grid((unsigned)(ends[round] - k.first), blocks_for(args->x.cols, threads));
        kernel_launch(backend, convolve_kernel, grid, threads, 0, k);
        k.first = ends[round];
    }
}

void cuda_delta(struct backend *backend, const struct delta_args *args) {
    if (args->n_spans == 0) return;
    size_t floats = (size_t)args->value_heads * (size_t)args->key_dim * (size_t)args->value_dim *
                    (size_t)count_spare(args);
    int *ends;
    float *spare = (float *)workspace_reserve(backend, &cuda_of(backend)->deltas,
                                              (floats + 1) * sizeof(float));
    const struct state_span *spans = stage_spans(backend, args->spans, args->n_spans, true, &ends);
    if (spare == NULL || spans == NULL) return; /* a failure */
    struct delta_kernel_args k = {args->y,
                                  args->x,
                                  args->gates,
                                  args->states,
                                  args->rate,
                                  args->bias,
                                  args->skip,
                                  spare,
                                  spans,
                                  0,
                                  args->rule,
                                  args->key_heads,
                                  args->value_heads,
                                  args->key_dim,
                                  args->value_dim,
                                  args->least,
                                  args->most,
                                  args->write_scale > 0 ? args->write_scale : 1};
    size_t shared = (2 * DELTA_MAX_HEAD + DELTA_THREADS / WARP) * sizeof(float);
    for (int round = 0; k.first < args->n_spans; round++) {
        kernel_launch(backend, delta_rule_kernel,
                      dim3((unsigned)(ends[round] - k.first), (unsigned)args->value_heads),
                      DELTA_THREADS, shared, k);
        k.first = ends[round];
    }
}
