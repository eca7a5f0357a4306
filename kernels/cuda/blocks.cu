/* kernels/cuda/blocks.cu: products of few rows, and of any number with int8, int4 and fp8 weights
 * (blocks.cuh).
 *
 * Up to CUDA_FEW_ROWS rows, which is decoding, our own kernel multiplies f32 x by the weights as
 * they are: each is made f32 again, scale q + minimum or, in fp8, q, products are fused
 * multiply-adds, sums f32, to be scaled in fp8. The order of a sum depends on the weight's shape
 * alone, so a row is bitwise the same alone and among up to CUDA_FEW_ROWS. More rows are the
 * library's: quantised W is written out in bf16, a tile of rows at a time, and x is rounded to
 * bf16, as with bf16 weights. Both roundings are to nearest even, by at most 2^-9 of each factor.
 * So a row's last bits depend on whether it is one of few or of many. */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/linear.cuh"

enum {
    COLUMNS = 4, /* rows of W that a block of threads multiplies: x is loaded once for all */
    MOST_THREADS = 256,
    SMALL_BYTES = 8 << 20, /* of a weight: 64 KiB for each of some 130 multiprocessors */
    TILE_BYTES =
        32 << 20,  /* of W in bf16, about what stays in the cache until the product reads it */
    TILE_ROWS = 16 /* a tile has a multiple of this */
};

/* Sums v[0 .. N) over the lanes of a warp, N a power of two; afterwards v[i] of lane l is the sum
 * of what was v[lane_first<N>(l) + i], i < N / 32, or v[0] alone. Each step hands half of the sums
 * to the lane opposite. The tree of each sum is the same whatever N is. */
template <int N>
__device__ inline void warp_sums(float (&v)[N]) {
    int n = N / 2;
    for (int bit = 1; bit < WARP; bit *= 2) {
        bool upper = threadIdx.x & bit;
        if (n == 0) v[0] += __shfl_xor_sync(ALL_LANES, v[0], bit);
        for (int i = 0; i < n; i++) {
            float given = __shfl_xor_sync(ALL_LANES, upper ? v[i] : v[i + n], bit);
            v[i] = (upper ? v[i + n] : v[i]) + given;
        }
        n /= 2;
    }
}

template <int N>
__device__ inline int lane_first(int lane) {
    int first = 0, n = N / 2;
    for (int bit = 1; bit < WARP; bit *= 2) {
        first += lane & bit ? n : 0;
        n /= 2;
    }
    return first;
}

struct blocks_kernel_args {
    struct blocks w;
    const float *x, *bias;
    float *y;
    int64_t x_stride, y_stride;
    int rows;
    enum activation activation;
};

/* Rows [top, top + ROWS) of x by rows [first, first + 4) of W, which is read once, 16 bytes a
 * thread and row, and x from the cache. Rows that are missing repeat the last one and are not
 * written. `shared` holds 4 ROWS floats per warp.
 */
