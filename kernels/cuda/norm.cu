/* kernels/cuda/norm.cu: LayerNorm and RMSNorm. */
#include "kernels/cuda/rows.cuh"

struct norm_kernel_args {
    view y, x;
    const float *gamma, *beta;
    float epsilon;
    int centre;                 /* LayerNorm */
    struct add_kernel_args sum; /* what x is to become first; y.data NULL: nothing */
};

enum { NORM_THREADS = 1024 }; /* the most: rows of up to 4096 are read once */

/* grid rows, block 32 .. 1024, shared one float per warp. Bound by bytes, and for few rows by latency: a thread keeps
 * the first V columns it handles, of x, gamma and beta, so that they are on their way at once; longer rows are read
 * twice more from the cache. The variance is of x - mean, in a second pass, so it has no cancellation. The order of the
 * sums depends on the row's length alone. y may be x, or what the sum reads: a thread writes only what it alone has
 * read. */
template <int V>
__global__ void __launch_bounds__(NORM_THREADS) norm_row_kernel(struct norm_kernel_args k) {
    DYNAMIC_SHARED(shared);
    int n = k.x.cols, first = (int)threadIdx.x * V, step = (int)blockDim.x * V;
    float *x = (float *)k.x.data + blockIdx.x * k.x.stride;
    float *y = (float *)k.y.data + blockIdx.x * k.y.stride, sum = 0, mean = 0;
    lanes<V> kept = {}, gamma = {}, beta = {};
    if (first < n) {
        kept = k.sum.y.data ? add_at<V>(k.sum, (int)blockIdx.x, first) : lanes_load<V>(x, DTYPE_F32, first);
        gamma = lanes_load<V>(k.gamma, DTYPE_F32, first);
        if (k.beta != NULL) beta = lanes_load<V>(k.beta, DTYPE_F32, first);
    }
    for (int col = first; k.sum.y.data && col < n; col += step)
        lanes_store<V>(x, DTYPE_F32, col, col == first ? kept : add_at<V>(k.sum, (int)blockIdx.x, col));
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
    float variance = block_sum(sum, (float *)shared) / (float)n, scale = 1 / sqrtf(variance + k.epsilon);
    for (int col = first; col < n; col += step) {
        lanes<V> v = col == first ? kept : lanes_load<V>(x, DTYPE_F32, col);
        if (col > first) {
            gamma = lanes_load<V>(k.gamma, DTYPE_F32, col);
            if (k.beta != NULL) beta = lanes_load<V>(k.beta, DTYPE_F32, col);
        }
        for (int j = 0; j < V; j++) {
            v.at[j] = (v.at[j] - mean) * scale * gamma.at[j];
            if (k.beta != NULL) v.at[j] += beta.at[j];
        }
        lanes_store<V>(y, DTYPE_F32, col, v);
    }
}

void cuda_norm(struct backend *b, const struct norm_args *a) {
    struct norm_kernel_args k = {a->y, a->x, a->gamma, a->beta, a->epsilon, a->kind == NORM_LAYER, {}};
    if (a->x.cols == 0) return;
    struct tensor gamma = tensor_make((void *)(uintptr_t)a->gamma, DTYPE_F32, 1, a->x.cols), beta = gamma;
    if (a->beta != NULL) beta.data = (void *)(uintptr_t)a->beta;
    int v =
        view_divides(&a->y, 4) && view_divides(&a->x, 4) && view_divides(&gamma, 4) && view_divides(&beta, 4) ? 4 : 1;
    if (v == 4) add_take_back(b, &a->x, &a->y, &k.sum);
    int warps = (int)blocks_for(a->x.cols, WARP * v), threads = WARP * (warps * WARP < NORM_THREADS ? warps : WARP);
    size_t shared = (size_t)threads / WARP * sizeof(float);
    kernel_launch(b, v == 4 ? norm_row_kernel<4> : norm_row_kernel<1>, dim3((unsigned)a->x.rows), threads, shared, k);
}
