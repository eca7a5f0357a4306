/* kernels/cuda/attention_decode.cu: attention of spans with one query, which is decoding: bound by
 * the bytes of keys and values. The keys are cut into parts of 128, each for one thread block, and
 * a second kernel merges the parts. */
#include "kernels/cuda/attention.cuh"

/* Keys of a span that one thread block reads: few enough that one long sequence fills a GPU. */
enum { PART_KEYS = 128, PART_BLOCKS = PART_KEYS / ATTENTION_BLOCK };

/* One block's work. Its result goes to `out` (slot -1) or, not yet divided, to partials[slot]. */
struct decode_piece {
    int span, first,
        slot; /* keys from `first` to the next multiple of PART_KEYS; span -1: nothing */
};

struct decode_args {
    struct attention_shape shape;
    const struct decode_piece *pieces;
    float *partials; /* [slot][heads][head_dim + 2]: output, maximum, sum */
};

/* A sink enters sums that are relative to `most`: rescaled where its score is larger. */
__device__ static void sink_join(const struct attention_shape &shape, int head, float most,
                                 float &total, float &value) {
    if (shape.sinks == NULL) return;
    float sink = shape.sinks[head], largest = fmaxf(most, sink), keep = expf(most - largest);
    total = fmaf(total, keep, expf(sink - largest));
    value *= keep;
}

/* One group's results for each row; the groups of a block are merged through them. */
template <int LANES, int E, int ROWS>
struct decode_shared {
    float largest[ATTENTION_THREADS / LANES][ROWS], sum[ATTENTION_THREADS / LANES][ROWS];
    float out[ATTENTION_THREADS / LANES][ROWS][LANES * E];
};

/* E elements of a key or value as they lie in memory. HALVES: of 16 bits, in whole vectors; nothing
 * is done with them that would wait for them, so that several keys and values are on their way at
 * once. */
template <int E, bool HALVES>
struct head_piece {
    uint4 words[E / 8];
};
template <int E>
struct head_piece<E, false> {
    lanes<E> wide;
};

template <int E, bool HALVES>
__device__ static head_piece<E, HALVES> fetch_head(const struct attention_shape &s, const view &t,
                                                   int row, int kv_head, int col) {
    head_piece<E, HALVES> piece = {};
    if constexpr (HALVES) {
        const uint16_t *from =
            (const uint16_t *)t.data + row * t.stride + (int64_t)kv_head * s.head_dim + col;
        UNROLL
        for (int i = 0; i < E / 8; i++)
            if (col + 8 * i < s.head_dim)
                piece.words[i] = *(const uint4 *)(const void *)(from + 8 * i);
    } else {
        piece.wide = head_load<E>(s, t, row, kv_head, col);
    }
    return piece;
}

template <int E, bool HALVES>
__device__ static lanes<E> piece_widen(const head_piece<E, HALVES> &piece, enum dtype dtype) {
    if constexpr (HALVES) {
        lanes<E> out;
        UNROLL
        for (int i = 0; i < E / 8; i++) {
            unsigned words[4] = {piece.words[i].x, piece.words[i].y, piece.words[i].z,
                                 piece.words[i].w};
            UNROLL
            for (int j = 0; j < 8; j++)
                out.at[8 * i + j] =
                    half_bits_to_f32((uint16_t)(words[j / 2] >> 16 * (j & 1)), dtype);
        }
        return out;
    } else {
        return piece.wide;
    }
}

/* grid (pieces, key heads, groups of ROWS query heads), block 128, shared decode_shared. Bound by
 * bytes, and for few sequences by latency: every key and value is read once per ROWS query heads,
 * 16 bytes a lane for 16-bit types, of which AHEAD keys and values are on their way at once. LANES
 * lanes hold one key, E elements each; so a warp reads 32 / LANES keys side by side. Two blocks on
 * a processor are asked for, as for that ptxas spills no register: left to itself it aims at more.
 */
