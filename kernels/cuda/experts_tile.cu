/* kernels/cuda/experts_tile.cu: products of many sorted rows with the weights of their experts, a
 * tile at a time. See experts.cuh.
 *
 * On tensor cores x is rounded to the type of f16 and bf16 weights, and to bf16 with int8, int4 and
 * fp8 weights, whose values are rounded to bf16 too, as in linear.cu; sums are f32. A sum takes its
 * columns in ascending order, so a row is bitwise the same whatever other rows its expert has. */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    TILE = 64,              /* rows of x, rows of W, and columns at a time */
    TILE_STRIDE = TILE + 8, /* of a row in shared memory: eight rows lie in different banks */
    MMA_THREADS = 128,      /* four warps, each with a quarter of the tile, 32 x 32 */
    WARP_TILE = 32,
    PIECES_EACH = TILE * LINE_PIECES / MMA_THREADS,
    PLAIN_TILE = 32,
    PLAIN_THREADS = 256,
    PLAIN_EACH = PLAIN_TILE * PLAIN_TILE / PLAIN_THREADS
};

struct tile_kernel_args {
    struct expert_rows rows;
    const void *const *weights;
    const void *x; /* [rows, x_stride], zeros behind n_in; 16 bits, f32 for the plain kernel */
    float *y;
    struct blocks shape; /* `values` and `scales` are each expert's own */
    int64_t scales_at, x_stride;
};

/* One block's part of an expert's product. */
struct expert_tile {
    struct blocks w;
    int first, row, end; /* row of W; rows of x, from `row` to before `end` */
};

__device__ static bool find_place(const struct tile_kernel_args &args, int rows, int columns,
                                  expert_tile *tile_given) {
    int tile = (int)blockIdx.y, expert = expert_of(args.rows, tile);
    if (expert == args.rows.experts || args.weights[expert] == NULL) return false;
    tile_given->w = args.shape;
    tile_given->w.values = (const unsigned char *)args.weights[expert];
    tile_given->w.scales = (const uint16_t *)(const void *)(tile_given->w.values + args.scales_at);
    tile_given->first = (int)blockIdx.x * columns;
    tile_given->row = args.rows.starts[expert] + (tile - args.rows.tiles[expert]) * rows;
    tile_given->end = args.rows.starts[expert + 1];
    return true;
}

/* Columns [col, col + TILE) of the block's rows of x; rows beyond the expert's repeat its last one.
 */
__device__ static void load_inputs(uint16_t *shared, const struct tile_kernel_args &args,
                                   const expert_tile &tile, int col) {
    for (int i = (int)threadIdx.x; i < TILE * TILE / 8; i += MMA_THREADS) {
        int row = tile.row + i / (TILE / 8), at = i % (TILE / 8) * 8;
        const uint16_t *from = (const uint16_t *)args.x +
                               (row < tile.end ? row : tile.end - 1) * args.x_stride + col + at;
        *(uint4 *)(void *)(shared + i / (TILE / 8) * TILE_STRIDE + at) =
            *(const uint4 *)(const void *)from;
    }
}

/* 16 columns of the tile: a += x w, for 32 rows by 32. */
template <enum dtype H>
__device__ static void multiply_step(float (&sums)[2][4][4], const uint16_t *x, const uint16_t *w,
                                     int col) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int top = warp / 2 * WARP_TILE, left = warp % 2 * WARP_TILE;
    unsigned a[2][4], pairs[2][4];
    for (int i = 0; i < 2; i++) {
        matrices_load(a[i], x + (top + 16 * i + lane % 16) * TILE_STRIDE + col + lane / 16 * 8);
        /* Rows of W are columns of B: matrices of eight rows, the first and the second half of the
         * columns. */
        matrices_load(pairs[i], w + (left + 16 * i + lane / 16 * 8 + lane % 8) * TILE_STRIDE + col +
                                    lane / 8 % 2 * 8);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            mma_16x8x16<H>(sums[i][j], a[i], pairs[j / 2][j % 2 * 2], pairs[j / 2][j % 2 * 2 + 1]);
}

