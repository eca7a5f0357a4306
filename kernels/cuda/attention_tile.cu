/* kernels/cuda/attention_tile.cu: attention of spans with several queries in f32 throughout: for
 * keys and values in f32, for heads that attention_tensor.cu is not made for, where keys and values
 * have different types, and for windows beside keys on both sides. A block keeps a tile of queries
 * and streams keys and values past it.
 */
#include "kernels/cuda/attention.cuh"

enum { TILE_ROWS_PER_THREAD = 8, TILE_COLUMNS_PER_THREAD = 4 };

/* D: head_dim rounded up; R rows; N keys at a time. Key rows are 4 floats longer than D, so that
 * the lanes of a warp, each at its own key, read 16 bytes from different banks. */
template <int WIDTH, int ROWS, int KEYS>
struct tile_shared {
    static constexpr int D = WIDTH, R = ROWS, N = KEYS;
    float q[R][D];
    float keys[N][D + 4]; /* then values */
    float scores[R][N];
    float largest[R], sum[R], keep[R];
    int first[R], seen[R]; /* the row sees keys [first, seen) of the span */
};

template <typename Tile>
__device__ static void tile_begin(const struct tile_args &a, Tile &shared,
                                  const struct tile_piece &piece, const struct attention_span &span,
                                  int rows) {
    constexpr int D = Tile::D, R = Tile::R;
    const struct attention_shape &shape = a.shape;
    int kv_head = (int)blockIdx.y;
    for (int i = (int)threadIdx.x; i < R * D; i += ATTENTION_THREADS) {
        int r = i / D, d = i % D, at = piece.first + r,
            head = kv_head * shape.group + at % shape.group;
        const float *q =
            (const float *)shape.q.data + (span.q_start + at / shape.group) * shape.q.stride;
        shared.q[r][d] = r < rows && d < shape.head_dim
                             ? q[(int64_t)head * shape.head_dim + d] * shape.scale
                             : 0;
    }
    for (int r = (int)threadIdx.x; r < R; r += ATTENTION_THREADS) {
        shared.seen[r] = r >= rows ? 0 : tile_seen(shape, span, piece.first + r);
        shared.first[r] = tile_first(shape, span, piece.first + r);
        int head = kv_head * shape.group + (piece.first + r) % shape.group;
        shared.largest[r] = shape.sinks ? shape.sinks[head] : -INFINITY;
        shared.sum[r] = shape.sinks ? 1 : 0;
    }
}

/* `keys` rows of k or v from `first` on become f32; N - keys more become zeros. */
template <typename Tile>
__device__ static void tile_load(const struct tile_args &a, Tile &shared, const view &from,
                                 int first, int keys) {
    constexpr int D = Tile::D, N = Tile::N;
    for (int i = (int)threadIdx.x; i < N * D / 4; i += ATTENTION_THREADS) {
        int key = i / (D / 4), col = i % (D / 4) * 4;
        lanes<4> v = {};
        if (key < keys) v = head_load<4>(a.shape, from, first + key, (int)blockIdx.y, col);
        float4 packed = {v.at[0], v.at[1], v.at[2], v.at[3]};
        *(float4 *)&shared.keys[key][col] = packed;
    }
}

/* scores = q k^T, with soft-cap and bias. A thread has one key and every (128 / N)-th row; its key
 * is read once for all of them. */
template <typename Tile>
__device__ static void tile_scores(const struct attention_shape &s, Tile &shared,
                                   const struct attention_span &span, int first_pair,
                                   int first_key) {
    constexpr int R = Tile::R, N = Tile::N;
    constexpr int STEP = ATTENTION_THREADS / N, MINE = R / STEP > 0 ? R / STEP : 1;
    int key = (int)threadIdx.x % N, first = (int)threadIdx.x / N;
    if (first >= R) return;
    float scores[MINE] = {};
    for (int d = 0; d < s.head_dim; d += 4) {
        float4 the_float4 = *(const float4 *)&shared.keys[key][d];
        for (int i = 0; i < MINE; i++) {
            float4 q = *(const float4 *)&shared.q[first + i * STEP][d];
            scores[i] = fmaf(q.w, the_float4.w,
                             fmaf(q.z, the_float4.z,
                                  fmaf(q.y, the_float4.y, fmaf(q.x, the_float4.x, scores[i]))));
        }
    }
    for (int i = 0; i < MINE; i++) {
        int pair = first_pair + first + i * STEP, head = (int)blockIdx.y * s.group + pair % s.group;
        int stands = span.k_count - span.q_count + pair / s.group;
        if (s.softcap > 0 || s.bias != NULL)
            scores[i] = score_bend(s, scores[i], head, first_key + key - stands);
        shared.scores[first + i * STEP][key] = scores[i];
    }
}

/* Scores become weights relative to the row's new maximum; `keep` is what the row's older output is
 * worth. A row that sees none of these keys keeps what it has. A warp has every fourth row, a lane
 * one key. */
