/* kernels/cpu/linear_heads.c: a product for each head of a row. The products are those of linear.c,
 * whose rows do not depend on each other. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Row i of y takes the columns that no product makes. */
static void keep_columns(const void *context, int i, int thread) {
    (void)thread;
    const struct linear_heads_args *args = context;
    int from = args->x.cols / args->heads, to = args->y.cols / args->heads;
    for (int head = 0; head < args->heads; head++)
        memcpy(row_f32(args->y, i) + (ptrdiff_t)head * to + args->weights[head].n_out,
               row_f32(args->x, i) + (ptrdiff_t)head * from + args->weights[head].n_in,
               (size_t)args->kept * sizeof(float));
}

void cpu_linear_heads(struct backend *backend, const struct linear_heads_args *args) {
    int from = args->x.cols / args->heads, to = args->y.cols / args->heads;
    for (int head = 0; head < args->heads; head++) {
        const struct weight *weight = &args->weights[head];
        cpu_linear(backend,
                   &(struct linear_args){.y = tensor_cols(args->y, head * to, weight->n_out),
                                         .x = tensor_cols(args->x, head * from, weight->n_in),
                                         .weight = weight});
    }
    if (args->kept == 0) return;
    cpu_run(backend, (double)args->x.rows * args->heads * args->kept, args->x.rows, keep_columns,
            args);
}
