/* kernels/cuda/rows.cuh: the residual sum, which a norm that follows makes on its way (norm.cu). */
#pragma once

#include "kernels/cuda/common.cuh"

/* y = a + scale row_scale (b + bias); bias and row_scale may be NULL. */
struct add_kernel_args {
    view y, a, b;
    const float *bias, *row_scale;
    float scale;
    int unused = 0;
};

/* V columns of a row. A closed gate is a choice, not a product, so that NaN does not pass it. */
template <int V>
__device__ inline lanes<V> add_at(const struct add_kernel_args &k, int row, int col) {
    float scale = k.row_scale == NULL ? k.scale : k.scale * k.row_scale[row];
    lanes<V> a = lanes_load<V>(k.a.data, DTYPE_F32, row * k.a.stride + col);
    if (scale == 0) return a;
    lanes<V> b = lanes_load<V>(k.b.data, DTYPE_F32, row * k.b.stride + col);
    for (int j = 0; j < V; j++) {
        float sum = k.bias == NULL ? b.at[j] : b.at[j] + k.bias[col + j];
        a.at[j] = a.at[j] + scale * sum;
    }
    return a;
}

/* Takes the sum that was listed last off the list of work, if it makes x, can be made four columns
 * at a time, and still reads what it should when each of its elements is made just before the same
 * element of y is written. */
bool add_take_back(struct backend *backend, const struct tensor *x, const struct tensor *y,
                   struct add_kernel_args *out);
