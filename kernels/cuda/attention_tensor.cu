/* kernels/cuda/attention_tensor.cu: attention of spans with several queries on tensor cores, for keys and values in
 * bf16 or f16: FlashAttention-2 (Dao 2023, algorithm 1) with pairs of query and head in the place of queries.
 *
 * What is rounded: q times scale and log2(e), and the weights exp2(score - running maximum), both to the type of the
 * keys and values. Products, scores, sums of weights and the output are f32. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

/* A warp has 16 pairs, the rows of its products: a lane holds parts of pairs g and g + 8 (mma.cuh). */
enum { WARP_PAIRS = 16, BLOCK_PAIRS = WARP_PAIRS * ATTENTION_THREADS / WARP };

/* D: head_dim rounded up; N keys at a time. Rows are 16 bytes longer than D, so that the eight rows of a matrix that
 * a warp loads lie in different banks, and so does what eight threads copy side by side. */
template <int D, int N>
struct tensor_shared {
    uint16_t keys[N][D + 8], values[N][D + 8];
    int seen[BLOCK_PAIRS]; /* the row of k past those that a pair sees */
};

/* What a lane keeps of its two pairs. */
template <int D>
struct tensor_pairs {
    unsigned q[D / 16][4]; /* A fragments */
    float out[D / 8][4];   /* C fragments, relative to `largest` */
    float largest[2];      /* the same in the four lanes of a pair */
    float sum[2];          /* of this lane's weights */
};

/* The pieces of 8 elements of a tile that a thread copies and cleans: rows `key`, key + STEP, ... in column `col`. */
template <int D>
struct tensor_share {
    static constexpr int STEP = ATTENTION_THREADS * 8 / D;
    int key, col;
    __device__ tensor_share() : key((int)threadIdx.x / (D / 8)), col((int)threadIdx.x % (D / 8) * 8) {}
};

/* Begins to bring N rows of a head of k or v, from row `first` on; from row `end` on and past the head's end zeros. */
template <int D, int N>
__device__ static void tensor_copy(const struct attention_shape &s, uint16_t (&to)[N][D + 8], const view &from,
                                   int first, int end) {
    const tensor_share<D> mine;
    const uint16_t *at =
        (const uint16_t *)from.data + (first + mine.key) * from.stride + (int64_t)blockIdx.y * s.head_dim + mine.col;
    int width = s.head_dim - mine.col, left = width > 0 ? end - first - mine.key : 0;
    if (s.vector) {
        UNROLL
        for (int i = 0; i < N; i += mine.STEP, at += mine.STEP * from.stride)
            copy_begin(&to[mine.key + i][mine.col], at, i < left ? 16 : 0);
        return;
    }
    ROLLED
    for (int i = 0; i < N; i += mine.STEP, at += mine.STEP * from.stride) {
        unsigned words[4] = {};
        for (int j = 0; j < 8; j++)
            if (i < left && j < width) words[j / 2] |= (unsigned)at[j] << 16 * (j & 1);
        uint4 packed = {words[0], words[1], words[2], words[3]};
        *(uint4 *)&to[mine.key + i][mine.col] = packed;
    }
}

template <enum dtype T>
__device__ static inline bool half_is_finite(unsigned bits) {
    constexpr unsigned EXPONENT = T == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    return (bits & EXPONENT) != EXPONENT;
}

/* In a tile of values of which some pairs see less than others: a weight 0 must leave out what it is multiplied with,
 * but 0 NaN is NaN. So NaN and infinities become zeros, in the pieces that this thread copied, and tensor_restore
 * brings them back to those who see them. Returns whether there were any. */
template <enum dtype T, int D, int N>
__device__ static bool tensor_clean(uint16_t (&values)[N][D + 8]) {
    const tensor_share<D> mine;
    bool found = false;
    for (int key = mine.key; key < N; key += mine.STEP) {
        uint4 *piece = (uint4 *)&values[key][mine.col], was = *piece;
        unsigned words[4] = {was.x, was.y, was.z, was.w};
        bool finite = true;
        for (int j = 0; j < 4; j++) {
            unsigned keep =
                (half_is_finite<T>(words[j]) ? 0xffffu : 0) | (half_is_finite<T>(words[j] >> 16) ? 0xffff0000u : 0);
            finite = finite && keep == 0xffffffffu;
            words[j] &= keep;
        }
        if (finite) continue;
        uint4 cleaned = {words[0], words[1], words[2], words[3]};
        *piece = cleaned;
        found = true;
    }
    return found;
}

