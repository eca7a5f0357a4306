/* kernels/cuda/linear.cu: y = activation(x W^T + bias) around the library's product.
 *
 * With an f32 weight the product is f32 throughout. With other weights x stays f32 for up to
 * CUDA_FEW_ROWS rows, which are not the library's (blocks.cu). For more, or where the rows of a
 * bf16 or f16 weight are not whole quads, it is rounded to the weight's type on its way into the
 * product, whose sums are f32: that is what tensor cores multiply. The CPU keeps x in f32, so the
 * two differ by that rounding, at most 2^-9 (bf16) or 2^-12 (f16) of each factor. With int8, int4
 * and fp8 weights the weights are rounded to bf16 too.
 *
 * The library may sum in another order for another number of rows: in its products, and where few
 * rows become many, a row's last bits may depend on the batch; nowhere else. */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/linear.cuh"

struct convert_kernel_args {
    view y, x;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads f32, writes half as much.
 */
template <int V>
__global__ void linear_convert_kernel(struct convert_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes_store<V>(k.y.data, k.y.dtype, row * k.y.stride + col,
                   lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col));
}

struct finish_kernel_args {
    view y;
    const float *bias;
    enum activation activation;
    int unused = 0;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads and writes y; used where
 * the library cannot.
 */
template <int V>
__global__ void linear_finish_kernel(struct finish_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> v = lanes_load<V>(k.y.data, DTYPE_F32, row * k.y.stride + col);
    for (int j = 0; j < V; j++)
        v.at[j] = value_activate(k.bias ? v.at[j] + k.bias[col + j] : v.at[j], k.activation);
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, v);
}

view linear_input(struct backend *backend, const struct tensor &x, enum dtype dtype) {
    size_t bytes = (size_t)x.rows * (size_t)x.cols * dtype_bytes(dtype);
    struct convert_kernel_args args;
    args.x = x;
    args.y = tensor_make(workspace_reserve(backend, &cuda_of(backend)->inputs, bytes), dtype,
                         x.rows, x.cols);
    if (view_divides(&args.y, 4) && view_divides(&args.x, 4))
        kernel_launch(backend, linear_convert_kernel<4>, row_grid(args.x.rows, args.x.cols, 4),
                      row_threads(args.x.cols, 4), 0, args);
    else
        kernel_launch(backend, linear_convert_kernel<1>, row_grid(args.x.rows, args.x.cols, 1),
                      row_threads(args.x.cols, 1), 0, args);
    return args.y;
}

void linear_product(struct backend *backend, const struct gemm_args *args) {
    work_add(backend, gemm_run, args, sizeof *args);
    if (gemm_finishes(backend, args)) return;
    struct tensor y = tensor_make(args->y, DTYPE_F32, args->rows, args->n_out);
    y.stride = args->y_stride;
    struct finish_kernel_args finish_kernel_args = {y, args->bias, args->activation};
    if (view_divides(&finish_kernel_args.y, 4))
        kernel_launch(backend, linear_finish_kernel<4>,
                      row_grid(finish_kernel_args.y.rows, finish_kernel_args.y.cols, 4),
                      row_threads(finish_kernel_args.y.cols, 4), 0, finish_kernel_args);
    else
        kernel_launch(backend, linear_finish_kernel<1>,
                      row_grid(finish_kernel_args.y.rows, finish_kernel_args.y.cols, 1),
                      row_threads(finish_kernel_args.y.cols, 1), 0, finish_kernel_args);
}

void cuda_linear(struct backend *backend, const struct linear_args *args) {
    const struct weight *weight = args->weight;
    if (args->x.rows == 0) return;
    if (in_blocks(weight->dtype) ||
        (two_bytes(weight->dtype) && args->x.rows <= CUDA_FEW_ROWS && weight->n_in % QUAD == 0)) {
        linear_blocks(backend, args);
        return;
    }
    view x =
        weight->dtype == DTYPE_F32 ? view(args->x) : linear_input(backend, args->x, weight->dtype);
    struct gemm_args gemm_args = {x.data,        weight->data,    (float *)args->y.data,
                                  args->bias,    x.stride,        args->y.stride,
                                  x.rows,        weight->n_out,   weight->n_in,
                                  weight->dtype, args->activation};
    linear_product(backend, &gemm_args);
}