__device__ static void store_outputs(const float (&sums)[2][4][4],
                                     const struct tile_kernel_args &args, const expert_tile &tile) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int top = tile.row + warp / 2 * WARP_TILE + lane / 4,
        left = tile.first + warp % 2 * WARP_TILE + lane % 4 * 2;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int c = 0; c < 4; c++) {
                int row = top + 16 * i + c / 2 * 8, col = left + 8 * j + c % 2;
                if (row < tile.end && col < args.shape.n_out)
                    args.y[(int64_t)row * args.shape.n_out + col] = sums[i][j][c];
            }
}

/* grid (n_out / 64, tiles of 64 rows), block 128, shared 18 KiB. Bound by the loads of its tiles,
 * then by the tensor cores: 64 multiply-adds for each element that is loaded. */
template <enum dtype T, enum dtype H>
__global__ void __launch_bounds__(MMA_THREADS) experts_mma_kernel(struct tile_kernel_args k) {
    DYNAMIC_SHARED(memory);
    uint16_t *x = (uint16_t *)(void *)memory, *w = x + TILE * TILE_STRIDE;
    expert_tile tile;
    if (!find_place(k, TILE, TILE, &tile)) return;
    float sums[2][4][4] = {};
    for (int line = 0; line < k.shape.lines; line++) {
        block_piece<T> pieces[PIECES_EACH];
        float scales[PIECES_EACH];
        UNROLL
        for (int i = 0; i < PIECES_EACH; i++) {
            int item = (int)threadIdx.x + i * MMA_THREADS, row = tile.first + item / LINE_PIECES;
            row = row < k.shape.n_out ? row : k.shape.n_out - 1;
            pieces[i] = piece_load<T>(tile.w, row, line * LINE_PIECES + item % LINE_PIECES);
            scales[i] = row_scale<T>(tile.w, row);
        }
        UNROLL
        for (int half = 0; half < line_blocks(T) / 2; half++) {
            int col = (line * line_blocks(T) / 2 + half) * TILE;
            if (col >= k.x_stride) break;
            __syncthreads();
            load_inputs(x, k, tile, col);
            UNROLL
            for (int i = 0; i < PIECES_EACH; i++) {
                int item = (int)threadIdx.x + i * MMA_THREADS;
                uint16_t *to = w + item / LINE_PIECES * TILE_STRIDE + item % LINE_PIECES * QUAD;
                UNROLL
                for (int block = 0; block < 2; block++) {
                    lanes<QUAD> v = piece_dequantise<T>(pieces[i], 2 * half + block);
                    for (int j = 0; j < QUAD; j++) v.at[j] *= scales[i];
                    lanes_store<QUAD>(to + block * QUANTISE_BLOCK, H, 0, v);
                }
            }
            __syncthreads();
            UNROLL
            for (int at = 0; at < TILE; at += 16) multiply_step<H>(sums, x, w, at);
        }
    }
    store_outputs(sums, k, tile);
}

/* One element of a weight of floats. */
__device__ static float weight_at(const struct blocks &blocks, int row, int col) {
    int64_t at = (int64_t)row * blocks.n_in + col;
    if (blocks.dtype == DTYPE_F32) return ((const float *)(const void *)blocks.values)[at];
    return half_bits_to_f32(((const uint16_t *)(const void *)blocks.values)[at], blocks.dtype);
}

/* grid (n_out / 32, tiles of 32 rows), block 256, shared 8.4 KiB: each thread has four rows of one
 * column. Bound by multiply-adds and shared memory: for weights that the tensor cores do not take.
 */