template <enum dtype T, int ROWS>
__device__ inline void blocks_multiply(const struct blocks_kernel_args &k, int first, int top,
                                       float *shared) {
    constexpr int N = ROWS * COLUMNS;
    /* Without a branch the compiler loads the x of all blocks at once, while W is on its way; of
     * much x that would take too many registers. */
    constexpr bool APART = ROWS * line_blocks(T) > 8;
    int pieces = k.w.lines * LINE_PIECES;
    float sums[N] = {};
    for (int at = (int)threadIdx.x; at < pieces; at += (int)blockDim.x) {
        block_piece<T> w[COLUMNS];
        for (int c = 0; c < COLUMNS; c++)
            w[c] = piece_load<T>(k.w, first + c < k.w.n_out ? first + c : k.w.n_out - 1, at);
        UNROLL
        for (int block = 0; block < line_blocks(T); block++) {
            int col = quad_column<T>(at, block);
            if (APART && col >= k.w.n_in) continue;
            col = col < k.w.n_in ? col
                                 : k.w.n_in - QUAD; /* filling weighs nothing, and meets any x */
            lanes<QUAD> quads[COLUMNS];
            for (int c = 0; c < COLUMNS; c++) quads[c] = piece_dequantise<T>(w[c], block);
            for (int r = 0; r < ROWS; r++) {
                lanes<QUAD> x = lanes_load<QUAD>(
                    k.x, DTYPE_F32, (top + r < k.rows ? top + r : k.rows - 1) * k.x_stride + col);
                for (int c = 0; c < COLUMNS; c++)
                    for (int j = 0; j < QUAD; j++)
                        sums[r * COLUMNS + c] =
                            fmaf(quads[c].at[j], x.at[j], sums[r * COLUMNS + c]);
            }
        }
    }
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP,
        warps = (int)blockDim.x / WARP;
    warp_sums<N>(sums);
    for (int i = 0; i < (N > WARP ? N / WARP : 1); i++)
        if (lane < N) shared[warp * N + lane_first<N>(lane) + i] = sums[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < N; i += (int)blockDim.x) {
        int row = top + i / COLUMNS, col = first + i % COLUMNS;
        if (row >= k.rows || col >= k.w.n_out) continue;
        float sum = shared[i];
        for (int other = 1; other < warps; other++) sum += shared[other * N + i];
        sum *= row_scale<T>(k.w, col);
        k.y[row * k.y_stride + col] =
            value_activate(k.bias ? sum + k.bias[col] : sum, k.activation);
    }
}

/* grid (n_out / 4 times groups of ROWS rows of x), block 32 .. 256, shared 4 ROWS floats per warp.
 * Bound by the bytes of W for few rows, by multiply-adds for more. The groups of the same four rows
 * of W are neighbours, so that memory is read once for all. */
template <enum dtype T, int ROWS>
__global__ void __launch_bounds__(MOST_THREADS) linear_blocks_kernel(struct blocks_kernel_args k) {
    DYNAMIC_SHARED(memory);
    int groups = (k.rows + ROWS - 1) / ROWS;
    blocks_multiply<T, ROWS>(k, (int)blockIdx.x / groups * COLUMNS, (int)blockIdx.x % groups * ROWS,
                             (float *)memory);
}

struct experts_kernel_args {
    struct blocks_kernel_args
        one; /* `w`: values and scales are each expert's own; x and y: of all experts */
    struct expert_rows rows;
    const void *const *weights;
    int64_t scales_at;
    int groups, unused; /* of rows, at most */
};

/* The same with the rows of each expert: grid (n_out / 4 times groups of ROWS rows, at most). */
template <enum dtype T, int ROWS>
__global__ void __launch_bounds__(MOST_THREADS, 1)
    experts_blocks_kernel(struct experts_kernel_args k) {
    DYNAMIC_SHARED(memory);
    int tile = (int)blockIdx.x % k.groups, expert = expert_of(k.rows, tile);
    if (expert == k.rows.experts || k.weights[expert] == NULL) return;
    int start = k.rows.starts[expert];
    k.one.w.values = (const unsigned char *)k.weights[expert];
    k.one.w.scales = (const uint16_t *)(const void *)(k.one.w.values + k.scales_at);
    k.one.x += start * k.one.x_stride;
    k.one.y += start * k.one.y_stride;
    k.one.rows = k.rows.starts[expert + 1] - start;
    blocks_multiply<T, ROWS>(k.one, (int)blockIdx.x / k.groups * COLUMNS,
                             (tile - k.rows.tiles[expert]) * ROWS, (float *)memory);
}

/* Two pieces a thread where the row is long enough, one in small weights, so that all of their
 * bytes are on the way at once; of the weight's shape alone, because the order of the sums follows
 * from it. */