/* Fills `seen`; a pair past the span's last is like the last, but a warp of such pairs sees nothing. Returns the row of
 * k past those that anybody sees. */
__device__ static int tensor_seen(const struct attention_shape &s, const struct attention_span &span, int first,
                                  int *seen) {
    int left = span.q_count * s.group - first, last = (left < BLOCK_PAIRS ? left : BLOCK_PAIRS) - 1;
    int i = (int)threadIdx.x, pair = first + (i < last ? i : last);
    if (i < BLOCK_PAIRS) seen[i] = span.k_start + (i / WARP_PAIRS * WARP_PAIRS <= last ? tile_seen(s, span, pair) : 0);
    return span.k_start + tile_seen(s, span, first + last);
}

/* Pair `first` of the span is the warp's first; rows past the span's end are zeros, and nobody reads what becomes of
 * them. Scores are to be powers of two, which is where log2(e) comes from. */
template <enum dtype T, int D>
__device__ static void tensor_begin(const struct attention_shape &s, const struct attention_span &span, int first,
                                    tensor_pairs<D> &pairs) {
    int lane = (int)threadIdx.x % WARP;
    float scale = s.scale * 1.44269504f;
    first += (int)threadIdx.x / WARP * WARP_PAIRS;
    UNROLL
    for (int h = 0; h < 2; h++) {
        int pair = first + lane / 4 + 8 * h, head = (int)blockIdx.y * s.group + pair % s.group;
        bool there = pair < span.q_count * s.group;
        const float *q =
            (const float *)s.q.data + (span.q_start + pair / s.group) * s.q.stride + (int64_t)head * s.head_dim;
        UNROLL
        for (int i = 0; i < D / 8; i++) {
            int col = i * 8 + lane % 4 * 2;
            float low = there && col < s.head_dim ? q[col] * scale : 0;
            float high = there && col + 1 < s.head_dim ? q[col + 1] * scale : 0;
            pairs.q[i / 2][i % 2 * 2 + h] = pack_halves<T>(low, high);
        }
        pairs.largest[h] = -INFINITY;
        pairs.sum[h] = 0;
    }
    UNROLL
    for (int i = 0; i < D / 8 * 4; i++) pairs.out[i / 4][i % 4] = 0;
}