__global__ void __launch_bounds__(PLAIN_THREADS, 4)
    experts_plain_kernel(struct tile_kernel_args args) {
    DYNAMIC_SHARED(memory);
    enum { STRIDE = PLAIN_TILE + 1 };
    float *x = (float *)(void *)memory, *w = x + PLAIN_TILE * STRIDE;
    expert_tile tile;
    if (!find_place(args, PLAIN_TILE, PLAIN_TILE, &tile)) return;
    int column = (int)threadIdx.x % PLAIN_TILE, part = (int)threadIdx.x / PLAIN_TILE;
    float sums[PLAIN_EACH] = {};
    for (int first = 0; first < args.shape.n_in; first += PLAIN_TILE) {
        int n = args.shape.n_in - first < PLAIN_TILE ? args.shape.n_in - first : PLAIN_TILE;
        __syncthreads();
        for (int i = part; i < PLAIN_TILE && column < n; i += PLAIN_THREADS / PLAIN_TILE) {
            int row = tile.row + i < tile.end ? tile.row + i : tile.end - 1;
            int out = tile.first + i < args.shape.n_out ? tile.first + i : args.shape.n_out - 1;
            x[i * STRIDE + column] = ((const float *)args.x)[row * args.x_stride + first + column];
            w[i * STRIDE + column] = weight_at(tile.w, out, first + column);
        }
        __syncthreads();
        for (int col = 0; col < n; col++)
            for (int i = 0; i < PLAIN_EACH; i++)
                sums[i] = fmaf(x[(part * PLAIN_EACH + i) * STRIDE + col], w[column * STRIDE + col],
                               sums[i]);
    }
    for (int i = 0; i < PLAIN_EACH; i++) {
        int row = tile.row + part * PLAIN_EACH + i;
        if (row < tile.end && tile.first + column < args.shape.n_out)
            args.y[(int64_t)row * args.shape.n_out + tile.first + column] = sums[i];
    }
}

static struct tile_kernel_args tile_arguments(const struct expert_product *product,
                                              const struct expert_weights *weights) {
    struct tile_kernel_args args = {};
    args.rows = product->rows;
    args.weights = weights->data;
    args.x = product->x.data;
    args.x_stride = product->x.stride;
    args.y = product->y;
    args.shape = blocks_of(weights->first);
    args.scales_at = (const unsigned char *)(const void *)args.shape.scales - args.shape.values;
    args.shape.values = NULL;
    args.shape.scales = NULL;
    return args;
}

void experts_multiply_many(struct backend *backend, const struct expert_product *product,
                           const struct expert_weights *weights) {
    struct tile_kernel_args args = tile_arguments(product, weights);
    enum dtype type = weights->first->dtype;
    struct tensor x =
        experts_inputs(backend, product->x, type == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16, TILE);
    auto kernel = type == DTYPE_INT8   ? experts_mma_kernel<DTYPE_INT8, DTYPE_BF16>
                  : type == DTYPE_INT4 ? experts_mma_kernel<DTYPE_INT4, DTYPE_BF16>
                  : type == DTYPE_FP8  ? experts_mma_kernel<DTYPE_FP8, DTYPE_BF16>
                  : type == DTYPE_F16  ? experts_mma_kernel<DTYPE_F16, DTYPE_F16>
                                       : experts_mma_kernel<DTYPE_BF16, DTYPE_BF16>;
    args.x = x.data;
    args.x_stride = x.stride;
    dim3 grid(blocks_for(args.shape.n_out, TILE), (unsigned)experts_cut(backend, product, TILE));
    kernel_launch(backend, kernel, grid, MMA_THREADS, 2 * TILE * TILE_STRIDE * sizeof(uint16_t),
                  args);
}

void experts_multiply_plain(struct backend *backend, const struct expert_product *product,
                            const struct expert_weights *weights) {
    struct tile_kernel_args args = tile_arguments(product, weights);
    dim3 grid(blocks_for(args.shape.n_out, PLAIN_TILE),
              (unsigned)experts_cut(backend, product, PLAIN_TILE));
    size_t shared = 2 * PLAIN_TILE * (PLAIN_TILE + 1) * sizeof(float);
    kernel_launch(backend, experts_plain_kernel, grid, PLAIN_THREADS, shared, args);
}