static int blocks_threads(const struct blocks &blocks) {
    int each = (int64_t)blocks.n_out * blocks.lines > SMALL_BYTES / LINE_BYTES ? 2 : 1;
    int warps = (blocks.lines * LINE_PIECES / each + WARP - 1) / WARP;
    return WARP * (warps < 1 ? 1 : warps < MOST_THREADS / WARP ? warps : MOST_THREADS / WARP);
}

template <enum dtype T, int ROWS>
static void blocks_launch(struct backend *b, const struct blocks_kernel_args &k) {
    int threads = blocks_threads(k.w);
    size_t shared = (size_t)(threads / WARP) * ROWS * COLUMNS * sizeof(float);
    unsigned blocks = blocks_for(k.w.n_out, COLUMNS) * blocks_for(k.rows, ROWS);
    kernel_launch(b, linear_blocks_kernel<T, ROWS>, dim3(blocks), threads, shared, k);
}

template <enum dtype T>
static void blocks_multiply_few(struct backend *b, const struct blocks_kernel_args &k) {
    if (k.rows > 4) return blocks_launch<T, 8>(b, k);
    if (k.rows > 2) return blocks_launch<T, 4>(b, k);
    if (k.rows > 1) return blocks_launch<T, 2>(b, k);
    blocks_launch<T, 1>(b, k);
}

struct dequantise_kernel_args {
    struct blocks w;
    uint16_t *to; /* bf16 [rows, n_in] */
    int first;    /* row of W */
    int unused = 0;
};

/* grid (rows, pieces of n_in), block 256, a piece of 16 bytes each. Bound by bytes: writes two to
 * four times as many as it reads. */
template <enum dtype T>
__global__ void linear_dequantise_kernel(struct dequantise_kernel_args k) {
    int row = (int)blockIdx.x, at = first_column<1>();
    if (at >= k.w.lines * LINE_PIECES) return;
    block_piece<T> p = piece_load<T>(k.w, k.first + row, at);
    float scale = row_scale<T>(k.w, k.first + row);
    for (int block = 0; block < line_blocks(T); block++) {
        int col = quad_column<T>(at, block);
        if (col >= k.w.n_in) continue;
        lanes<QUAD> w = piece_dequantise<T>(p, block);
        for (int j = 0; j < QUAD; j++) w.at[j] *= scale;
        lanes_store<QUAD>(k.to, DTYPE_BF16, (int64_t)row * k.w.n_in + col, w);
    }
}

static void rows_dequantise(struct backend *backend, const struct dequantise_kernel_args &args,
                            int rows) {
    int pieces = args.w.lines * LINE_PIECES;
    auto kernel = args.w.dtype == DTYPE_INT8   ? linear_dequantise_kernel<DTYPE_INT8>
                  : args.w.dtype == DTYPE_INT4 ? linear_dequantise_kernel<DTYPE_INT4>
                                               : linear_dequantise_kernel<DTYPE_FP8>;
    kernel_launch(backend, kernel, row_grid(rows, pieces, 1), row_threads(pieces, 1), 0, args);
}

/* Tile by tile through one piece of memory, in order of the stream. */
static void blocks_multiply_many(struct backend *backend, const struct linear_args *args) {
    const struct weight *weight = args->weight;
    size_t row_bytes = (size_t)weight->n_in * sizeof(uint16_t),
           fit = TILE_BYTES / row_bytes / TILE_ROWS * TILE_ROWS;
    int most = fit < TILE_ROWS ? TILE_ROWS : fit < (size_t)weight->n_out ? (int)fit : weight->n_out;
    void *tile = workspace_reserve(backend, &cuda_of(backend)->tile, (size_t)most * row_bytes);
    view x = linear_input(backend, args->x, DTYPE_BF16);
    for (int first = 0; first < weight->n_out; first += most) {
        int rows = weight->n_out - first < most ? weight->n_out - first : most;
        struct dequantise_kernel_args dequantise_kernel_args = {blocks_of(weight), (uint16_t *)tile,
                                                                first};
        rows_dequantise(backend, dequantise_kernel_args, rows);
        struct gemm_args gemm_args = {x.data,
                                      tile,
                                      (float *)args->y.data + first,
                                      args->bias ? args->bias + first : NULL,
                                      x.stride,
                                      args->y.stride,
                                      x.rows,
                                      rows,
                                      weight->n_in,
                                      DTYPE_BF16,
                                      args->activation};
        linear_product(backend, &gemm_args);
    }
}

