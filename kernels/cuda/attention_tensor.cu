/* kernels/cuda/attention_tensor.cu: attention of spans with several queries on tensor cores, for
 * keys and values in bf16 or f16: FlashAttention-2 (Dao 2023, algorithm 1) with pairs of query and
 * head in the place of queries.
 *
 * Two things are rounded: q times scale and log2(e), and the weights exp2(score - running maximum),
 * both to the type of the keys and values. Products, scores, sums of weights and the output are
 * f32. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

enum { BLOCK_PAIRS = 64 };

/* How a block works. D: head_dim rounded up; N keys at a time; M products side by side, so that
 * what a warp loads of keys and values serves 16 M pairs, the rows of its products. */
template <enum dtype TYPE, int WIDTH, int KEYS, int PRODUCTS>
struct tensor_tile {
    static constexpr enum dtype T = TYPE;
    static constexpr int D = WIDTH, N = KEYS, M = PRODUCTS;
    static constexpr int WARP_PAIRS = 16 * M, THREADS = BLOCK_PAIRS / WARP_PAIRS * WARP;
    /* Rows are 16 bytes longer than D, so that the eight rows of a matrix that a warp loads lie in
     * different banks, and so does what eight threads copy side by side. */
    typedef uint16_t row[D + 8];
};

template <typename Tile>
struct tensor_shared {
    typename Tile::row keys[Tile::N], values[Tile::N];
    int seen[BLOCK_PAIRS]; /* the key past the last that a pair sees */
};

/* The running results of a lane's pairs. With g = lane / 4 they are g + 8 p of its warp, p from 0
 * to 2 M; pair p is in rows g (p even) or g + 8 of product p / 2 (mma.cuh). */
template <typename Tile>
struct tensor_pairs {
    unsigned q[Tile::M][Tile::D / 16][4]; /* A fragments */
    float out[Tile::M][Tile::D / 8][4];   /* C fragments, relative to `largest` */
    float largest[2 * Tile::M];           /* the same in the four lanes of a pair */
    float sum[2 * Tile::M];               /* of this lane's weights */
};

/* Scores and weights of a tile. */
template <typename Tile>
struct tensor_scores {
    float at[Tile::M][Tile::N / 8][4]; /* C fragments */
};
template <typename Tile>
struct tensor_weights {
    unsigned at[Tile::M][Tile::N / 16][4]; /* A fragments */
};

/* The pieces of 8 elements of a tile that a thread copies and cleans: rows `key`, key + STEP, ...
 * in column `col`. */
template <typename Tile>
struct tensor_share {
    static constexpr int STEP = Tile::THREADS * 8 / Tile::D;
    int key, col;
    __device__ tensor_share()
        : key((int)threadIdx.x / (Tile::D / 8)), col((int)threadIdx.x % (Tile::D / 8) * 8) {}
};

/* Begins to bring `keys` rows of a head of k or v, from row `first` on; more rows, up to N, and
 * columns past the head's end are zeros. */
template <typename Tile>
__device__ static void tensor_copy(const struct attention_shape &s, typename Tile::row *to,
                                   const view &from, int first, int keys) {
    const tensor_share<Tile> mine;
    const uint16_t *at = (const uint16_t *)from.data + (first + mine.key) * from.stride +
                         (int64_t)blockIdx.y * s.head_dim + mine.col;
    int width = s.head_dim - mine.col, left = width > 0 ? keys - mine.key : 0;
    if (s.vector) {
        UNROLL
        for (int i = 0; i < Tile::N; i += mine.STEP) {
            copy_begin(&to[mine.key + i][mine.col], at, i < left ? 16 : 0);
            at += mine.STEP * from.stride;
        }
        return;
    }
    ROLLED
    for (int i = 0; i < Tile::N; i += mine.STEP) {
        unsigned words[4] = {};
        for (int j = 0; j < 8; j++)
            if (i < left && j < width) words[j / 2] |= (unsigned)at[j] << 16 * (j & 1);
        uint4 packed = {words[0], words[1], words[2], words[3]};
        *(uint4 *)&to[mine.key + i][mine.col] = packed;
        at += mine.STEP * from.stride;
    }
}

