/* kernels/cuda/attention_shares.cu: how much of its attention a row gives to each group of its
 * keys. One block works on one query, head after head; the scores are computed anew for the
 * maximum, for the sum and for each group, since this is asked for few rows. */
#include "kernels/cuda/attention.cuh"

struct shares_args {
    struct attention_shape shape;
    view y;
    const struct key_group
        *queries; /* of each block: its span, and which of the span's queries it is */
    const struct key_group *groups, *span_groups;
    float weight;
    int unused;
};

/* One head's query, scaled, zeros beyond head_dim; and one number per warp. */
struct shares_shared {
    float q[CUDA_MAX_HEAD];
    float sums[ATTENTION_THREADS / WARP];
};

/* The row at work. */
struct shares_row {
    const struct attention_span *span;
    int head, stands, first,
        seen; /* keys [first, seen) are seen; where the query stands among them */
};

__device__ static float score_key(const struct attention_shape &shape, const struct shares_row &row,
                                  const float *q, int key) {
    int at = key_row(shape, *row.span, key), kv_head = row.head / shape.group;
    float score = 0;
    for (int col = 0; col < shape.head_dim; col += 8) {
        lanes<8> k = head_load<8>(shape, shape.k, at, kv_head, col);
        for (int j = 0; j < 8; j++) score = fmaf(q[col + j], k.at[j], score);
    }
    return score_bend(shape, score, row.head, key - row.stands);
}

/* The largest of every thread's v, in every thread; `shared` as for block_sum. */
__device__ static float block_largest(float v, float *shared) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, offset));
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    for (int i = 0; i < ATTENTION_THREADS / WARP; i++) v = fmaxf(v, shared[i]);
    __syncthreads();
    return v;
}

/* The sum of e^(score - largest) over the keys of [begin, end) that the row sees, in every thread.
 */
__device__ static float sum_keys(const struct attention_shape &shape, const struct shares_row &row,
                                 struct shares_shared &shared, int begin, int end, float largest) {
    float sum = 0;
    begin = begin > row.first ? begin : row.first;
    end = end < row.seen ? end : row.seen;
    for (int key = begin + (int)threadIdx.x; key < end; key += ATTENTION_THREADS)
        sum += expf(score_key(shape, row, shared.q, key) - largest);
    return block_sum(sum, shared.sums);
}

/* grid (queries), block 128, shared shares_shared. Bound by the products of the keys, which are
 * made three times. */
__global__ void attention_shares_kernel(struct shares_args args) {
    DYNAMIC_SHARED(memory);
    shares_shared &shared = *(shares_shared *)memory;
    const struct attention_shape &shape = args.shape;
    const struct key_group job = args.queries[blockIdx.x];
    const struct attention_span span = shape.spans[job.first];
    const struct key_group list = args.span_groups[job.first];
    struct shares_row row = {&span, 0, span.k_count - span.q_count + job.n, 0, span.k_count};
    row.seen = keys_end(shape, span, row.stands);
    row.first = keys_begin(shape, row.stands);
    const float *q = (const float *)shape.q.data + (span.q_start + job.n) * shape.q.stride;
    float *y = (float *)args.y.data + (span.q_start + job.n) * args.y.stride;
    for (; row.head < shape.heads; row.head++) {
        for (int d = (int)threadIdx.x; d < CUDA_MAX_HEAD; d += ATTENTION_THREADS)
            shared.q[d] = d < shape.head_dim ? q[row.head * shape.head_dim + d] * shape.scale : 0;
        __syncthreads();
        float largest = -INFINITY;
        for (int key = row.first + (int)threadIdx.x; key < row.seen; key += ATTENTION_THREADS)
            largest = fmaxf(largest, score_key(shape, row, shared.q, key));
        largest = block_largest(largest, shared.sums);
        if (shape.sinks) largest = fmaxf(largest, shape.sinks[row.head]);
        float total = sum_keys(shape, row, shared, row.first, row.seen, largest);
        if (shape.sinks) total += expf(shape.sinks[row.head] - largest);
        for (int g = 0; g < list.n; g++) {
            const struct key_group keys = args.groups[list.first + g];
            float sum = sum_keys(shape, row, shared, keys.first, keys.first + keys.n, largest);
            if (threadIdx.x == 0) y[g] += args.weight * sum / total;
        }
        __syncthreads();
    }
}

/* Every query that has keys, as (span, number in the span). */
static int list_queries(struct cuda *cuda, const struct attention_args *args) {
    int n = 0;
    for (int i = 0; i < args->n_spans; i++)
        n += args->spans[i].k_count > 0 ? args->spans[i].q_count : 0;
    struct key_group *queries =
        (struct key_group *)host_list_reserve(&cuda->pieces, (size_t)n * sizeof *queries);
    int at = 0;
    for (int i = 0; i < args->n_spans; i++)
        for (int j = 0; j < args->spans[i].q_count && args->spans[i].k_count > 0; j++) {
            queries[at] = {i, j};
            at++;
        }
    return n;
}

void cuda_attention_shares(struct backend *backend, const struct attention_shares_args *args) {
    struct cuda *cuda = cuda_of(backend);
    int n = list_queries(cuda, &args->of);
    if (n == 0) return;
    struct shares_args shares_args;
    shares_args.shape = attention_shape_of(backend, &args->of);
    shares_args.y = args->y;
    shares_args.queries =
        array_stage(backend, (const struct key_group *)cuda->pieces.data, (size_t)n);
    shares_args.groups = array_stage(backend, args->groups, (size_t)args->n_groups);
    shares_args.span_groups = array_stage(backend, args->span_groups, (size_t)args->of.n_spans);
    shares_args.weight = args->weight;
    shares_args.unused = 0;
    kernel_launch(backend, attention_shares_kernel, dim3((unsigned)n), ATTENTION_THREADS,
                  sizeof(shares_shared), shares_args);
}
