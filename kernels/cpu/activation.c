/* kernels/cpu/activation.c: the gated unit; plain activations run in the epilogue of linear. */
#include "kernels/cpu/cpu.h"

void cpu_glu(struct backend *b, const struct glu_args *a) {
    const struct cpu *cpu = cpu_of(b);
    int threads = cpu_threads(cpu, 16.0 * a->x.rows * a->x.cols), n = a->y.cols;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int i = 0; i < a->x.rows; i++) {
        const float *x = row_f32(a->x, i);
        float *y = row_f32(a->y, i);
        cpu->kernels->activate(y, x, n, a->activation);
        for (int j = 0; j < n; j++) y[j] *= x[n + j];
    }
}