template <int LANES, int E, int ROWS, bool HALVES, bool BENT>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_decode_kernel(struct decode_args a) {
    DYNAMIC_SHARED(memory);
    decode_shared<LANES, E, ROWS> &shared = *(decode_shared<LANES, E, ROWS> *)memory;
    constexpr int GROUPS = ATTENTION_THREADS / LANES, AHEAD = HALVES && E == 8 ? 4 : 1;
    const struct attention_shape &shape = a.shape;
    const struct decode_piece piece = a.pieces[blockIdx.x];
    if (piece.span < 0) return;
    const struct attention_span span = shape.spans[piece.span];
    int kv_head = (int)blockIdx.y, first_head = kv_head * shape.group + (int)blockIdx.z * ROWS;
    int rows =
        shape.group - (int)blockIdx.z * ROWS < ROWS ? shape.group - (int)blockIdx.z * ROWS : ROWS;
    int begin = piece.first / PART_KEYS * PART_KEYS;
    int end = begin + PART_KEYS < span.k_count ? begin + PART_KEYS : span.k_count;
    static_assert(PART_BLOCKS == 1 || PART_BLOCKS == 2,
                  "a key lies in the first block of its part or in the last");
    int starts[PART_BLOCKS]; /* such that key i of the part's block p is row starts[p] + i */
    UNROLL
    for (int i = 0; i < PART_BLOCKS; i++) {
        int key = begin + i * ATTENTION_BLOCK;
        starts[i] = key < end ? key_row(shape, span, key) - key : 0;
    }
    int group = (int)threadIdx.x / LANES, col = (int)threadIdx.x % LANES * E;
    float q[ROWS][E], out[ROWS][E], largest[ROWS], sum[ROWS];
    for (int r = 0; r < ROWS; r++) {
        const float *from = (const float *)shape.q.data + span.q_start * shape.q.stride +
                            (int64_t)(first_head + r) * shape.head_dim;
        for (int j = 0; j < E; j++) {
            q[r][j] = r < rows && col + j < shape.head_dim ? from[col + j] * shape.scale : 0;
            out[r][j] = 0;
        }
        largest[r] = -INFINITY;
        sum[r] = 0;
    }
    for (int base = piece.first; base < end; base += AHEAD * GROUPS) {
        head_piece<E, HALVES> keys[AHEAD], values[AHEAD];
        UNROLL
        for (int i = 0; i < AHEAD; i++) {
            int key = base + i * GROUPS + group;
            keys[i] = values[i] = {};
            if (key >= end) continue;
            int row = (key - begin < ATTENTION_BLOCK ? starts[0] : starts[PART_BLOCKS - 1]) + key;
            keys[i] = fetch_head<E, HALVES>(shape, shape.k, row, kv_head, col);
            values[i] = fetch_head<E, HALVES>(shape, shape.v, row, kv_head, col);
        }
        UNROLL
        for (int i = 0; i < AHEAD; i++) {
            bool seen = base + i * GROUPS + group < end;
            lanes<E> k = piece_widen<E, HALVES>(keys[i], shape.k.dtype),
                     v = piece_widen<E, HALVES>(values[i], shape.v.dtype);
            for (int r = 0; r < ROWS; r++) {
                float score = 0;
                for (int j = 0; j < E; j++) score = fmaf(q[r][j], k.at[j], score);
                for (int offset = LANES / 2; offset > 0; offset /= 2)
                    score += __shfl_xor_sync(ALL_LANES, score, offset);
                if (!seen) continue;
                if constexpr (BENT) {
                    int distance = base + i * GROUPS + group - (span.k_count - 1);
                    score = score_bend(shape, score, first_head + (r < rows ? r : 0), distance);
                }
                float most = fmaxf(largest[r], score), keep = expf(largest[r] - most),
                      p = expf(score - most);
                sum[r] = fmaf(sum[r], keep, p);
                for (int j = 0; j < E; j++) out[r][j] = fmaf(out[r][j], keep, p * v.at[j]);
                largest[r] = most;
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int j = 0; j < E; j++) shared.out[group][r][col + j] = out[r][j];
        shared.largest[group][r] = largest[r];
        shared.sum[group][r] = sum[r];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < rows * shape.head_dim; i += ATTENTION_THREADS) {
        int r = i / shape.head_dim, d = i % shape.head_dim, head = first_head + r;
        float most = -INFINITY, total = 0, value = 0;
        for (int g = 0; g < GROUPS; g++) most = fmaxf(most, shared.largest[g][r]);
        for (int g = 0; g < GROUPS; g++) {
            if (shared.sum[g][r] == 0) continue; /* it had no key */
            float weight = expf(shared.largest[g][r] - most);
            total = fmaf(shared.sum[g][r], weight, total);
            value = fmaf(shared.out[g][r][d], weight, value);
        }
        if (piece.slot < 0) {
            sink_join(shape, head, most, total, value);
            ((float *)shape.out
                 .data)[span.q_start * shape.out.stride + (int64_t)head * shape.head_dim + d] =
                value / total;
        } else {
            float *to =
                a.partials + ((int64_t)piece.slot * shape.heads + head) * (shape.head_dim + 2);
            to[d] = value;
            if (d == 0) {
                to[shape.head_dim] = most;
                to[shape.head_dim + 1] = total;
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

/* grid (spans in parts, heads), block 128. Bound by bytes: reads the partial results once, in
 * rising order. */
__global__ void attention_combine_kernel(struct combine_args args) {
    const struct attention_shape &shape = args.shape;
    const struct combine_piece piece = args.pieces[blockIdx.x];
    if (piece.slots == 0) return;
    int head = (int)blockIdx.y, width = shape.head_dim + 2;
    int64_t step = (int64_t)shape.heads * width;
    const float *parts = args.partials + piece.first_slot * step + (int64_t)head * width;
    float *out = (float *)shape.out.data + shape.spans[piece.span].q_start * shape.out.stride +
                 (int64_t)head * shape.head_dim;
    float most = -INFINITY;
    for (int i = 0; i < piece.slots; i++) most = fmaxf(most, parts[i * step + shape.head_dim]);
    for (int d = (int)threadIdx.x; d < shape.head_dim; d += ATTENTION_THREADS) {
        float total = 0, value = 0;
        for (int i = 0; i < piece.slots; i++) {
            float weight = expf(parts[i * step + shape.head_dim] - most);
            total = fmaf(parts[i * step + shape.head_dim + 1], weight, total);
            value = fmaf(parts[i * step + d], weight, value);
        }
        sink_join(shape, head, most, total, value);
        out[d] = value / total;
    }
}

template <int LANES, int E, int ROWS>
static void decode_launch_rows(struct backend *b, const struct decode_args &a, int n_pieces) {
    const struct attention_shape &shape = a.shape;
    bool halves = shape.vector && shape.k.dtype != DTYPE_F32 && shape.v.dtype != DTYPE_F32;
    dim3 grid((unsigned)n_pieces, (unsigned)shape.kv_heads, blocks_for(shape.group, ROWS));
    void (*plain)(decode_args) = halves ? attention_decode_kernel<LANES, E, ROWS, true, false>
                                        : attention_decode_kernel<LANES, E, ROWS, false, false>;
    void (*bent)(decode_args) = halves ? attention_decode_kernel<LANES, E, ROWS, true, true>
                                       : attention_decode_kernel<LANES, E, ROWS, false, true>;
    kernel_launch(b, shape_bends(shape) ? bent : plain, grid, ATTENTION_THREADS,
                  sizeof(decode_shared<LANES, E, ROWS>), a);
}

template <int LANES, int E>
static void decode_launch(struct backend *b, const struct decode_args &a, int n_pieces) {
    if (a.shape.group == 1)
        decode_launch_rows<LANES, E, 1>(b, a, n_pieces);
    else
        decode_launch_rows<LANES, E, 4>(b, a, n_pieces);
}

/* Parts of a span with one query: their number and the first key that it sees. 0 for other spans.
 */
static int parts_count(const struct attention_args *args, int span, int *first_key) {
    int keys = args->spans[span].k_count;
    *first_key = attention_keys_begin(args, keys - 1);
    if (args->spans[span].q_count != 1) return 0;
    return (int)blocks_for(keys, PART_KEYS) - *first_key / PART_KEYS;
}

/* Lists the parts of every span with one query, padded; returns how many, and how many slots and
 * merges they need. */
static int decode_list(const struct attention_args *args, struct cuda *cuda, int *slots,
                       int *merges) {
    int n = 0, at = 0, key;
    for (int i = 0; i < args->n_spans; i++) n += parts_count(args, i, &key);
    n = count_pad(n);
    struct decode_piece *pieces =
        (struct decode_piece *)host_list_reserve(&cuda->pieces, (size_t)n * sizeof *pieces);
    struct combine_piece *combines =
        (struct combine_piece *)host_list_reserve(&cuda->combines, (size_t)n * sizeof *combines);

    int slot = 0, merge = 0;
    for (int i = 0; i < args->n_spans; i++) {
        int parts = parts_count(args, i, &key);
        bool merged = parts > 1;
        if (merged) combines[merge] = {i, slot, parts};
        for (int part = 0; part < parts; part++) {
            pieces[at] = {i, key, merged ? slot + part : -1};
            at++;
            key = (key / PART_KEYS + 1) * PART_KEYS;
        }
        if (merged) {
            merge++;
            slot += parts;
        }
    }

    for (; at < n; at++) pieces[at] = {-1, 0, -1};
    *slots = slot;
    *merges = count_pad(merge);
    for (int i = merge; i < *merges; i++) combines[i] = {0, 0, 0};
    return n;
}

void attention_decode(struct backend *backend, const struct attention_args *args,
                      const struct attention_shape &shape) {
    struct cuda *cuda = cuda_of(backend);
    int slots, merges, n = decode_list(args, cuda, &slots, &merges);
    if (n == 0) return;
    struct decode_args decode_args;
    size_t width = (size_t)args->heads * (size_t)(args->head_dim + 2);
    decode_args.shape = shape;
    decode_args.pieces =
        array_stage(backend, (const struct decode_piece *)cuda->pieces.data, (size_t)n);
    decode_args.partials =
        (float *)workspace_reserve(backend, &cuda->partials, (size_t)slots * width * sizeof(float));
    if (args->head_dim <= 64)
        decode_launch<8, 8>(backend, decode_args, n);
    else if (args->head_dim <= 128)
        decode_launch<16, 8>(backend, decode_args, n);
    else if (args->head_dim <= 256)
        decode_launch<32, 8>(backend, decode_args, n);
    else
        decode_launch<32, 16>(backend, decode_args, n);
    if (merges == 0) return;
    struct combine_args combine_args;
    combine_args.shape = shape;
    combine_args.pieces =
        array_stage(backend, (const struct combine_piece *)cuda->combines.data, (size_t)merges);
    combine_args.partials = decode_args.partials;
    kernel_launch(backend, attention_combine_kernel, dim3((unsigned)merges, (unsigned)args->heads),
                  ATTENTION_THREADS, 0, combine_args);
}