/* scores += q k^T. One load brings two B fragments for each of two groups of 8 keys: a key is a column of k^T. */
template <enum dtype T, int D, int N>
__device__ static void tensor_scores(const tensor_pairs<D> &pairs, const uint16_t (&keys)[N][D + 8],
                                     float (&scores)[N / 8][4]) {
    int lane = (int)threadIdx.x % WARP;
    const uint16_t *row = &keys[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
    UNROLL
    for (int d = 0; d < D / 16; d++) UNROLL
    for (int n = 0; n < N / 16; n++) {
        unsigned b[4];
        load_matrices(b, row + n * 16 * (D + 8) + d * 16);
        mma_16x8x16<T>(scores[2 * n], pairs.q[d], b[0], b[1]);
        mma_16x8x16<T>(scores[2 * n + 1], pairs.q[d], b[2], b[3]);
    }
}

/* Scores of keys that a pair does not see become -infinity. */
template <int N>
__device__ static void tensor_mask(const int *seen, float (&scores)[N][4], int first) {
    first += (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int h = 0; h < 2; h++) {
        int left = seen[8 * h] - first;
        UNROLL
        for (int i = 0; i < N * 2; i++)
            if (i / 2 * 8 + i % 2 >= left) scores[i / 2][2 * h + i % 2] = -INFINITY;
    }
}

/* Scores become weights relative to the pair's new maximum, and its older output and sum with them. Those of two groups
 * of 8 keys, rounded, are an A fragment as they lie. A pair sees the first key of its span, so its maximum is finite
 * after the first tile if its scores are. */
template <enum dtype T, int D, int N>
__device__ static void tensor_softmax(tensor_pairs<D> &pairs, const float (&scores)[N / 8][4],
                                      unsigned (&weights)[N / 16][4]) {
    UNROLL
    for (int h = 0; h < 2; h++) {
        float most = pairs.largest[h];
        UNROLL
        for (int i = 0; i < N / 8; i++) most = fmaxf(most, fmaxf(scores[i][2 * h], scores[i][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
        float keep = exp2_approximately(pairs.largest[h] - most);
        pairs.largest[h] = most;
        pairs.sum[h] *= keep;
        UNROLL
        for (int i = 0; i < D / 8 * 2; i++) pairs.out[i / 2][2 * h + i % 2] *= keep;
    }
    UNROLL
    for (int i = 0; i < N / 8 * 2; i++) {
        int h = i % 2;
        float low = exp2_approximately(scores[i / 2][2 * h] - pairs.largest[h]);
        float high = exp2_approximately(scores[i / 2][2 * h + 1] - pairs.largest[h]);
        pairs.sum[h] += low + high;
        weights[i / 4][i % 4] = pack_halves<T>(low, high);
    }
}

/* out += weights v. One transposed load brings the B fragments of 16 columns of v. */
template <enum dtype T, int D, int N>
__device__ static void tensor_values(tensor_pairs<D> &pairs, const uint16_t (&values)[N][D + 8],
                                     const unsigned (&weights)[N / 16][4]) {
    int lane = (int)threadIdx.x % WARP;
    const uint16_t *row = &values[lane / 8 % 2 * 8 + lane % 8][lane / 16 * 8];
    UNROLL
    for (int n = 0; n < N / 16; n++) {
        UNROLL
        for (int d = 0; d < D / 16; d++) {
            unsigned b[4];
            load_matrices_transposed(b, row + n * 16 * (D + 8) + d * 16);
            mma_16x8x16<T>(pairs.out[2 * d], weights[n], b[0], b[1]);
            mma_16x8x16<T>(pairs.out[2 * d + 1], weights[n], b[2], b[3]);
        }
    }
}

/* Where a lane's share of a pair's output begins; NULL past the span's last pair. Its columns are 0, 1, 8, 9, 16, ...
 * from there. */
__device__ static float *tensor_out(const struct attention_shape &s, const struct tile_piece &piece, int h) {
    const struct attention_span &span = s.spans[piece.span];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int pair = piece.first + warp * WARP_PAIRS + lane / 4 + 8 * h, head = (int)blockIdx.y * s.group + pair % s.group;
    if (pair >= span.q_count * s.group) return NULL;
    return (float *)s.out.data + (span.q_start + pair / s.group) * s.out.stride + (int64_t)head * s.head_dim +
           lane % 4 * 2;
}

template <int D>
__device__ static void tensor_end(const struct attention_shape &s, const struct tile_piece &piece,
                                  const tensor_pairs<D> &pairs) {
    int left = s.head_dim - (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int h = 0; h < 2; h++) {
        float *out = tensor_out(s, piece, h), sum = pairs.sum[h];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        float share = 1 / sum;
        if (out == NULL) continue;
        UNROLL
        for (int i = 0; i < D / 8 * 2; i++)
            if (i / 2 * 8 + i % 2 < left) out[i / 2 * 8 + i % 2] = pairs.out[i / 2][2 * h + i % 2] * share;
    }
}

/* Adds what tensor_clean took out of the values in rows [first, end) to the outputs of the pairs that see it: it is
 * infinite or NaN, and so is the whole sum, whatever the weight. */
template <enum dtype T>
__device__ static void tensor_restore(const struct attention_shape &s, const struct tile_piece &piece, const int *seen,
                                      int first, int end) {
    int column = (int)threadIdx.x % 4 * 2;
    for (int h = 0; h < 2; h++) {
        float *out = tensor_out(s, piece, h);
        for (int row = first; out != NULL && row < end && row < seen[8 * h]; row++) {
            const uint16_t *v =
                (const uint16_t *)s.v.data + row * s.v.stride + (int64_t)blockIdx.y * s.head_dim + column;
            for (int i = 0; i / 2 * 8 + i % 2 < s.head_dim - column; i++) {
                uint16_t bits = v[i / 2 * 8 + i % 2];
                if (!half_is_finite<T>(bits)) out[i / 2 * 8 + i % 2] += half_bits_to_f32(bits, T);
            }
        }
    }
}

/* grid (tiles of 64 pairs, key heads), block 128, shared tensor_shared, at most 35 KiB. Bound by arithmetic on tensor
 * cores, 4 D operations per pair and key, and by what feeds them: each warp loads all keys and values of a tile from
 * shared memory, 512 bytes for two products. A tile's values are on their way while its scores are made, the next
 * tile's keys while its weights are. */
template <enum dtype T, int D, int N, int BLOCKS>
__global__ void __launch_bounds__(ATTENTION_THREADS, BLOCKS) attention_tensor_kernel(struct tile_args a) {
    DYNAMIC_SHARED(memory);
    tensor_shared<D, N> &shared = *(tensor_shared<D, N> *)memory;
    const struct attention_shape &s = a.shape;
    const struct tile_piece piece = a.pieces[blockIdx.x];
    const struct attention_span &span = s.spans[piece.span];
    int row = span.k_start, end = tensor_seen(s, span, piece.first, shared.seen);
    const int *seen = &shared.seen[(int)threadIdx.x / WARP * WARP_PAIRS];
    int spoilt = -1; /* the first row that was cleaned */
    tensor_pairs<D> pairs;
    tensor_copy<D, N>(s, shared.keys, s.k, row, end);
    tensor_begin<T>(s, span, piece.first, pairs);
    for (; row < end; row += N) {
        float scores[N / 8][4] = {};
        copies_wait();
        __syncthreads(); /* the keys are there, and nobody reads the values before these */
        bool sees = row < seen[WARP_PAIRS - 1];
        tensor_copy<D, N>(s, shared.values, s.v, row, end);
        if (sees) tensor_scores<T, D, N>(pairs, shared.keys, scores);
        copies_wait();
        bool found = row + N > shared.seen[0] && shared.seen[0] < end && tensor_clean<T, D, N>(shared.values);
        found = __syncthreads_or(found); /* the values are there, and nobody reads these keys */
        if (found && spoilt < 0) spoilt = row;
        if (row + N < end) tensor_copy<D, N>(s, shared.keys, s.k, row + N, end);
        if (!sees) continue;
        if (row + N > seen[0]) tensor_mask(&seen[(int)threadIdx.x % WARP / 4], scores, row);
        unsigned weights[N / 16][4];
        tensor_softmax<T, D, N>(pairs, scores, weights);
        tensor_values<T, D, N>(pairs, shared.values, weights);
    }
    tensor_end(s, a.pieces[blockIdx.x], pairs);
    if (spoilt >= 0) tensor_restore<T>(s, a.pieces[blockIdx.x], &seen[(int)threadIdx.x % WARP / 4], spoilt, end);
}

template <enum dtype T, int D, int N, int BLOCKS>
static void launch_tensor(struct backend *b, const struct attention_args *a, const struct attention_shape &shape) {
    int n;
    struct tile_args k = {shape, list_tiles(b, a, BLOCK_PAIRS, &n)};
    launch(b, attention_tensor_kernel<T, D, N, BLOCKS>, dim3((unsigned)n, (unsigned)a->kv_heads), ATTENTION_THREADS,
           sizeof(tensor_shared<D, N>), k);
}

template <enum dtype T>
static void launch_width(struct backend *b, const struct attention_args *a, const struct attention_shape &shape) {
    if (a->head_dim <= 64)
        launch_tensor<T, 64, 64, 3>(b, a, shape);
    else if (a->head_dim <= 128)
        launch_tensor<T, 128, 64, 2>(b, a, shape);
    else
        launch_tensor<T, 256, 32, 2>(b, a, shape);
}

bool fits_tensor_cores(const struct attention_args *a) {
    return a->head_dim <= 256 && a->k.dtype == a->v.dtype && (a->k.dtype == DTYPE_BF16 || a->k.dtype == DTYPE_F16);
}

void attend_on_tensor_cores(struct backend *b, const struct attention_args *a, const struct attention_shape &shape) {
    if (a->k.dtype == DTYPE_BF16)
        launch_width<DTYPE_BF16>(b, a, shape);
    else
        launch_width<DTYPE_F16>(b, a, shape);
}
