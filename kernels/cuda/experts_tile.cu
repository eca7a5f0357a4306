/* kernels/cuda/experts_tile.cu: products of many sorted rows with the weights of their experts, a tile at a time. See
 * experts.cuh.
 *
 * On tensor cores x is rounded to the type of f16 and bf16 weights, and to bf16 with int8, int4 and fp8 weights, whose
 * values are rounded to bf16 too, as in linear.cu; sums are f32. A sum takes its columns in ascending order, so a row
 * is bitwise the same whatever other rows its expert has. */
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

__device__ static bool find_place(const struct tile_kernel_args &k, int rows, int columns, expert_tile *p) {
    int tile = (int)blockIdx.y, expert = expert_of(k.rows, tile);
    if (expert == k.rows.experts || k.weights[expert] == NULL) return false;
    p->w = k.shape;
    p->w.values = (const unsigned char *)k.weights[expert];
    p->w.scales = (const uint16_t *)(const void *)(p->w.values + k.scales_at);
    p->first = (int)blockIdx.x * columns;
    p->row = k.rows.starts[expert] + (tile - k.rows.tiles[expert]) * rows;
    p->end = k.rows.starts[expert + 1];
    return true;
}

/* Columns [col, col + TILE) of the block's rows of x; rows beyond the expert's repeat its last one. */
__device__ static void load_inputs(uint16_t *shared, const struct tile_kernel_args &k, const expert_tile &p, int col) {
    for (int i = (int)threadIdx.x; i < TILE * TILE / 8; i += MMA_THREADS) {
        int row = p.row + i / (TILE / 8), at = i % (TILE / 8) * 8;
        const uint16_t *from = (const uint16_t *)k.x + (row < p.end ? row : p.end - 1) * k.x_stride + col + at;
        *(uint4 *)(void *)(shared + i / (TILE / 8) * TILE_STRIDE + at) = *(const uint4 *)(const void *)from;
    }
}

/* 16 columns of the tile: a += x w, for 32 rows by 32. */
template <enum dtype H>
__device__ static void multiply_step(float (&sums)[2][4][4], const uint16_t *x, const uint16_t *w, int col) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int top = warp / 2 * WARP_TILE, left = warp % 2 * WARP_TILE;
    unsigned a[2][4], pairs[2][4];
    for (int i = 0; i < 2; i++) {
        matrices_load(a[i], x + (top + 16 * i + lane % 16) * TILE_STRIDE + col + lane / 16 * 8);
        /* Rows of W are columns of B: matrices of eight rows, the first and the second half of the columns. */
        matrices_load(pairs[i], w + (left + 16 * i + lane / 16 * 8 + lane % 8) * TILE_STRIDE + col + lane / 8 % 2 * 8);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            mma_16x8x16<H>(sums[i][j], a[i], pairs[j / 2][j % 2 * 2], pairs[j / 2][j % 2 * 2 + 1]);
}

__device__ static void store_outputs(const float (&sums)[2][4][4], const struct tile_kernel_args &k,
                                     const expert_tile &p) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int top = p.row + warp / 2 * WARP_TILE + lane / 4, left = p.first + warp % 2 * WARP_TILE + lane % 4 * 2;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int c = 0; c < 4; c++) {
                int row = top + 16 * i + c / 2 * 8, col = left + 8 * j + c % 2;
                if (row < p.end && col < k.shape.n_out) k.y[(int64_t)row * k.shape.n_out + col] = sums[i][j][c];
            }
}

/* grid (n_out / 64, tiles of 64 rows), block 128, shared 18 KiB. Bound by the loads of its tiles, then by the tensor
 * cores: 64 multiply-adds for each element that is loaded. */