template <enum dtype T>
__device__ static inline bool half_is_finite(unsigned bits) {
    constexpr unsigned EXPONENT = T == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    return (bits & EXPONENT) != EXPONENT;
}

/* In a tile of values of which some pairs see less than others: a weight 0 must leave out what it
 * is multiplied with, but 0 NaN is NaN. So NaN and infinities become zeros, in the pieces that this
 * thread copied, and tensor_restore brings them back to those who see them. Returns whether there
 * were any. */
template <typename Tile>
__device__ static bool tensor_clean(typename Tile::row *values) {
    constexpr enum dtype dtype = Tile::T;
    const tensor_share<Tile> mine;
    bool found = false;
    for (int key = mine.key; key < Tile::N; key += mine.STEP) {
        uint4 *piece = (uint4 *)&values[key][mine.col], was = *piece;
        unsigned words[4] = {was.x, was.y, was.z, was.w};
        bool finite = true;
        for (int j = 0; j < 4; j++) {
            unsigned keep = (half_is_finite<dtype>(words[j]) ? 0xffffu : 0) |
                            (half_is_finite<dtype>(words[j] >> 16) ? 0xffff0000u : 0);
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

/* A window comes with a causal mask here (attention_fits_tensor): a pair that sees no key from
 * `seen` on sees the last `window` before it. Less arithmetic than for windows to both sides, which
 * these kernels have no registers for. */
template <bool WINDOW>
__device__ inline int pair_seen(const struct attention_shape &shape,
                                const struct attention_span &span, int pair) {
    int seen = span.k_count - span.q_count + pair / shape.group + 1;
    bool causal = shape.causal && (WINDOW || !span.mutual); /* attention_fits_tensor */
    return causal && seen < span.k_count ? seen : span.k_count;
}
__device__ inline int first_seen(const struct attention_shape &shape, int seen) {
    return shape.window > 0 && seen > shape.window ? seen - shape.window : 0;
}

/* Fills `seen`; a pair past the span's last is like the last, but a warp of such pairs sees
 * nothing. Returns the key past the last that anybody sees. */
template <typename Tile, bool WINDOW>
__device__ static int tensor_seen(const struct attention_shape &s,
                                  const struct attention_span &span, int first, int *seen) {
    int left = span.q_count * s.group - first, last = (left < BLOCK_PAIRS ? left : BLOCK_PAIRS) - 1;
    int i = (int)threadIdx.x, pair = first + (i < last ? i : last);
    if (i < BLOCK_PAIRS)
        seen[i] =
            i / Tile::WARP_PAIRS * Tile::WARP_PAIRS <= last ? pair_seen<WINDOW>(s, span, pair) : 0;
    return pair_seen<WINDOW>(s, span, first + last);
}

/* Pair `first` of the span is the block's first; rows past the span's end are zeros, and nobody
 * reads what becomes of them. Scores are to be powers of two, which is where log2(e) comes from. */
template <typename Tile>
__device__ static void tensor_begin(const struct attention_shape &s,
                                    const struct attention_span &span, int first,
                                    tensor_pairs<Tile> &pairs) {
    int lane = (int)threadIdx.x % WARP;
    float scale = s.scale * 1.44269504f;
    first += (int)threadIdx.x / WARP * Tile::WARP_PAIRS;
    UNROLL
    for (int p = 0; p < 2 * Tile::M; p++) {
        int pair = first + lane / 4 + 8 * p, head = (int)blockIdx.y * s.group + pair % s.group;
        bool there = pair < span.q_count * s.group;
        const float *q = (const float *)s.q.data + (span.q_start + pair / s.group) * s.q.stride +
                         (int64_t)head * s.head_dim;
        UNROLL
        for (int i = 0; i < Tile::D / 8; i++) {
            int col = i * 8 + lane % 4 * 2;
            float low = there && col < s.head_dim ? q[col] * scale : 0;
            float high = there && col + 1 < s.head_dim ? q[col + 1] * scale : 0;
            pairs.q[p / 2][i / 2][i % 2 * 2 + p % 2] = halves_pack<Tile::T>(low, high);
        }
        pairs.largest[p] = -INFINITY;
        pairs.sum[p] = 0;
        UNROLL
        for (int i = 0; i < Tile::D / 8 * 2; i++) pairs.out[p / 2][i / 2][p % 2 * 2 + i % 2] = 0;
    }
}

/* scores += q k^T. One load brings two B fragments for each of two groups of 8 keys: a key is a
 * column of k^T. */
template <typename Tile>
__device__ static void tensor_multiply(const tensor_pairs<Tile> &pairs,
                                       const typename Tile::row *keys,
                                       tensor_scores<Tile> &scores) {
    int lane = (int)threadIdx.x % WARP;
    const uint16_t *row = &keys[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
    UNROLL
    for (int i = 0; i < Tile::D / 16 * (Tile::N / 16); i++) {
        int d = i / (Tile::N / 16), n = i % (Tile::N / 16);
        unsigned b[4];
        matrices_load(b, row + n * 16 * (Tile::D + 8) + d * 16);
        UNROLL
        for (int m = 0; m < Tile::M; m++) {
            mma_16x8x16<Tile::T>(scores.at[m][2 * n], pairs.q[m][d], b[0], b[1]);
            mma_16x8x16<Tile::T>(scores.at[m][2 * n + 1], pairs.q[m][d], b[2], b[3]);
        }
    }
}

/* Scores get soft-cap and bias, which are for scores times ln 2. `pair` is the lane's pair 0,
 * `first` the tile's first key. A window comes with a causal mask, and there the last key that a
 * pair sees is where its query stands. */
template <typename Tile, bool WINDOW>
__device__ static void tensor_bend(const struct attention_shape &s,
                                   const struct attention_span &span, int pair, const int *seen,
                                   tensor_scores<Tile> &scores, int first) {
    constexpr float LOG2_E = 1.44269504f, LN_2 = 0.69314718f;
    first += (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int p = 0; p < 2 * Tile::M; p++) {
        int head = (int)blockIdx.y * s.group + (pair + 8 * p) % s.group;
        int stands =
            WINDOW ? seen[8 * p] - 1 : span.k_count - span.q_count + (pair + 8 * p) / s.group;
        UNROLL
        for (int i = 0; i < Tile::N / 8 * 2; i++) {
            float &score = scores.at[p / 2][i / 2][p % 2 * 2 + i % 2];
            score = LOG2_E * score_bend(s, score * LN_2, head, first - stands + i / 2 * 8 + i % 2);
        }
    }
}

/* Scores of keys that a pair does not see become -infinity. */
template <typename Tile, bool WINDOW>
__device__ static void tensor_mask(const struct attention_shape &s, const int *seen,
                                   tensor_scores<Tile> &scores, int first) {
    first += (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int p = 0; p < 2 * Tile::M; p++) {
        int left = seen[8 * p] - first, hidden = WINDOW ? first_seen(s, seen[8 * p]) - first : 0;
        UNROLL
        for (int i = 0; i < Tile::N / 8 * 2; i++) {
            int key = i / 2 * 8 + i % 2;
            if (key >= left || (WINDOW && key < hidden))
                scores.at[p / 2][i / 2][p % 2 * 2 + i % 2] = -INFINITY;
        }
    }
}

/* Scores become weights relative to the pair's new maximum, and its older output and sum with them.
 * Those of two groups of 8 keys, rounded, are an A fragment as they lie. Without a window a pair
 * sees the first key of its span, so its maximum is finite after the first tile if its scores are;
 * with one a pair may see no key of the first tiles, and is then compared with 0, which leaves
 * nothing. */
template <typename Tile, bool WINDOW>
__device__ static void tensor_softmax(tensor_pairs<Tile> &pairs, const tensor_scores<Tile> &scores,
                                      tensor_weights<Tile> &weights) {
    UNROLL
    for (int p = 0; p < 2 * Tile::M; p++) {
        const float(&score)[Tile::N / 8][4] = scores.at[p / 2];
        float most = pairs.largest[p];
        int h = p % 2 * 2;
        UNROLL
        for (int i = 0; i < Tile::N / 8; i++)
            most = fmaxf(most, fmaxf(score[i][h], score[i][h + 1]));
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
        float against = WINDOW && most == -INFINITY ? 0 : most;
        float keep = exp2_approximately(pairs.largest[p] - against);
        pairs.largest[p] = most;
        pairs.sum[p] *= keep;
        UNROLL
        for (int i = 0; i < Tile::D / 8 * 2; i++) pairs.out[p / 2][i / 2][h + i % 2] *= keep;
    }
    UNROLL
    for (int i = 0; i < Tile::M * Tile::N / 8 * 2; i++) {
        int m = i / (Tile::N / 8 * 2), n = i / 2 % (Tile::N / 8), p = 2 * m + i % 2;
        float against = WINDOW && pairs.largest[p] == -INFINITY ? 0 : pairs.largest[p];
        float low = exp2_approximately(scores.at[m][n][i % 2 * 2] - against);
        float high = exp2_approximately(scores.at[m][n][i % 2 * 2 + 1] - against);
        pairs.sum[p] += low + high;
        weights.at[m][n / 2][n % 2 * 2 + i % 2] = halves_pack<Tile::T>(low, high);
    }
}

/* out += weights v. One transposed load brings the B fragments of 16 columns of v. */
template <typename Tile>
__device__ static void tensor_add(tensor_pairs<Tile> &pairs, const typename Tile::row *values,
                                  const tensor_weights<Tile> &weights) {
    int lane = (int)threadIdx.x % WARP;
    const uint16_t *row = &values[lane / 8 % 2 * 8 + lane % 8][lane / 16 * 8];
    UNROLL
    for (int i = 0; i < Tile::D / 16 * (Tile::N / 16); i++) {
        int n = i / (Tile::D / 16), d = i % (Tile::D / 16);
        unsigned b[4];
        matrices_load_transposed(b, row + n * 16 * (Tile::D + 8) + d * 16);
        UNROLL
        for (int m = 0; m < Tile::M; m++) {
            mma_16x8x16<Tile::T>(pairs.out[m][2 * d], weights.at[m][n], b[0], b[1]);
            mma_16x8x16<Tile::T>(pairs.out[m][2 * d + 1], weights.at[m][n], b[2], b[3]);
        }
    }
}

/* Where a lane's share of the output of its pair p begins; NULL past the span's last pair. Its
 * columns are 0, 1, 8, 9, 16, ... from there. */
template <typename Tile>
__device__ static float *tensor_out(const struct attention_shape &s, const struct tile_piece &piece,
                                    int p) {
    const struct attention_span &span = s.spans[piece.span];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int pair = piece.first + warp * Tile::WARP_PAIRS + lane / 4 + 8 * p;
    int head = (int)blockIdx.y * s.group + pair % s.group;
    if (pair >= span.q_count * s.group) return NULL;
    return (float *)s.out.data + (span.q_start + pair / s.group) * s.out.stride +
           (int64_t)head * s.head_dim + lane % 4 * 2;
}

template <typename Tile>
__device__ static void tensor_end(const struct attention_shape &s, const struct tile_piece &piece,
                                  const tensor_pairs<Tile> &pairs) {
    int left = s.head_dim - (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int p = 0; p < 2 * Tile::M; p++) {
        float *out = tensor_out<Tile>(s, piece, p), sum = pairs.sum[p];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        float share = 1 / sum;
        if (out == NULL) continue;
        UNROLL
        for (int i = 0; i < Tile::D / 8 * 2; i++)
            if (i / 2 * 8 + i % 2 < left)
                out[i / 2 * 8 + i % 2] = pairs.out[p / 2][i / 2][p % 2 * 2 + i % 2] * share;
    }
}

/* Adds what tensor_clean took out of the values of keys [first, end) to the outputs of the pairs
 * that see it: it is infinite or NaN, and so is the whole sum, whatever the weight. */
template <typename Tile>
__device__ static void tensor_restore(const struct attention_shape &s,
                                      const struct tile_piece &piece, const int *seen, int first,
                                      int end) {
    int column = (int)threadIdx.x % 4 * 2;
    ROLLED
    for (int p = 0; p < 2 * Tile::M; p++) {
        float *out = tensor_out<Tile>(s, piece, p);
        if (out == NULL) continue;
        int visible = first_seen(s, seen[8 * p]), last = seen[8 * p] < end ? seen[8 * p] : end;
        for (int key = visible > first ? visible : first; key < last; key++) {
            int row = key_row(s, s.spans[piece.span], key);
            const uint16_t *v = (const uint16_t *)s.v.data + row * s.v.stride +
                                (int64_t)blockIdx.y * s.head_dim + column;
            for (int i = 0; i / 2 * 8 + i % 2 < s.head_dim - column; i++) {
                uint16_t bits = v[i / 2 * 8 + i % 2];
                if (!half_is_finite<Tile::T>(bits))
                    out[i / 2 * 8 + i % 2] += half_bits_to_f32(bits, Tile::T);
            }
        }
    }
}

/* grid (tiles of 64 pairs, key heads), block Tile::THREADS, shared tensor_shared, at most 35 KiB.
 * Bound by arithmetic on tensor cores, 4 D operations per pair and key, and by what feeds them:
 * each warp loads all keys and values of a tile from shared memory, 512 bytes for 2 M products. A
 * tile's values are on their way while its scores are made, the next tile's keys while its weights
 * are. */
template <typename Tile, int BLOCKS, bool BENT, bool WINDOW>
__global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
    attention_tensor_kernel(struct tile_args a) {
    DYNAMIC_SHARED(memory);
    tensor_shared<Tile> &shared = *(tensor_shared<Tile> *)memory;
    constexpr int N = Tile::N;
    static_assert(ATTENTION_BLOCK % N == 0, "a tile of keys lies in one block");
    const struct attention_shape &shape = a.shape;
    const struct tile_piece piece = a.pieces[blockIdx.x];
    const struct attention_span &span = shape.spans[piece.span];
    int end = tensor_seen<Tile, WINDOW>(shape, span, piece.first, shared.seen);
    int key = WINDOW ? first_seen(shape, pair_seen<WINDOW>(shape, span, piece.first)) / N * N : 0,
        row = key_row(shape, span, key);
    const int *seen = &shared.seen[(int)threadIdx.x / WARP * Tile::WARP_PAIRS];
    int spoilt = -1; /* the first key that was cleaned */
    tensor_pairs<Tile> pairs;
    tensor_copy<Tile>(shape, shared.keys, shape.k, row, end - key);
    tensor_begin(shape, span, piece.first, pairs);
    for (; key < end; key += N) {
        tensor_scores<Tile> scores = {};
        tensor_weights<Tile> weights;
        copies_wait();
        __syncthreads(); /* the keys are there, and nobody reads the values before these */
        bool sees = key < seen[Tile::WARP_PAIRS - 1];
        tensor_copy<Tile>(shape, shared.values, shape.v, row, end - key);
        if (sees) tensor_multiply(pairs, shared.keys, scores);
        copies_wait();
        bool partly = key + N > shared.seen[0] && shared.seen[0] < end;
        if (WINDOW) partly = partly || key < first_seen(shape, end);
        bool found = partly && tensor_clean<Tile>(shared.values);
        found = __syncthreads_or(found); /* the values are there, and nobody reads these keys */
        if (found && spoilt < 0) spoilt = key;
        if (key + N < end) {
            row = key_row(shape, span, key + N);
            tensor_copy<Tile>(shape, shared.keys, shape.k, row, end - key - N);
        }
        if (!sees) continue;
        if (BENT) {
            int first = a.pieces[blockIdx.x].first, warp = (int)threadIdx.x / WARP,
                g = (int)threadIdx.x % WARP / 4;
            tensor_bend<Tile, WINDOW>(shape, span, first + warp * Tile::WARP_PAIRS + g, &seen[g],
                                      scores, key);
        }
        bool hides = WINDOW && key < first_seen(shape, seen[Tile::WARP_PAIRS - 1]);
        if (key + N > seen[0] || hides)
            tensor_mask<Tile, WINDOW>(shape, &seen[(int)threadIdx.x % WARP / 4], scores, key);
        tensor_softmax<Tile, WINDOW>(pairs, scores, weights);
        tensor_add(pairs, shared.values, weights);
    }
    tensor_end(shape, a.pieces[blockIdx.x], pairs);
    if (spoilt >= 0)
        tensor_restore<Tile>(shape, a.pieces[blockIdx.x], &seen[(int)threadIdx.x % WARP / 4],
                             spoilt, end);
}

/* BLOCKS: as many as a multiprocessor's registers and shared memory let run on it. */
template <typename Tile, int BLOCKS>
static void tensor_launch(struct backend *b, const struct attention_args *a,
                          const struct attention_shape &shape) {
    int n;
    struct tile_args args = {shape, tiles_list(b, a, BLOCK_PAIRS, true, &n)};
    void (*plain)(tile_args) = shape.window > 0
                                   ? attention_tensor_kernel<Tile, BLOCKS, false, true>
                                   : attention_tensor_kernel<Tile, BLOCKS, false, false>;
    void (*bent)(tile_args) = shape.window > 0 ? attention_tensor_kernel<Tile, BLOCKS, true, true>
                                               : attention_tensor_kernel<Tile, BLOCKS, true, false>;
    kernel_launch(b, shape_bends(shape) ? bent : plain, dim3((unsigned)n, (unsigned)a->kv_heads),
                  Tile::THREADS, sizeof(tensor_shared<Tile>), args);
}

template <enum dtype T>
static void tensor_launch_width(struct backend *b, const struct attention_args *a,
                                const struct attention_shape &shape) {
    if (a->head_dim <= 64)
        tensor_launch<tensor_tile<T, 64, 64, 2>, 4>(b, a, shape);
    else if (a->head_dim <= 128)
        tensor_launch<tensor_tile<T, 128, 64, 1>, 2>(b, a, shape);
    else
        tensor_launch<tensor_tile<T, 256, 32, 1>, 2>(b, a, shape);
}

bool attention_fits_tensor(const struct attention_args *args, const struct attention_span *span) {
    bool two_sided = args->window > 0 && (args->mask == MASK_NONE || span->mutual);
    return args->head_dim <= 256 && !args->sinks && !two_sided && args->k.dtype == args->v.dtype &&
           (args->k.dtype == DTYPE_BF16 || args->k.dtype == DTYPE_F16);
}

void attention_tensor(struct backend *backend, const struct attention_args *args,
                      const struct attention_shape &shape) {
    if (args->k.dtype == DTYPE_BF16)
        tensor_launch_width<DTYPE_BF16>(backend, args, shape);
    else
        tensor_launch_width<DTYPE_F16>(backend, args, shape);
}
