/* kernels/cuda/norm.cu: LayerNorm, RMSNorm, sums of squares. */
#include "kernels/cuda/rows.cuh"

struct norm_kernel_args {
    view y, x;
    const float *gamma, *beta;
    float epsilon;
    int centre;                 /* LayerNorm */
    view squares;               /* sums of the squares of longer rows; data NULL: none */
    int whole;                  /* columns of those */
    int apart;                  /* from gamma and beta of a head to those of the next */
    struct add_kernel_args sum; /* what x is to become first; y.data NULL: nothing */
};

enum { NORM_THREADS = 1024 }; /* the most: rows of up to 4096 are read once */

/* grid (rows, heads), block 32 .. 1024, shared one float per warp. Bound by bytes, and for few rows
 * by latency: a thread keeps the first V columns it handles, of x, gamma and beta, so that they are
 * on their way at once; longer rows are read twice more from the cache. The variance is of x -
 * mean, in a second pass, so it has no cancellation. The order of the sums depends on the row's
 * length alone. y may be x, or what the sum reads: a thread writes only what it alone has read. */
template <int V>
__global__ void __launch_bounds__(NORM_THREADS) norm_row_kernel(struct norm_kernel_args k) {
    DYNAMIC_SHARED(shared);
    int n = k.x.cols, first = (int)threadIdx.x * V, step = (int)blockDim.x * V;
    float *x = (float *)k.x.data + blockIdx.x * k.x.stride + blockIdx.y * k.x.cols;
    float *y = (float *)k.y.data + blockIdx.x * k.y.stride + blockIdx.y * k.x.cols, sum = 0,
          mean = 0;
    int head = (int)blockIdx.y * k.apart;
    lanes<V> kept = {}, gamma = {}, beta = {};
    for (int j = 0; j < V; j++) gamma.at[j] = 1;
    if (first < n) {
        kept = k.sum.y.data ? add_at<V>(k.sum, (int)blockIdx.x, first)
                            : lanes_load<V>(x, DTYPE_F32, first);
        if (k.gamma != NULL) gamma = lanes_load<V>(k.gamma, DTYPE_F32, head + first);
        if (k.beta != NULL) beta = lanes_load<V>(k.beta, DTYPE_F32, head + first);
    }
    for (int col = first; k.sum.y.data && col < n; col += step)
        lanes_store<V>(x, DTYPE_F32, col,
                       col == first ? kept : add_at<V>(k.sum, (int)blockIdx.x, col));
    if (k.centre) {
        for (int col = first; col < n; col += step) {
            lanes<V> v = col == first ? kept : lanes_load<V>(x, DTYPE_F32, col);
            for (int j = 0; j < V; j++) sum += v.at[j];
        }
        mean = block_sum(sum, (float *)shared) / (float)n;
    }
    sum = 0;
    for (int col = first; col < n; col += step) {
        lanes<V> v = col == first ? kept : lanes_load<V>(x, DTYPE_F32, col);
        for (int j = 0; j < V; j++) sum += (v.at[j] - mean) * (v.at[j] - mean);
    }
    float variance = block_sum(sum, (float *)shared) / (float)n;
    if (k.squares.data)
        variance = ((const float *)k.squares.data)[blockIdx.x * k.squares.stride] / (float)k.whole;
    float scale = 1 / sqrtf(variance + k.epsilon);
    for (int col = first; col < n; col += step) {
        lanes<V> v = col == first ? kept : lanes_load<V>(x, DTYPE_F32, col);
        if (col > first) {
            if (k.gamma != NULL) gamma = lanes_load<V>(k.gamma, DTYPE_F32, head + col);
            if (k.beta != NULL) beta = lanes_load<V>(k.beta, DTYPE_F32, head + col);
        }
        for (int j = 0; j < V; j++) {
            v.at[j] = (v.at[j] - mean) * scale * gamma.at[j];
            if (k.beta != NULL) v.at[j] += beta.at[j];
        }
        lanes_store<V>(y, DTYPE_F32, col, v);
    }
}

void cuda_norm(struct backend *backend, const struct norm_args *args) {
    int heads = args->heads > 1 ? args->heads : 1, cols = args->x.cols / heads;
    struct tensor x = args->x, y = args->y;
    if (cols == 0) return;
    x.cols = y.cols = cols;
    struct norm_kernel_args norm_kernel_args = {y,
                                                x,
                                                args->gamma,
                                                args->beta,
                                                args->epsilon,
                                                args->kind == NORM_LAYER,
                                                args->squares,
                                                args->whole,
                                                args->each_head ? cols : 0,
                                                {}};
    struct tensor gamma = tensor_make((void *)(uintptr_t)args->gamma, DTYPE_F32, 1, cols),
                  beta = gamma;
    if (args->beta != NULL) beta.data = (void *)(uintptr_t)args->beta;
    int v = view_divides(&y, 4) && view_divides(&x, 4) && view_divides(&gamma, 4) &&
                    view_divides(&beta, 4)
                ? 4
                : 1;
    if (v == 4 && heads == 1) add_take_back(backend, &args->x, &args->y, &norm_kernel_args.sum);
    int warps = (int)blocks_for(cols, WARP * v),
        threads = WARP * (warps * WARP < NORM_THREADS ? warps : WARP);
    size_t shared = (size_t)threads / WARP * sizeof(float);
    dim3 grid((unsigned)args->x.rows, (unsigned)heads);
    kernel_launch(backend, v == 4 ? norm_row_kernel<4> : norm_row_kernel<1>, grid, threads, shared,
                  norm_kernel_args);
}

struct square_kernel_args {
    view y, x;
};

/* grid rows, block 256, shared one float per warp. Bound by bytes: reads x. */
enum { SQUARE_THREADS = 256 };
__global__ void square_rows_kernel(struct square_kernel_args args) {
    DYNAMIC_SHARED(shared);
    const float *x = (const float *)args.x.data + blockIdx.x * args.x.stride;
    float sum = 0;
    for (int col = (int)threadIdx.x; col < args.x.cols; col += SQUARE_THREADS)
        sum += x[col] * x[col];
    sum = block_sum(sum, (float *)shared);
    if (threadIdx.x == 0) ((float *)args.y.data)[blockIdx.x * args.y.stride] = sum;
}

void cuda_square_rows(struct backend *backend, const struct square_rows_args *args) {
    struct square_kernel_args square_kernel_args = {args->y, args->x};
    kernel_launch(backend, square_rows_kernel, dim3((unsigned)args->x.rows), SQUARE_THREADS,
                  SQUARE_THREADS / WARP * sizeof(float), square_kernel_args);
}
