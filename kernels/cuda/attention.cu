/* kernels/cuda/attention.cu: softmax attention over packed rows, without a matrix of scores.
 *
 * A span with one query (decoding) is bound by the bytes of its keys and values: attention_decode_kernel cuts its keys
 * into parts of 256, each a block, and attention_combine_kernel merges the parts. A span with more queries (prompts,
 * the neighbour encoder, chunked cross attention of a prompt) is bound by arithmetic: attention_tile_kernel keeps a
 * tile of queries and streams keys and values past it. Both hold a running maximum, sum and output per row. Which
 * kernel and which parts depends on the span alone, so a row's result does not depend on the batch.
 *
 * Keys that a row may not see are left out, not multiplied by zero: what they hold, NaN included, has no effect. */
#include "kernels/cuda/common.cuh"

enum {
    ATTENTION_THREADS = 128,
    PART_KEYS = 256, /* keys of a span that one decode block reads */
    TILE_ROWS_PER_THREAD = 8,
    TILE_COLUMNS_PER_THREAD = 4
};

/* What all three kernels read. */
struct attention_shape {
    view out, q, k, v;
    const struct attention_span *spans;
    int heads, kv_heads, head_dim, group; /* group: query heads per key head */
    float scale;
    int causal, vector; /* vector: every head starts at a multiple of 8 elements or 16 bytes in k and v */
    int unused = 0;
};

/* Elements [col, col + V) of a head, 0 past its end. */
template <int V>
__device__ static lanes<V> load_head(const struct attention_shape &s, const view &t, int row, int kv_head, int col) {
    int64_t at = row * t.stride + (int64_t)kv_head * s.head_dim + col;
    if (s.vector && col + V <= s.head_dim) return load<V>(t.data, t.dtype, at);
    lanes<V> out;
    for (int j = 0; j < V; j++) out.at[j] = col + j < s.head_dim ? load<1>(t.data, t.dtype, at + j).at[0] : 0;
    return out;
}

/* Decoding: one query a span. */

/* One block's work. Its result goes to `out` (slot -1) or, not yet divided, to partials[slot]. */
struct decode_piece {
    int span, first, slot; /* keys [first, first + PART_KEYS) of the span; span -1: nothing */
};

struct decode_args {
    struct attention_shape shape;
    const struct decode_piece *pieces;
    float *partials; /* [slot][heads][head_dim + 2]: output, maximum, sum */
};

/* What one group of lanes has seen of each row; the groups of a block are merged through it. */
template <int LANES, int E, int ROWS>
struct decode_shared {
    float largest[ATTENTION_THREADS / LANES][ROWS], sum[ATTENTION_THREADS / LANES][ROWS];
    float out[ATTENTION_THREADS / LANES][ROWS][LANES * E];
};

/* grid (pieces, key heads, groups of ROWS query heads), block 128, shared decode_shared. Bound by bytes: every key and
 * value is read once per ROWS query heads, 16 bytes a lane for 16-bit types. LANES lanes hold one key, E elements each;
 * so a warp reads 32 / LANES keys side by side. */
