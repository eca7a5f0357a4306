/* kernels/cuda/linear.cu: y = activation(x W^T + bias) around the library's product.
 *
 * With an f32 weight the product is f32 throughout. With a bf16 or f16 weight the activations are rounded to that type
 * on their way into the product, whose sums are f32: that is what tensor cores multiply. The CPU keeps x in f32, so the
 * two differ by that rounding, at most 2^-9 (bf16) or 2^-12 (f16) of each factor. The library may sum in another order
 * for another number of rows: here, and only here, a row's last bits may depend on the batch. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

struct convert_kernel_args {
    view y, x;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads f32, writes half as much. */
template <int V>
__global__ void linear_convert_kernel(struct convert_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    store<V>(k.y.data, k.y.dtype, row * k.y.stride + col, load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col));
}

struct finish_kernel_args {
    view y;
    const float *bias;
    enum activation activation;
    int unused = 0;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads and writes y; used where the product cannot.
 */
template <int V>
__global__ void linear_finish_kernel(struct finish_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> v = load<V>(k.y.data, DTYPE_F32, row * k.y.stride + col);
    for (int j = 0; j < V; j++) v.at[j] = activate(k.bias ? v.at[j] + k.bias[col + j] : v.at[j], k.activation);
    store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, v);
}

/* x in the weight's type, packed; x itself when that is f32. */
static view convert_input(struct backend *b, const struct linear_args *a) {
    if (a->weight->dtype == DTYPE_F32) return a->x;
    size_t bytes = (size_t)a->x.rows * (size_t)a->x.cols * dtype_bytes(a->weight->dtype);
    struct convert_kernel_args k;
    k.x = a->x;
    k.y = tensor_make(workspace_reserve(b, &cuda_of(b)->inputs, bytes), a->weight->dtype, a->x.rows, a->x.cols);
    if (divides(&k.y, 4) && divides(&k.x, 4))
        launch(b, linear_convert_kernel<4>, row_grid(k.x.rows, k.x.cols, 4), row_threads(k.x.cols, 4), 0, k);
    else
        launch(b, linear_convert_kernel<1>, row_grid(k.x.rows, k.x.cols, 1), row_threads(k.x.cols, 1), 0, k);
    return k.y;
}

void cuda_linear(struct backend *b, const struct linear_args *a) {
    if (a->x.rows == 0) return;
    view x = convert_input(b, a);
    struct gemm_args g = {x.data,    a->weight->data,  (float *)a->y.data, a->bias,          x.stride,     a->y.stride,
                          a->x.rows, a->weight->n_out, a->weight->n_in,    a->weight->dtype, a->activation};
    work_add(b, gemm_run, &g, sizeof g);
    if (gemm_finishes(&g)) return;
    struct finish_kernel_args k = {a->y, a->bias, a->activation};
    if (divides(&k.y, 4))
        launch(b, linear_finish_kernel<4>, row_grid(k.y.rows, k.y.cols, 4), row_threads(k.y.cols, 4), 0, k);
    else
        launch(b, linear_finish_kernel<1>, row_grid(k.y.rows, k.y.cols, 1), row_threads(k.y.cols, 1), 0, k);
}
