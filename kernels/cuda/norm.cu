/* kernels/cuda/norm.cu: LayerNorm and RMSNorm. */
#include "kernels/cuda/common.cuh"

struct norm_kernel_args {
    view y, x;
    const float *gamma, *beta;
    float epsilon;
    int centre; /* LayerNorm */
};

/* grid rows, block 32 .. 256, shared one float per warp. Bound by bytes: a row is read from memory once and twice more
 * from the cache, and written once. The variance is of x - mean, in a second pass, so it has no cancellation. The order
 * of the sums depends on the row's length alone. y may be x: a thread writes only what it alone has read. */
template <int V>
__global__ void norm_row_kernel(struct norm_kernel_args k) {
    DYNAMIC_SHARED(shared);
    int n = k.x.cols, first = (int)threadIdx.x * V, step = (int)blockDim.x * V;
    const float *x = (const float *)k.x.data + blockIdx.x * k.x.stride;
    float *y = (float *)k.y.data + blockIdx.x * k.y.stride, sum = 0, mean = 0;
    if (k.centre) {
        for (int col = first; col < n; col += step) {
            lanes<V> v = load<V>(x, DTYPE_F32, col);
            for (int j = 0; j < V; j++) sum += v.at[j];
        }
        mean = block_sum(sum, (float *)shared) / (float)n;
    }
    sum = 0;
    for (int col = first; col < n; col += step) {
        lanes<V> v = load<V>(x, DTYPE_F32, col);
        for (int j = 0; j < V; j++) sum += (v.at[j] - mean) * (v.at[j] - mean);
    }
    float variance = block_sum(sum, (float *)shared) / (float)n, scale = 1 / sqrtf(variance + k.epsilon);
    for (int col = first; col < n; col += step) {
        lanes<V> v = load<V>(x, DTYPE_F32, col);
        for (int j = 0; j < V; j++) {
            v.at[j] = (v.at[j] - mean) * scale * k.gamma[col + j];
            if (k.beta != NULL) v.at[j] += k.beta[col + j];
        }
        store<V>(y, DTYPE_F32, col, v);
    }
}

void cuda_norm(struct backend *b, const struct norm_args *a) {
    struct norm_kernel_args k = {a->y, a->x, a->gamma, a->beta, a->epsilon, a->kind == NORM_LAYER};
    if (a->x.cols == 0) return;
    int v = divides(&a->y, 4) && divides(&a->x, 4) ? 4 : 1, threads = row_threads(a->x.cols, v);
    size_t shared = (size_t)threads / WARP * sizeof(float);
    launch(b, v == 4 ? norm_row_kernel<4> : norm_row_kernel<1>, dim3((unsigned)a->x.rows), threads, shared, k);
}