template <int LANES, int E, int ROWS>
__global__ void __launch_bounds__(ATTENTION_THREADS) attention_decode_kernel(struct decode_args a) {
    DYNAMIC_SHARED(memory);
    decode_shared<LANES, E, ROWS> &shared = *(decode_shared<LANES, E, ROWS> *)memory;
    constexpr int GROUPS = ATTENTION_THREADS / LANES;
    const struct attention_shape &s = a.shape;
    const struct decode_piece piece = a.pieces[blockIdx.x];
    if (piece.span < 0) return;
    const struct attention_span span = s.spans[piece.span];
    int kv_head = (int)blockIdx.y, first_head = kv_head * s.group + (int)blockIdx.z * ROWS;
    int rows = s.group - (int)blockIdx.z * ROWS < ROWS ? s.group - (int)blockIdx.z * ROWS : ROWS;
    int end = piece.first + PART_KEYS < span.k_count ? piece.first + PART_KEYS : span.k_count;
    int group = (int)threadIdx.x / LANES, col = (int)threadIdx.x % LANES * E;
    float q[ROWS][E], out[ROWS][E], largest[ROWS], sum[ROWS];
    for (int r = 0; r < ROWS; r++) {
        const float *from =
            (const float *)s.q.data + span.q_start * s.q.stride + (int64_t)(first_head + r) * s.head_dim;
        for (int j = 0; j < E; j++) {
            q[r][j] = r < rows && col + j < s.head_dim ? from[col + j] * s.scale : 0;
            out[r][j] = 0;
        }
        largest[r] = -INFINITY;
        sum[r] = 0;
    }
    for (int base = piece.first; base < end; base += GROUPS) {
        int key = base + group;
        bool seen = key < end;
        lanes<E> k = {}, v = {};
        if (seen) {
            k = load_head<E>(s, s.k, span.k_start + key, kv_head, col);
            v = load_head<E>(s, s.v, span.k_start + key, kv_head, col);
        }
        for (int r = 0; r < ROWS; r++) {
            float score = 0;
            for (int j = 0; j < E; j++) score = fmaf(q[r][j], k.at[j], score);
            for (int offset = LANES / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(ALL_LANES, score, offset);
            if (!seen) continue;
            float most = fmaxf(largest[r], score), keep = expf(largest[r] - most), p = expf(score - most);
            sum[r] = fmaf(sum[r], keep, p);
            for (int j = 0; j < E; j++) out[r][j] = fmaf(out[r][j], keep, p * v.at[j]);
            largest[r] = most;
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int j = 0; j < E; j++) shared.out[group][r][col + j] = out[r][j];
        shared.largest[group][r] = largest[r];
        shared.sum[group][r] = sum[r];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < rows * s.head_dim; i += ATTENTION_THREADS) {
        int r = i / s.head_dim, d = i % s.head_dim, head = first_head + r;
        float most = -INFINITY, total = 0, value = 0;
        for (int g = 0; g < GROUPS; g++) most = fmaxf(most, shared.largest[g][r]);
        for (int g = 0; g < GROUPS; g++) {
            if (shared.sum[g][r] == 0) continue; /* it had no key */
            float weight = expf(shared.largest[g][r] - most);
            total = fmaf(shared.sum[g][r], weight, total);
            value = fmaf(shared.out[g][r][d], weight, value);
        }
        if (piece.slot < 0) {
            ((float *)s.out.data)[span.q_start * s.out.stride + (int64_t)head * s.head_dim + d] = value / total;
        } else {
            float *to = a.partials + ((int64_t)piece.slot * s.heads + head) * (s.head_dim + 2);
            to[d] = value;
            if (d == 0) {
                to[s.head_dim] = most;
                to[s.head_dim + 1] = total;
            }
        }
    }
}

struct combine_piece {
    int span, first_slot, slots;
};

struct combine_args {
    struct attention_shape shape;
    const struct combine_piece *pieces;
    const float *partials;
};

/* grid (spans in parts, heads), block 128. Bound by bytes: reads the partial results once, in rising order. */
__global__ void attention_combine_kernel(struct combine_args a) {
    const struct attention_shape &s = a.shape;
    const struct combine_piece piece = a.pieces[blockIdx.x];
    if (piece.slots == 0) return;
    int head = (int)blockIdx.y, width = s.head_dim + 2;
    int64_t step = (int64_t)s.heads * width;
    const float *parts = a.partials + piece.first_slot * step + (int64_t)head * width;
    float *out = (float *)s.out.data + s.spans[piece.span].q_start * s.out.stride + (int64_t)head * s.head_dim;
    float most = -INFINITY;
    for (int i = 0; i < piece.slots; i++) most = fmaxf(most, parts[i * step + s.head_dim]);
    for (int d = (int)threadIdx.x; d < s.head_dim; d += ATTENTION_THREADS) {
        float total = 0, value = 0;
        for (int i = 0; i < piece.slots; i++) {
            float weight = expf(parts[i * step + s.head_dim] - most);
            total = fmaf(parts[i * step + s.head_dim + 1], weight, total);
            value = fmaf(parts[i * step + d], weight, value);
        }
        out[d] = value / total;
    }
}

template <int LANES, int E>
static void launch_decode(struct backend *b, const struct decode_args &a, int n_pieces) {
    unsigned pieces = (unsigned)n_pieces, kv_heads = (unsigned)a.shape.kv_heads;
    if (a.shape.group == 1)
        launch(b, attention_decode_kernel<LANES, E, 1>, dim3(pieces, kv_heads), ATTENTION_THREADS,
               sizeof(decode_shared<LANES, E, 1>), a);
    else
        launch(b, attention_decode_kernel<LANES, E, 4>, dim3(pieces, kv_heads, blocks_for(a.shape.group, 4)),
               ATTENTION_THREADS, sizeof(decode_shared<LANES, E, 4>), a);
}

/* Steps by a quarter: lists of work of steps that need about as many blocks are equal. */
static int pad_count(int n) {
    int step = 1;
    while (4 * step < n) step *= 2;
    return (n + step - 1) / step * step;
}

/* Lists the parts of every span with one query, padded; returns how many, and how many slots and merges they need. */
static int list_decode(const struct attention_args *a, struct cuda *cuda, int *slots, int *merges) {
    int n = 0, at = 0;
    for (int i = 0; i < a->n_spans; i++)
        if (a->spans[i].q_count == 1) n += (int)blocks_for(a->spans[i].k_count, PART_KEYS);
    n = pad_count(n);
    struct decode_piece *pieces = (struct decode_piece *)host_list_reserve(&cuda->pieces, (size_t)n * sizeof *pieces);
    struct combine_piece *combines =
        (struct combine_piece *)host_list_reserve(&cuda->combines, (size_t)n * sizeof *combines);
    *slots = *merges = 0;
    for (int i = 0; i < a->n_spans; i++) {
        int parts = a->spans[i].q_count == 1 ? (int)blocks_for(a->spans[i].k_count, PART_KEYS) : 0;
        if (parts > 1) combines[(*merges)++] = {i, *slots, parts};
        for (int part = 0; part < parts; part++) pieces[at++] = {i, part * PART_KEYS, parts > 1 ? (*slots)++ : -1};
    }
    while (at < n) pieces[at++] = {-1, 0, -1};
    for (int padded = pad_count(*merges); *merges < padded; (*merges)++) combines[*merges] = {0, 0, 0};
    return n;
}

static void attend_decode(struct backend *b, const struct attention_args *a, const struct attention_shape &shape) {
    struct cuda *cuda = cuda_of(b);
    int slots, merges, n = list_decode(a, cuda, &slots, &merges);
    if (n == 0) return;
    struct decode_args k;
    size_t width = (size_t)a->heads * (size_t)(a->head_dim + 2);
    k.shape = shape;
    k.pieces = stage(b, (const struct decode_piece *)cuda->pieces.data, (size_t)n);
    k.partials = (float *)workspace_reserve(b, &cuda->partials, (size_t)slots * width * sizeof(float));
    if (a->head_dim <= 64)
        launch_decode<8, 8>(b, k, n);
    else if (a->head_dim <= 128)
        launch_decode<16, 8>(b, k, n);
    else if (a->head_dim <= 256)
        launch_decode<32, 8>(b, k, n);
    else
        launch_decode<32, 16>(b, k, n);
    if (merges == 0) return;
    struct combine_args c;
    c.shape = shape;
    c.pieces = stage(b, (const struct combine_piece *)cuda->combines.data, (size_t)merges);
    c.partials = k.partials;
    launch(b, attention_combine_kernel, dim3((unsigned)merges, (unsigned)a->heads), ATTENTION_THREADS, 0, c);
}

/* More queries: tiles of (query, head of the group) pairs, numbered as they lie in the span. */

struct tile_piece {
    int span, first;
};

struct tile_args {
    struct attention_shape shape;
    const struct tile_piece *pieces;
};

/* D: head_dim rounded up; R rows; N keys at a time. Key rows are 4 floats longer than D, so that the lanes of a warp,
 * each at its own key, read 16 bytes from different banks. */
template <int WIDTH, int ROWS, int KEYS>
struct tile_shared {
    static constexpr int D = WIDTH, R = ROWS, N = KEYS;
    float q[R][D];
    float keys[N][D + 4]; /* then values */
    float scores[R][N];
    float largest[R], sum[R], keep[R];
    int seen[R]; /* keys of the span that the row sees */
};

template <typename Tile>
__device__ static void tile_begin(const struct tile_args &a, Tile &shared, const struct tile_piece &piece,
                                  const struct attention_span &span, int rows) {
    constexpr int D = Tile::D, R = Tile::R;
    const struct attention_shape &s = a.shape;
    int kv_head = (int)blockIdx.y;
    for (int i = (int)threadIdx.x; i < R * D; i += ATTENTION_THREADS) {
        int r = i / D, d = i % D, at = piece.first + r, head = kv_head * s.group + at % s.group;
        const float *q = (const float *)s.q.data + (span.q_start + at / s.group) * s.q.stride;
        shared.q[r][d] = r < rows && d < s.head_dim ? q[(int64_t)head * s.head_dim + d] * s.scale : 0;
    }
    for (int r = (int)threadIdx.x; r < R; r += ATTENTION_THREADS) {
        int query = (piece.first + r) / s.group;
        shared.seen[r] = r >= rows ? 0 : s.causal ? span.k_count - span.q_count + query + 1 : span.k_count;
        shared.largest[r] = -INFINITY;
        shared.sum[r] = 0;
    }
}

/* N rows of k or v from `first` on become f32; rows from `end` on are zeros. */
template <typename Tile>
__device__ static void tile_load(const struct tile_args &a, Tile &shared, const view &from, int first, int end) {
    constexpr int D = Tile::D, N = Tile::N;
    for (int i = (int)threadIdx.x; i < N * D / 4; i += ATTENTION_THREADS) {
        int key = i / (D / 4), col = i % (D / 4) * 4;
        lanes<4> v = {};
        if (first + key < end) v = load_head<4>(a.shape, from, first + key, (int)blockIdx.y, col);
        float4 packed = {v.at[0], v.at[1], v.at[2], v.at[3]};
        *(float4 *)&shared.keys[key][col] = packed;
    }
}

/* scores = q k^T. A thread has one key and every (128 / N)-th row; its key is read once for all of them. */
template <int D, int R, int N>
__device__ static void tile_scores(tile_shared<D, R, N> &shared, int head_dim) {
    constexpr int STEP = ATTENTION_THREADS / N, MINE = R / STEP > 0 ? R / STEP : 1;
    int key = (int)threadIdx.x % N, first = (int)threadIdx.x / N;
    if (first >= R) return;
    float scores[MINE] = {};
    for (int d = 0; d < head_dim; d += 4) {
        float4 k = *(const float4 *)&shared.keys[key][d];
        for (int i = 0; i < MINE; i++) {
            float4 q = *(const float4 *)&shared.q[first + i * STEP][d];
            scores[i] = fmaf(q.w, k.w, fmaf(q.z, k.z, fmaf(q.y, k.y, fmaf(q.x, k.x, scores[i]))));
        }
    }
    for (int i = 0; i < MINE; i++) shared.scores[first + i * STEP][key] = scores[i];
}

/* Scores become weights relative to the row's new maximum; `keep` is what the row's older output is worth. A warp has
 * every fourth row, a lane one key. */
template <int D, int R, int N>
__device__ static void tile_softmax(tile_shared<D, R, N> &shared, int first_key) {
    int lane = (int)threadIdx.x % WARP;
    for (int r = (int)threadIdx.x / WARP; r < R; r += ATTENTION_THREADS / WARP) {
        bool seen = lane < N && first_key + lane < shared.seen[r];
        float score = seen ? shared.scores[r][lane] : -INFINITY, before = shared.largest[r], most = score;
        for (int offset = WARP / 2; offset > 0; offset /= 2)
            most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, offset));
        most = fmaxf(before, most);
        bool any = first_key < shared.seen[r];
        float weight = seen ? expf(score - most) : 0, keep = any ? expf(before - most) : 1;
        if (lane < N) shared.scores[r][lane] = weight;
        weight = warp_sum(weight);
        if (lane == 0) {
            shared.keep[r] = keep;
            shared.sum[r] = fmaf(shared.sum[r], keep, weight);
            shared.largest[r] = most;
        }
        __syncwarp();
    }
}

