/* kernels/cuda/delta.cu: gated delta nets, and rows that are weighed by gates. See struct
 * delta_args.
 *
 * The channels of all rows are convolved and normed first, then a block for each value head and
 * sequence walks its rows: a thread has one column of the state, which meets no other column. */
#include "kernels/cuda/common.cuh"

/* y = activation(x) by */

struct gate_kernel_args {
    view y, x, by;
    enum activation activation;
    int unused = 0;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads x and by, writes y. */
template <int V>
__global__ void gate_rows_kernel(struct gate_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> x = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    lanes<V> by = lanes_load<V>(k.by.data, DTYPE_F32, row * k.by.stride + col);
    for (int j = 0; j < V; j++) x.at[j] = value_activate(x.at[j], k.activation) * by.at[j];
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, x);
}

void cuda_gate(struct backend *backend, const struct gate_args *args) {
    struct gate_kernel_args gate_kernel_args = {args->y, args->x, args->by, args->activation};
    int v = view_divides(&args->y, 4) && view_divides(&args->x, 4) && view_divides(&args->by, 4)
                ? 4
                : 1;
    kernel_launch(backend, v == 4 ? gate_rows_kernel<4> : gate_rows_kernel<1>,
                  row_grid(args->y.rows, args->y.cols, v), row_threads(args->y.cols, v), 0,
                  gate_kernel_args);
}

/* Delta nets. */

struct delta_kernel_args {
    view y, x, gates, filter, states;
    const float *rate, *bias;
    float *channels, *spare;        /* [rows, channels]; states that nobody keeps, S of each head */
    const struct state_span *spans; /* round by round */
    int first;                      /* of the round's */
    int key_heads, value_heads, key_dim, value_dim, unused;
};

/* A state's latest rows of x, and S of a head; NULL of state -1. */
__device__ static float *state_rows(const struct delta_kernel_args &k, int state) {
    return state < 0 ? NULL : (float *)k.states.data + state * k.states.stride;
}
__device__ static float *state_matrix(const struct delta_kernel_args &k, int state, int head) {
    int64_t size = (int64_t)k.key_dim * k.value_dim;
    if (state == -1) return NULL;
    if (state < 0) return k.spare + ((int64_t)(-2 - state) * k.value_heads + head) * size;
    return state_rows(k, state) + (int64_t)(k.filter.cols - 1) * k.x.cols + head * size;
}

/* Channel `channel` of the row that stands `row` rows behind a span's first; those before it are of
 * the state. */
__device__ static float channel_at(const struct delta_kernel_args &k, const struct state_span &span,
                                   int row, int channel) {
    if (row >= 0) return ((const float *)k.x.data)[(span.first + row) * k.x.stride + channel];
    const float *before = state_rows(k, span.from);
    return before ? before[(int64_t)(k.filter.cols - 1 + row) * k.x.cols + channel] : 0;
}

/* grid (spans of the round, pieces of channels), block 32 .. 256: a thread convolves one channel of
 * all rows of the span, then leaves its latest rows in the state. Bound by bytes: reads and writes
 * x once, the filter stays in registers or the cache. */
__global__ void delta_convolve_kernel(struct delta_kernel_args k) {
    int channel = first_column<1>(), kernel = k.filter.cols;
    const struct state_span span = k.spans[k.first + (int)blockIdx.x];
    if (channel >= k.x.cols) return;
    const float *filter = (const float *)k.filter.data + (int64_t)channel * kernel;
    for (int row = 0; row < span.n; row++) {
        float sum = 0;
        for (int j = 0; j < kernel; j++)
            sum += filter[j] * channel_at(k, span, row - kernel + 1 + j, channel);
        k.channels[(int64_t)(span.first + row) * k.x.cols + channel] = sum / (1.0f + expf(-sum));
    }
    if (span.to < 0) return;
    float *to = state_rows(k, span.to) + channel;
    for (int j = 0; j < kernel - 1; j++)
        to[(int64_t)j * k.x.cols] = channel_at(k, span, span.n - kernel + 1 + j, channel);
}

enum { DELTA_THREADS = DELTA_MAX_HEAD };

/* grid (spans of the round, value heads), block 256, shared q, k [DELTA_MAX_HEAD each] and one
 * float per warp. Bound by the state's bytes: reads and writes it twice a row, from the cache. */