template <enum dtype T, enum dtype H>
__global__ void __launch_bounds__(MMA_THREADS) experts_mma_kernel(struct tile_kernel_args k) {
    DYNAMIC_SHARED(memory);
    uint16_t *x = (uint16_t *)(void *)memory, *w = x + TILE * TILE_STRIDE;
    expert_tile p;
    if (!find_place(k, TILE, TILE, &p)) return;
    float sums[2][4][4] = {};
    for (int line = 0; line < k.shape.lines; line++) {
        block_piece<T> pieces[PIECES_EACH];
        float scales[PIECES_EACH];
        UNROLL
        for (int i = 0; i < PIECES_EACH; i++) {
            int item = (int)threadIdx.x + i * MMA_THREADS, row = p.first + item / LINE_PIECES;
            row = row < k.shape.n_out ? row : k.shape.n_out - 1;
            pieces[i] = piece_load<T>(p.w, row, line * LINE_PIECES + item % LINE_PIECES);
            scales[i] = row_scale<T>(p.w, row);
        }
        UNROLL
        for (int half = 0; half < line_blocks(T) / 2; half++) {
            int col = (line * line_blocks(T) / 2 + half) * TILE;
            if (col >= k.x_stride) break;
            __syncthreads();
            load_inputs(x, k, p, col);
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
    store_outputs(sums, k, p);
}

/* One element of a weight of floats. */
__device__ static float weight_at(const struct blocks &w, int row, int col) {
    int64_t at = (int64_t)row * w.n_in + col;
    if (w.dtype == DTYPE_F32) return ((const float *)(const void *)w.values)[at];
    return half_bits_to_f32(((const uint16_t *)(const void *)w.values)[at], w.dtype);
}

/* grid (n_out / 32, tiles of 32 rows), block 256, shared 8.4 KiB: each thread has four rows of one column. Bound by
 * multiply-adds and shared memory: for weights that the tensor cores do not take. */
__global__ void __launch_bounds__(PLAIN_THREADS, 4) experts_plain_kernel(struct tile_kernel_args k) {
    DYNAMIC_SHARED(memory);
    enum { STRIDE = PLAIN_TILE + 1 };
    float *x = (float *)(void *)memory, *w = x + PLAIN_TILE * STRIDE;
    expert_tile p;
    if (!find_place(k, PLAIN_TILE, PLAIN_TILE, &p)) return;
    int column = (int)threadIdx.x % PLAIN_TILE, part = (int)threadIdx.x / PLAIN_TILE;
    float sums[PLAIN_EACH] = {};
    for (int first = 0; first < k.shape.n_in; first += PLAIN_TILE) {
        int n = k.shape.n_in - first < PLAIN_TILE ? k.shape.n_in - first : PLAIN_TILE;
        __syncthreads();
        for (int i = part; i < PLAIN_TILE && column < n; i += PLAIN_THREADS / PLAIN_TILE) {
            int row = p.row + i < p.end ? p.row + i : p.end - 1;
            int out = p.first + i < k.shape.n_out ? p.first + i : k.shape.n_out - 1;
            x[i * STRIDE + column] = ((const float *)k.x)[row * k.x_stride + first + column];
            w[i * STRIDE + column] = weight_at(p.w, out, first + column);
        }
        __syncthreads();
        for (int col = 0; col < n; col++)
            for (int i = 0; i < PLAIN_EACH; i++)
                sums[i] = fmaf(x[(part * PLAIN_EACH + i) * STRIDE + col], w[column * STRIDE + col], sums[i]);
    }
    for (int i = 0; i < PLAIN_EACH; i++) {
        int row = p.row + part * PLAIN_EACH + i;
        if (row < p.end && p.first + column < k.shape.n_out)
            k.y[(int64_t)row * k.shape.n_out + p.first + column] = sums[i];
    }
}

static struct tile_kernel_args tile_arguments(const struct expert_product *p, const struct expert_weights *w) {
    struct tile_kernel_args k = {};
    k.rows = p->rows;
    k.weights = w->data;
    k.x = p->x.data;
    k.x_stride = p->x.stride;
    k.y = p->y;
    k.shape = blocks_of(w->first);
    k.scales_at = (const unsigned char *)(const void *)k.shape.scales - k.shape.values;
    k.shape.values = NULL;
    k.shape.scales = NULL;
    return k;
}

void experts_multiply_many(struct backend *b, const struct expert_product *p, const struct expert_weights *w) {
    struct tile_kernel_args k = tile_arguments(p, w);
    enum dtype type = w->first->dtype;
    struct tensor x = experts_inputs(b, p->x, type == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16, TILE);
    auto kernel = type == DTYPE_INT8   ? experts_mma_kernel<DTYPE_INT8, DTYPE_BF16>
                  : type == DTYPE_INT4 ? experts_mma_kernel<DTYPE_INT4, DTYPE_BF16>
                  : type == DTYPE_FP8  ? experts_mma_kernel<DTYPE_FP8, DTYPE_BF16>
                  : type == DTYPE_F16  ? experts_mma_kernel<DTYPE_F16, DTYPE_F16>
                                       : experts_mma_kernel<DTYPE_BF16, DTYPE_BF16>;
    k.x = x.data;
    k.x_stride = x.stride;
    dim3 grid(blocks_for(k.shape.n_out, TILE), (unsigned)experts_cut(b, p, TILE));
    kernel_launch(b, kernel, grid, MMA_THREADS, 2 * TILE * TILE_STRIDE * sizeof(uint16_t), k);
}

void experts_multiply_plain(struct backend *b, const struct expert_product *p, const struct expert_weights *w) {
    struct tile_kernel_args k = tile_arguments(p, w);
    dim3 grid(blocks_for(k.shape.n_out, PLAIN_TILE), (unsigned)experts_cut(b, p, PLAIN_TILE));
    size_t shared = 2 * PLAIN_TILE * (PLAIN_TILE + 1) * sizeof(float);
    kernel_launch(b, experts_plain_kernel, grid, PLAIN_THREADS, shared, k);
}