/* grid (pieces, key heads), block 128, shared tile_shared. Bound by arithmetic: 4 f32 operations per row, key and
 * dimension, on the ordinary units so that f32 caches keep f32 sums. A thread holds 8 rows x 4 columns of the output.
 */
template <int D, int R, int N>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2) attention_tile_kernel(struct tile_args a) {
    DYNAMIC_SHARED(memory);
    tile_shared<D, R, N> &shared = *(tile_shared<D, R, N> *)memory;
    constexpr int ACROSS = D / TILE_COLUMNS_PER_THREAD, STEP = ATTENTION_THREADS / ACROSS;
    const struct attention_shape &s = a.shape;
    const struct tile_piece piece = a.pieces[blockIdx.x];
    const struct attention_span span = s.spans[piece.span];
    int pairs = span.q_count * s.group - piece.first, rows = pairs < R ? pairs : R;
    int col = (int)threadIdx.x % ACROSS * TILE_COLUMNS_PER_THREAD, first_row = (int)threadIdx.x / ACROSS;
    int last_query = (piece.first + rows - 1) / s.group;
    int end = s.causal ? span.k_count - span.q_count + last_query + 1 : span.k_count;
    float out[TILE_ROWS_PER_THREAD][TILE_COLUMNS_PER_THREAD] = {};
    tile_begin(a, shared, piece, span, rows);
    for (int key = 0; key < end; key += N) {
        int keys = end - key < N ? end - key : N;
        __syncthreads();
        tile_load(a, shared, s.k, span.k_start + key, span.k_start + end);
        __syncthreads();
        tile_scores(shared, s.head_dim);
        __syncthreads();
        tile_load(a, shared, s.v, span.k_start + key, span.k_start + end);
        tile_softmax(shared, key);
        __syncthreads();
        for (int i = 0; i < TILE_ROWS_PER_THREAD; i++)
            for (int j = 0; j < TILE_COLUMNS_PER_THREAD; j++) out[i][j] *= shared.keep[first_row + i * STEP];
        for (int n = 0; n < keys; n++) {
            float4 v = *(const float4 *)&shared.keys[n][col];
            for (int i = 0; i < TILE_ROWS_PER_THREAD; i++) {
                float p = shared.scores[first_row + i * STEP][n];
                if (key + n >= shared.seen[first_row + i * STEP]) continue;
                out[i][0] = fmaf(p, v.x, out[i][0]);
                out[i][1] = fmaf(p, v.y, out[i][1]);
                out[i][2] = fmaf(p, v.z, out[i][2]);
                out[i][3] = fmaf(p, v.w, out[i][3]);
            }
        }
    }
    for (int i = 0; i < TILE_ROWS_PER_THREAD; i++) {
        int r = first_row + i * STEP, at = piece.first + r, head = (int)blockIdx.y * s.group + at % s.group;
        if (r >= rows) continue;
        float *to = (float *)s.out.data + (span.q_start + at / s.group) * s.out.stride + (int64_t)head * s.head_dim;
        for (int j = 0; j < TILE_COLUMNS_PER_THREAD; j++)
            if (col + j < s.head_dim) to[col + j] = out[i][j] / shared.sum[r];
    }
}

