/* kernels/cpu/activation.c: the gated unit and the soft-cap; plain activations run in the epilogue of linear. */
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

/* Rows of logits are long and few, so a piece is a run of columns. */
enum { SOFTCAP_COLUMNS = 8192 };

struct capped {
    const struct softcap_args *args;
    const struct cpu_kernels *kernels;
    int runs; /* of a row */
};

static void softcap_run(const void *context, int i, int thread) {
    (void)thread;
    const struct capped *c = context;
    int first = i % c->runs * SOFTCAP_COLUMNS, n = min_int(SOFTCAP_COLUMNS, c->args->x.cols - first);
    c->kernels->softcap(row_f32(c->args->x, i / c->runs) + first, n, c->args->cap);
}

void cpu_softcap(struct backend *b, const struct softcap_args *a) {
    struct capped c = {.args = a, .kernels = cpu_of(b)->kernels};
    c.runs = (a->x.cols + SOFTCAP_COLUMNS - 1) / SOFTCAP_COLUMNS;
    cpu_run(b, 8.0 * a->x.rows * a->x.cols, a->x.rows * c.runs, softcap_run, &c);
}
