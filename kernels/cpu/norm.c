/* kernels/cpu/norm.c: LayerNorm, RMSNorm, sums of squares and the residual sum, row by row; the
 * arithmetic is in row_math.h. */
#include "kernels/cpu/cpu.h"

struct norm_call {
    const struct norm_args *args;
    const struct cpu_kernels *kernels;
};

static void norm_one(const void *context, int i, int thread) {
    (void)thread;
    const struct norm_call *call = context;
    call->kernels->norm(call->args, i);
}

void cpu_norm(struct backend *backend, const struct norm_args *args) {
    struct norm_call call = {.args = args, .kernels = cpu_of(backend)->kernels};
    if (args->x.cols > 0)
        cpu_run(backend, 4.0 * args->x.rows * args->x.cols, args->x.rows, norm_one, &call);
}

struct square_call {
    const struct square_rows_args *args;
    const struct cpu_kernels *kernels;
};

static void square_one(const void *context, int i, int thread) {
    (void)thread;
    const struct square_call *call = context;
    call->kernels->square(call->args, i);
}

void cpu_square_rows(struct backend *backend, const struct square_rows_args *args) {
    struct square_call call = {.args = args, .kernels = cpu_of(backend)->kernels};
    cpu_run(backend, (double)args->x.rows * args->x.cols, args->x.rows, square_one, &call);
}

struct add_call {
    const struct add_args *args;
    const struct cpu_kernels *kernels;
};

static void add_one(const void *context, int i, int thread) {
    (void)thread;
    const struct add_call *call = context;
    call->kernels->add(call->args, i);
}

void cpu_add(struct backend *backend, const struct add_args *args) {
    struct add_call call = {.args = args, .kernels = cpu_of(backend)->kernels};
    cpu_run(backend, (double)args->y.rows * args->y.cols, args->y.rows, add_one, &call);
}