template <int D, int R, int N>
static void attend_tiles(struct backend *b, const struct attention_args *a, const struct attention_shape &shape) {
    static_assert(R * D == ATTENTION_THREADS * TILE_ROWS_PER_THREAD * TILE_COLUMNS_PER_THREAD, "a thread's share");
    struct cuda *cuda = cuda_of(b);
    int n = 0;
    for (int pass = 0; pass < 2; pass++) { /* count, then list */
        struct tile_piece *pieces = (struct tile_piece *)host_list_reserve(&cuda->pieces, (size_t)n * sizeof *pieces);
        n = 0;
        for (int i = 0; i < a->n_spans; i++) {
            if (a->spans[i].q_count <= 1 || a->spans[i].k_count == 0) continue;
            for (int first = 0; first < a->spans[i].q_count * shape.group; first += R, n++)
                if (pass == 1) pieces[n] = {i, first};
        }
    }
    if (n == 0) return;
    struct tile_args k = {shape, stage(b, (const struct tile_piece *)cuda->pieces.data, (size_t)n)};
    launch(b, attention_tile_kernel<D, R, N>, dim3((unsigned)n, (unsigned)a->kv_heads), ATTENTION_THREADS,
           sizeof(tile_shared<D, R, N>), k);
}

struct zero_command {
    void *data;
    size_t step, row, rows;
};

