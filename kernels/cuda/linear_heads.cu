/* kernels/cuda/linear_heads.cu: a product for each head of a row. The products are those of
 * linear.cu. */
#include "kernels/cuda/common.cuh"

enum { KEEP_THREADS = 256 };

/* Columns of a head of x and of y, and the first of each that are kept. */
struct keep_kernel_args {
    view y, x;
    int heads, kept, x_head, y_head, x_first, y_first;
};

/* grid rows, block 256. Bound by bytes: reads and writes what is kept. */
__global__ void keep_columns_kernel(struct keep_kernel_args args) {
    const float *x = (const float *)args.x.data + blockIdx.x * args.x.stride + args.x_first;
    float *y = (float *)args.y.data + blockIdx.x * args.y.stride + args.y_first;
    for (int i = (int)threadIdx.x; i < args.heads * args.kept; i += KEEP_THREADS) {
        int head = i / args.kept, at = i % args.kept;
        y[(int64_t)head * args.y_head + at] = x[(int64_t)head * args.x_head + at];
    }
}

void cuda_linear_heads(struct backend *backend, const struct linear_heads_args *args) {
    int from = args->x.cols / args->heads, to = args->y.cols / args->heads;
    const struct weight *first = &args->weights[0];
    if (args->x.rows == 0) return;
    for (int head = 0; head < args->heads; head++) {
        struct linear_args linear_args = {tensor_cols(args->y, head * to, first->n_out),
                                          tensor_cols(args->x, head * from, first->n_in),
                                          &args->weights[head], NULL, ACTIVATION_NONE};
        cuda_linear(backend, &linear_args);
    }
    if (args->kept == 0) return;
    struct keep_kernel_args keep_kernel_args = {args->y, args->x, args->heads, args->kept,
                                                from,    to,      first->n_in, first->n_out};
    kernel_launch(backend, keep_columns_kernel, dim3((unsigned)args->x.rows), KEEP_THREADS, 0,
                  keep_kernel_args);
}