template <typename Tile>
__device__ static void tile_softmax(Tile &shared, int first_key) {
    constexpr int R = Tile::R, N = Tile::N;
    int lane = (int)threadIdx.x % WARP;
    for (int r = (int)threadIdx.x / WARP; r < R; r += ATTENTION_THREADS / WARP) {
        bool seen =
            lane < N && first_key + lane < shared.seen[r] && first_key + lane >= shared.first[r];
        float score = seen ? shared.scores[r][lane] : -INFINITY, before = shared.largest[r],
              most = score;
        for (int offset = WARP / 2; offset > 0; offset /= 2)
            most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, offset));
        most = fmaxf(before, most);
        bool any = first_key < shared.seen[r] && first_key + N > shared.first[r];
        float weight = seen ? expf(score - most) : 0, keep = any ? expf(before - most) : 1;
        if (lane < N) shared.scores[r][lane] = weight;
        weight = warp_sum(weight);
        __syncwarp(); /* every lane has read the row's maximum before the new one is written */
        if (lane == 0) {
            shared.keep[r] = keep;
            shared.sum[r] = fmaf(shared.sum[r], keep, weight);
            shared.largest[r] = most;
        }
        __syncwarp();
    }
}

/* grid (pieces, key heads), block 128, shared tile_shared. Bound by arithmetic: 4 f32 operations
 * per row, key and dimension, on the ordinary units so that f32 caches keep f32 sums. A thread
 * holds 8 rows x 4 columns of the output.
 */
template <int D, int R, int N>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2) attention_tile_kernel(struct tile_args a) {
    DYNAMIC_SHARED(memory);
    tile_shared<D, R, N> &shared = *(tile_shared<D, R, N> *)memory;
    constexpr int ACROSS = D / TILE_COLUMNS_PER_THREAD, STEP = ATTENTION_THREADS / ACROSS;
    const struct attention_shape &shape = a.shape;
    const struct tile_piece piece = a.pieces[blockIdx.x];
    const struct attention_span span = shape.spans[piece.span];
    int pairs = span.q_count * shape.group - piece.first, rows = pairs < R ? pairs : R;
    int col = (int)threadIdx.x % ACROSS * TILE_COLUMNS_PER_THREAD,
        first_row = (int)threadIdx.x / ACROSS;
    int end = tile_seen(shape, span, piece.first + rows - 1);
    float out[TILE_ROWS_PER_THREAD][TILE_COLUMNS_PER_THREAD] = {};
    tile_begin(a, shared, piece, span, rows);
    for (int key = tile_first(shape, span, piece.first) / N * N; key < end; key += N) {
        int keys = end - key < N ? end - key : N, row = key_row(shape, span, key);
        __syncthreads();
        tile_load(a, shared, shape.k, row, keys);
        __syncthreads();
        tile_scores(shape, shared, span, piece.first, key);
        __syncthreads();
        tile_load(a, shared, shape.v, row, keys);
        tile_softmax(shared, key);
        __syncthreads();
        for (int i = 0; i < TILE_ROWS_PER_THREAD; i++)
            for (int j = 0; j < TILE_COLUMNS_PER_THREAD; j++)
                out[i][j] *= shared.keep[first_row + i * STEP];
        for (int n = 0; n < keys; n++) {
            float4 the_float4 = *(const float4 *)&shared.keys[n][col];
            for (int i = 0; i < TILE_ROWS_PER_THREAD; i++) {
                float p = shared.scores[first_row + i * STEP][n];
                int mine = first_row + i * STEP;
                if (key + n >= shared.seen[mine] || key + n < shared.first[mine]) continue;
                out[i][0] = fmaf(p, the_float4.x, out[i][0]);
                out[i][1] = fmaf(p, the_float4.y, out[i][1]);
                out[i][2] = fmaf(p, the_float4.z, out[i][2]);
                out[i][3] = fmaf(p, the_float4.w, out[i][3]);
            }
        }
    }
    for (int i = 0; i < TILE_ROWS_PER_THREAD; i++) {
        int r = first_row + i * STEP, at = piece.first + r,
            head = (int)blockIdx.y * shape.group + at % shape.group;
        if (r >= rows) continue;
        float *to = (float *)shape.out.data + (span.q_start + at / shape.group) * shape.out.stride +
                    (int64_t)head * shape.head_dim;
        for (int j = 0; j < TILE_COLUMNS_PER_THREAD; j++)
            if (col + j < shape.head_dim) to[col + j] = out[i][j] / shared.sum[r];
    }
}

template <int D, int R, int N>
static void tiles_launch(struct backend *b, const struct attention_args *a,
                         const struct attention_shape &shape) {
    static_assert(R * D == ATTENTION_THREADS * TILE_ROWS_PER_THREAD * TILE_COLUMNS_PER_THREAD,
                  "a thread's share");
    int n;
    struct tile_args args = {shape, tiles_list(b, a, R, false, &n)};
    kernel_launch(b, attention_tile_kernel<D, R, N>, dim3((unsigned)n, (unsigned)a->kv_heads),
                  ATTENTION_THREADS, sizeof(tile_shared<D, R, N>), args);
}

void attention_tiles(struct backend *backend, const struct attention_args *args,
                     const struct attention_shape &shape) {
    if (args->head_dim <= 64)
        tiles_launch<64, 64, 32>(backend, args, shape);
    else if (args->head_dim <= 128)
        tiles_launch<128, 32, 32>(backend, args, shape);
    else if (args->head_dim <= 256)
        tiles_launch<256, 16, 16>(backend, args, shape);
    else
        tiles_launch<512, 8, 8>(backend, args, shape);
}
