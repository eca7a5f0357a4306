/* kernels/cpu/norm.c: LayerNorm, RMSNorm and the residual sum. Each row is reduced in double, in eight chains that do
 * not depend on anything but the row's length. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { CHAINS = 8 };

/* sum (x - centre)^power, power 1 or 2. Element j goes to chain j mod 8; chains are added pairwise. */
static double row_sum(const float *x, int n, double centre, int power) {
    double chains[CHAINS] = {0};
    int j = 0;
    for (; j + CHAINS <= n; j += CHAINS)
        for (int c = 0; c < CHAINS; c++) {
            double v = x[j + c] - centre;
            chains[c] += power == 1 ? v : v * v;
        }
    for (; j < n; j++) {
        double v = x[j] - centre;
        chains[j % CHAINS] += power == 1 ? v : v * v;
    }
    return ((chains[0] + chains[1]) + (chains[2] + chains[3])) + ((chains[4] + chains[5]) + (chains[6] + chains[7]));
}

/* Two passes over the row: the variance of x - mean has no cancellation. */
static void norm_row(const void *context, int i, int thread) {
    (void)thread;
    const struct norm_args *a = context;
    const float *x = row_f32(a->x, i);
    float *y = row_f32(a->y, i);
    int n = a->x.cols;
    double mean = a->kind == NORM_LAYER ? row_sum(x, n, 0, 1) / n : 0;
    double variance = row_sum(x, n, mean, 2) / n;
    float centre = (float)mean, scale = (float)(1 / sqrt(variance + (double)a->epsilon));
    for (int j = 0; j < n; j++) {
        float v = (x[j] - centre) * scale * a->gamma[j];
        y[j] = a->beta == NULL ? v : v + a->beta[j];
    }
}

void cpu_norm(struct backend *b, const struct norm_args *a) {
    if (a->x.cols > 0) cpu_run(b, 4.0 * a->x.rows * a->x.cols, a->x.rows, norm_row, a);
}

static void add_row(const void *context, int i, int thread) {
    (void)thread;
    const struct add_args *a = context;
    const float *x = row_f32(a->a, i), *z = row_f32(a->b, i);
    float *y = row_f32(a->y, i), scale = a->row_scale == NULL ? 1 : a->row_scale[i];
    for (int j = 0; j < a->y.cols; j++) {
        float sum = a->bias == NULL ? z[j] : z[j] + a->bias[j];
        /* A closed gate must not let NaN or infinity through, so it is a choice, not a product. */
        y[j] = scale == 0 ? x[j] : x[j] + scale * sum;
    }
}

void cpu_add(struct backend *b, const struct add_args *a) {
    cpu_run(b, (double)a->y.rows * a->y.cols, a->y.rows, add_row, a);
}