__global__ void __launch_bounds__(DELTA_THREADS, 4) delta_rule_kernel(struct delta_kernel_args k) {
    DYNAMIC_SHARED(shared);
    float *q = (float *)shared, *key = q + DELTA_MAX_HEAD, *sums = key + DELTA_MAX_HEAD;
    const struct state_span span = k.spans[k.first + (int)blockIdx.x];
    int head = (int)blockIdx.y, at = (int)threadIdx.x, keys = k.key_dim, values = k.value_dim;
    int key_head = head / (k.value_heads / k.key_heads);
    const float *from = state_matrix(k, span.from, head);
    float *state = state_matrix(k, span.to, head);
    bool mine = at < values;
    for (int i = 0; mine && i < keys && state != from; i++)
        state[i * values + at] = from ? from[i * values + at] : 0;
    for (int row = 0; row < span.n; row++) {
        int64_t place = span.first + row;
        const float *channels = k.channels + place * k.x.cols;
        float qi = at < keys ? channels[key_head * keys + at] : 0;
        float ki = at < keys ? channels[(k.key_heads + key_head) * keys + at] : 0;
        float q_size = block_sum(qi * qi, sums), k_size = block_sum(ki * ki, sums);
        if (at < keys) {
            q[at] = qi / sqrtf(q_size + 1e-6f) / sqrtf((float)keys);
            key[at] = ki / sqrtf(k_size + 1e-6f);
        }
        __syncthreads();
        const float *gates = (const float *)k.gates.data + place * k.gates.stride;
        float a = gates[k.value_heads + head] + k.bias[head];
        float decay = expf(-k.rate[head] * (a > 20 ? a : log1pf(expf(a))));
        float strength = 1 / (1 + expf(-gates[head])), found = 0, y = 0;
        if (mine) {
            float *column = state + at;
            for (int i = 0; i < keys; i++) found += key[i] * column[i * values];
            int64_t value = 2 * (int64_t)k.key_heads * keys + (int64_t)head * values + at;
            float write = (channels[value] - found * decay) * strength;
            for (int i = 0; i < keys; i++) {
                float next = column[i * values] * decay + key[i] * write;
                column[i * values] = next;
                y += q[i] * next;
            }
            ((float *)k.y.data)[place * k.y.stride + head * values + at] = y;
        }
        __syncthreads();
    }
}

/* Spans of one sequence run one behind the other: a round is the next span of each. Lists those of
 * a round behind the n that are listed, and returns how many are. One that leaves no state has a
 * spare one, -2, -3, ... */
static int list_round(const struct delta_args *args, int round, struct state_span *listed, int n,
                      int *spare) {
    int depth = 0;
    for (int i = 0; i < args->n_spans; i++) {
        depth = i > 0 && args->spans[i].follows ? depth + 1 : 0;
        if (depth != round) continue;
        listed[n] = args->spans[i];
        if (listed[n].to < 0) {
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
static const struct state_span *stage_spans(struct backend *backend, const struct delta_args *args,
                                            int **ends) {
    struct cuda *cuda = cuda_of(backend);
    size_t n = (size_t)args->n_spans, span = sizeof(struct state_span);
    char *room = (char *)host_list_reserve(&cuda->spans, n * (span + sizeof(int)));
    struct state_span *listed = (struct state_span *)room;
    *ends = (int *)(room + n * span);
    int spare = 0, done = 0;
    for (int round = 0; done < args->n_spans; round++) {
        done = list_round(args, round, listed, done, &spare);
        (*ends)[round] = done;
    }
    return array_stage(backend, listed, n);
}

void cuda_delta(struct backend *backend, const struct delta_args *args) {
    if (args->n_spans == 0) return;
    size_t channels = (size_t)args->x.rows * (size_t)args->x.cols,
           state = (size_t)args->value_heads * (size_t)args->key_dim * (size_t)args->value_dim,
           floats = channels + state * (size_t)count_spare(args);
    int *ends;
    float *room =
        (float *)workspace_reserve(backend, &cuda_of(backend)->deltas, floats * sizeof(float));
    const struct state_span *spans = stage_spans(backend, args, &ends);
    if (room == NULL || spans == NULL) return; /* a failure */
    struct delta_kernel_args k = {args->y,
                                  args->x,
                                  args->gates,
                                  args->filter,
                                  args->states,
                                  args->rate,
                                  args->bias,
                                  room,
                                  room + channels,
                                  spans,
                                  0,
                                  args->key_heads,
                                  args->value_heads,
                                  args->key_dim,
                                  args->value_dim,
                                  0};
    size_t shared = (2 * DELTA_MAX_HEAD + DELTA_THREADS / WARP) * sizeof(float);
    for (int round = 0; k.first < args->n_spans; round++) {
        unsigned n = (unsigned)(ends[round] - k.first);
        kernel_launch(backend, delta_convolve_kernel,
                      dim3(n, blocks_for(args->x.cols, row_threads(args->x.cols, 1))),
                      row_threads(args->x.cols, 1), 0, k);
        kernel_launch(backend, delta_rule_kernel, dim3(n, (unsigned)args->value_heads),
                      DELTA_THREADS, shared, k);
        k.first = ends[round];
    }
}
