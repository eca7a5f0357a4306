/* kernels/cpu/rows.c: moving whole rows: gather, scatter into a cache, and the mean of a run of rows. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static void gather_row(const void *context, int i, int thread) {
    (void)thread;
    const struct gather_rows_args *a = context;
    size_t n = (size_t)a->y.cols;
    if (a->rows[i] < 0)
        memset(row_of(a->y, i), 0, n * dtype_bytes(a->y.dtype));
    else
        dtype_convert(row_of(a->y, i), a->y.dtype, row_of(a->x, a->rows[i]), a->x.dtype, n);
}

void cpu_gather_rows(struct backend *b, const struct gather_rows_args *a) {
    if (a->y.cols > 0) cpu_run(b, (double)a->y.rows * a->y.cols, a->y.rows, gather_row, a);
}

enum { SCATTER_COLUMNS = 256 };

struct scattering {
    const struct scatter_rows_args *args;
    const struct cpu_kernels *kernels;
};

/* A range of columns of all rows: two rows may name the same place, and then the later one must win. */
static void scatter_columns(const void *context, int piece, int thread) {
    (void)thread;
    const struct scattering *s = context;
    const struct scatter_rows_args *a = s->args;
    const bool halves = a->y.dtype == DTYPE_F16 && a->x.dtype == DTYPE_F32;
    size_t column = (size_t)piece * SCATTER_COLUMNS;
    size_t columns = (size_t)min_int(SCATTER_COLUMNS, a->x.cols - piece * SCATTER_COLUMNS);
    for (int i = 0; i < a->x.rows; i++) {
        if (a->rows[i] < 0) continue;
        char *to = (char *)row_of(a->y, a->rows[i]) + column * dtype_bytes(a->y.dtype);
        const char *from = (const char *)row_of(a->x, i) + column * dtype_bytes(a->x.dtype);
        if (halves)
            s->kernels->halve((uint16_t *)(void *)to, (const float *)(const void *)from, (int)columns);
        else
            dtype_convert(to, a->y.dtype, from, a->x.dtype, columns);
    }
}

void cpu_scatter_rows(struct backend *b, const struct scatter_rows_args *a) {
    int pieces = (a->x.cols + SCATTER_COLUMNS - 1) / SCATTER_COLUMNS;
    struct scattering s = {.args = a, .kernels = cpu_of(b)->kernels};
    cpu_run(b, (double)a->x.rows * a->x.cols, pieces, scatter_columns, &s);
}

/* Sums and the norm are in double: rows are few and the cost is nothing. An empty run gives zeros. */
static void mean_row(const void *context, int s, int thread) {
    (void)thread;
    const struct mean_rows_args *a = context;
    float *y = row_f32(a->y, s);
    int first = a->starts[s], end = a->starts[s + 1];
    double squares = 0;
    for (int j = 0; j < a->y.cols; j++) {
        double sum = 0;
        for (int i = first; i < end; i++) sum += (double)row_f32(a->x, i)[j];
        double mean = end > first ? sum / (end - first) : 0;
        y[j] = (float)mean;
        squares += mean * mean;
    }
    if (!a->normalize || squares == 0) return;
    double scale = 1 / sqrt(squares);
    for (int j = 0; j < a->y.cols; j++) y[j] = (float)((double)y[j] * scale);
}

void cpu_mean_rows(struct backend *b, const struct mean_rows_args *a) {
    cpu_run(b, (double)a->x.rows * a->x.cols, a->y.rows, mean_row, a);
}
