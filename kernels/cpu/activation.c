/* kernels/cpu/activation.c: the gated unit and the soft-cap; plain activations run in the epilogue
 * of linear. */
#include "kernels/cpu/cpu.h"

struct gated {
    const struct glu_args *args;
    const struct cpu_kernels *kernels;
};

static void glu_row(const void *context, int i, int thread) {
    (void)thread;
    const struct gated *gated = context;
    const float *x = row_f32(gated->args->x, i);
    float *y = row_f32(gated->args->y, i);
    int n = gated->args->y.cols;
    gated->kernels->activate(y, x, n, gated->args->activation);
#pragma omp simd
    for (int j = 0; j < n; j++) y[j] *= x[n + j];
}

void cpu_glu(struct backend *backend, const struct glu_args *args) {
    struct gated gated = {.args = args, .kernels = cpu_of(backend)->kernels};
    cpu_run(backend, 4.0 * args->x.rows * args->x.cols, args->x.rows, glu_row, &gated);
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
    const struct capped *capped = context;
    int first = i % capped->runs * SOFTCAP_COLUMNS,
        n = min_int(SOFTCAP_COLUMNS, capped->args->x.cols - first);
    capped->kernels->softcap(row_f32(capped->args->x, i / capped->runs) + first, n,
                             capped->args->cap);
}

void cpu_softcap(struct backend *backend, const struct softcap_args *args) {
    struct capped capped = {.args = args, .kernels = cpu_of(backend)->kernels};
    capped.runs = (args->x.cols + SOFTCAP_COLUMNS - 1) / SOFTCAP_COLUMNS;
    cpu_run(backend, 8.0 * args->x.rows * args->x.cols, args->x.rows * capped.runs, softcap_run,
            &capped);
}
