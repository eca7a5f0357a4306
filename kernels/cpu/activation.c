/* kernels/cpu/activation.c: the gated unit; plain activations run in the epilogue of linear. */
#include "kernels/cpu/cpu.h"

struct gated {
    const struct glu_args *args;
    const struct cpu_kernels *kernels;
};

static void glu_row(const void *context, int i, int thread) {
    (void)thread;
    const struct gated *g = context;
    const float *x = row_f32(g->args->x, i);
    float *y = row_f32(g->args->y, i);
    int n = g->args->y.cols;
    g->kernels->activate(y, x, n, g->args->activation);
#pragma omp simd
    for (int j = 0; j < n; j++) y[j] *= x[n + j];
}

void cpu_glu(struct backend *b, const struct glu_args *a) {
    struct gated g = {.args = a, .kernels = cpu_of(b)->kernels};
    cpu_run(b, 4.0 * a->x.rows * a->x.cols, a->x.rows, glu_row, &g);
}