void linear_blocks(struct backend *backend, const struct linear_args *args) {
    if (args->x.rows > CUDA_FEW_ROWS) {
        blocks_multiply_many(backend, args);
        return;
    }
    view x =
        view_divides(&args->x, QUAD) ? view(args->x) : linear_input(backend, args->x, DTYPE_F32);
    struct blocks_kernel_args blocks_kernel_args = {blocks_of(args->weight),
                                                    (const float *)x.data,
                                                    args->bias,
                                                    (float *)args->y.data,
                                                    x.stride,
                                                    args->y.stride,
                                                    x.rows,
                                                    args->activation};
    switch (args->weight->dtype) {
        case DTYPE_INT8: return blocks_multiply_few<DTYPE_INT8>(backend, blocks_kernel_args);
        case DTYPE_INT4: return blocks_multiply_few<DTYPE_INT4>(backend, blocks_kernel_args);
        case DTYPE_FP8: return blocks_multiply_few<DTYPE_FP8>(backend, blocks_kernel_args);
        case DTYPE_F16: return blocks_multiply_few<DTYPE_F16>(backend, blocks_kernel_args);
        default: return blocks_multiply_few<DTYPE_BF16>(backend, blocks_kernel_args);
    }
}

template <enum dtype T, int ROWS>
static void experts_launch(struct backend *b, const struct expert_product *p,
                           struct experts_kernel_args k) {
    int threads = blocks_threads(k.one.w);
    size_t shared = (size_t)(threads / WARP) * ROWS * COLUMNS * sizeof(float);
    k.groups = experts_cut(b, p, ROWS);
    k.one.w.values = NULL;
    k.one.w.scales = NULL;
    unsigned blocks = blocks_for(k.one.w.n_out, COLUMNS) * (unsigned)k.groups;
    kernel_launch(b, experts_blocks_kernel<T, ROWS>, dim3(blocks), threads, shared, k);
}

template <enum dtype T>
static void experts_multiply_type(struct backend *b, const struct expert_product *p,
                                  const struct experts_kernel_args &k) {
    if (p->most > 2) return experts_launch<T, 4>(b, p, k);
    if (p->most > 1) return experts_launch<T, 2>(b, p, k);
    experts_launch<T, 1>(b, p, k);
}

void experts_multiply_few(struct backend *backend, const struct expert_product *product,
                          const struct expert_weights *weights) {
    struct tensor x = product->x.cols % QUAD == 0
                          ? product->x
                          : experts_inputs(backend, product->x, DTYPE_F32, QUAD);
    struct blocks shape = blocks_of(weights->first);
    int64_t scales_at = (const unsigned char *)(const void *)shape.scales - shape.values;
    struct experts_kernel_args args = {{shape, (const float *)x.data, NULL, product->y, x.stride,
                                        shape.n_out, x.rows, ACTIVATION_NONE},
                                       product->rows,
                                       weights->data,
                                       scales_at,
                                       0,
                                       0};
    switch (shape.dtype) {
        case DTYPE_INT8: return experts_multiply_type<DTYPE_INT8>(backend, product, args);
        case DTYPE_INT4: return experts_multiply_type<DTYPE_INT4>(backend, product, args);
        case DTYPE_FP8: return experts_multiply_type<DTYPE_FP8>(backend, product, args);
        case DTYPE_F16: return experts_multiply_type<DTYPE_F16>(backend, product, args);
        default: return experts_multiply_type<DTYPE_BF16>(backend, product, args);
    }
}
