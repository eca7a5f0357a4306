/* kernels/cpu/norm.c: LayerNorm, RMSNorm, sums of squares and the residual sum, row by row; the arithmetic is in
 * row_math.h. */
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

void cpu_norm(struct backend *b, const struct norm_args *a) {
    struct norm_call call = {.args = a, .kernels = cpu_of(b)->kernels};
    if (a->x.cols > 0) cpu_run(b, 4.0 * a->x.rows * a->x.cols, a->x.rows, norm_one, &call);
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

void cpu_square_rows(struct backend *b, const struct square_rows_args *a) {
    struct square_call call = {.args = a, .kernels = cpu_of(b)->kernels};
    cpu_run(b, (double)a->x.rows * a->x.cols, a->x.rows, square_one, &call);
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

void cpu_add(struct backend *b, const struct add_args *a) {
    struct add_call call = {.args = a, .kernels = cpu_of(b)->kernels};
    cpu_run(b, (double)a->y.rows * a->y.cols, a->y.rows, add_one, &call);
}