static void zero_run(struct backend *b, const void *arguments) {
    const struct zero_command *c = (const struct zero_command *)arguments;
    cuda_ok(b, cudaMemset2DAsync(c->data, c->step, 0, c->row, c->rows, cuda_of(b)->stream), "zeroing rows");
}

/* Rows that no span writes are zeros; the spans overlap in no row, so it is enough to count. */
static void zero_unwritten(struct backend *b, const struct attention_args *a) {
    int written = 0;
    for (int i = 0; i < a->n_spans; i++) written += a->spans[i].k_count > 0 ? a->spans[i].q_count : 0;
    if (written == a->out.rows || a->out.cols == 0) return;
    struct zero_command c = {a->out.data, (size_t)a->out.stride * sizeof(float), (size_t)a->out.cols * sizeof(float),
                             (size_t)a->out.rows};
    work_add(b, zero_run, &c, sizeof c);
}

void cuda_attention(struct backend *b, const struct attention_args *a) {
    CHECK(a->head_dim <= ATTENTION_MAX_HEAD && a->kv_heads <= 65535);
    struct attention_shape shape = {a->out,
                                    a->q,
                                    a->k,
                                    a->v,
                                    stage(b, a->spans, (size_t)a->n_spans),
                                    a->heads,
                                    a->kv_heads,
                                    a->head_dim,
                                    a->heads / a->kv_heads,
                                    a->scale,
                                    a->mask == MASK_CAUSAL,
                                    divides(&a->k, 8) && divides(&a->v, 8) && a->head_dim % 8 == 0};
    zero_unwritten(b, a);
    attend_decode(b, a, shape);
    if (a->head_dim <= 64)
        attend_tiles<64, 64, 32>(b, a, shape);
    else if (a->head_dim <= 128)
        attend_tiles<128, 32, 32>(b, a, shape);
    else if (a->head_dim <= 256)
        attend_tiles<256, 16, 16>(b, a, shape);
    else
        attend_tiles<512, 8, 8>(b, a, shape);
}
