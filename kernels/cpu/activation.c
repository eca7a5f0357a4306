/* kernels/cpu/activation.c: the gated unit and the soft-cap; plain activations run in the epilogue
 * of linear. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct gated {
    const struct glu_args *args;
    const struct cpu_kernels *kernels;
};

/* NaN stays NaN. */
static inline float cut(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

static void cut_gates(float *y, const float *x, int n, float limit) {
#pragma omp simd
    for (int j = 0; j < n; j++) y[j] = cut(x[j], -INFINITY, limit);
}

static void glu_row(const void *context, int i, int thread) {
    (void)thread;
    const struct gated *gated = context;
    const float *x = row_f32(gated->args->x, i);
    float *y = row_f32(gated->args->y, i);
    const struct gating *gating = &gated->args->gating;
    int n = gated->args->y.cols;
    if (gating->limit > 0) cut_gates(y, x, n, gating->limit);
    gated->kernels->activate(y, gating->limit > 0 ? y : x, n, gating->activation);
    if (gating->plain) return;
    if (gating->limit > 0 || gating->shift != 0) {
        const float limit = gating->limit > 0 ? gating->limit : INFINITY;
#pragma omp simd
        for (int j = 0; j < n; j++) y[j] *= cut(x[n + j], -limit, limit) + gating->shift;
        return;
    }
#pragma omp simd
    for (int j = 0; j < n; j++) y[j] *= x[n + j];
}

void cpu_glu(struct backend *backend, const struct glu_args *args) {
    struct gated gated = {.args = args, .kernels = cpu_of(backend)->kernels};
    cpu_run(backend, 4.0 * args->x.rows * args->x.cols, args->x.rows, glu_row, &gated);
}

/* Where y is `by`, its columns are read before the activations take their place. */
enum { GATE_COLUMNS = 256 };

struct gating_rows {
    const struct gate_args *args;
    const struct cpu_kernels *kernels;
    int each; /* columns that a column of x weighs */
};

/* y = weights by, of n weights. */
static void weigh_columns(float *y, const float *by, const float *weights, int n, int each) {
    if (each == 1) {
        for (int j = 0; j < n; j++) y[j] = weights[j] * by[j];
        return;
    }
    for (int j = 0; j < n; j++)
        for (int k = j * each; k < (j + 1) * each; k++) y[k] = weights[j] * by[k];
}

static void gate_row(const void *context, int i, int thread) {
    (void)thread;
    const struct gating_rows *rows = context;
    const struct gate_args *args = rows->args;
    const float *x = row_f32(args->x, i), *by = row_f32(args->by, i);
    float *y = row_f32(args->y, i), weights[GATE_COLUMNS];
    for (int first = 0; first < args->x.cols; first += GATE_COLUMNS) {
        int n = min_int(GATE_COLUMNS, args->x.cols - first);
        rows->kernels->activate(weights, x + first, n, args->activation);
        weigh_columns(y + first * rows->each, by + first * rows->each, weights, n, rows->each);
    }
}

void cpu_gate(struct backend *backend, const struct gate_args *args) {
    struct gating_rows rows = {.args = args, .kernels = cpu_of(backend)->kernels};
    rows.each = args->y.cols / args->x.cols;
    cpu_run(backend, 4.0 * args->y.rows * args->y.cols, args->y.rows, gate_row, &rows);
}

struct scaling {
    const struct scale_args *args;
    const struct cpu_kernels *kernels;
    float factor;
};

static void scale_one(const void *context, int i, int thread) {
    (void)thread;
    const struct scaling *scaling = context;
    float *x = row_f32(scaling->args->x, i);
    scaling->kernels->scale(x, x, scaling->args->x.cols, scaling->factor);
}

void cpu_scale(struct backend *backend, const struct scale_args *args) {
    struct scaling scaling = {.args = args, .kernels = cpu_of(backend)->kernels};
    scaling.factor = args->by == NULL ? args->factor : args->factor * *args->by;
    cpu_run(backend, (double)args->x.rows * args->x.cols, args->x.rows, scale_one, &scaling);
}

/* Comparisons that NaN fails, so it stays. */
static void clamp_row(const void *context, int i, int thread) {
    (void)thread;
    const struct clamp_args *args = context;
    const float *x = row_f32(args->x, i);
    float *y = row_f32(args->y, i), least = *args->least, most = *args->most;
    for (int j = 0; j < args->x.cols; j++) {
        float value = x[j] < least ? least : x[j];
        y[j] = value > most ? most : value;
    }
}

void cpu_clamp(struct backend *backend, const struct clamp_args *args) {
    cpu_run(backend, 2.0 * args->x.rows * args->x.cols, args->x.rows, clamp_row, args);
}

struct xielu_rows {
    const struct xielu_args *args;
    const struct cpu_kernels *kernels;
    float positive, negative, slope, least;
};

/* e^x is s / (1 - s) of the sigmoid s, which the kernels have; x is not above `least` there, which
 * is about 0. */
static void xielu_row(const void *context, int i, int thread) {
    (void)thread;
    const struct xielu_rows *rows = context;
    const float *x = row_f32(rows->args->x, i);
    float *y = row_f32(rows->args->y, i), s[GATE_COLUMNS];
    for (int first = 0; first < rows->args->x.cols; first += GATE_COLUMNS) {
        int n = min_int(GATE_COLUMNS, rows->args->x.cols - first);
        for (int j = 0; j < n; j++) s[j] = x[first + j] < rows->least ? x[first + j] : rows->least;
        rows->kernels->activate(s, s, n, ACTIVATION_SIGMOID);
        for (int j = 0; j < n; j++) {
            float v = x[first + j], below = rows->negative * (s[j] / (1 - s[j]) - 1 - v),
                  above = rows->positive * v * v;
            y[first + j] = (v > 0 ? above : below) + rows->slope * v;
        }
    }
}

static float softplus(float a) { return a > 20 ? a : (float)log1p(exp((double)a)); }

void cpu_xielu(struct backend *backend, const struct xielu_args *args) {
    struct xielu_rows rows = {.args = args,
                              .kernels = cpu_of(backend)->kernels,
                              .positive = softplus(*args->positive),
                              .negative = *args->slope + softplus(*args->negative),
                              .slope = *args->slope,
                              .least = *args->least};
    cpu_run(backend, 8.0 * args->x.rows * args->x.cols, args->x.rows, xielu_row, &rows);
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
