/* kernels/cpu/rows.c: moving whole rows: gather, scatter into a cache, and the mean of a run of
 * rows. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static void gather_row(const void *context, int i, int thread) {
    (void)thread;
    const struct gather_rows_args *args = context;
    size_t n = (size_t)args->y.cols;
    if (args->rows[i] < 0)
        memset(row_of(args->y, i), 0, n * dtype_bytes(args->y.dtype));
    else
        dtype_convert(row_of(args->y, i), args->y.dtype, row_of(args->x, args->rows[i]),
                      args->x.dtype, n);
}

void cpu_gather_rows(struct backend *backend, const struct gather_rows_args *args) {
    if (args->y.cols > 0)
        cpu_run(backend, (double)args->y.rows * args->y.cols, args->y.rows, gather_row, args);
}

enum { SCATTER_COLUMNS = 256 };

struct scattering {
    const struct scatter_rows_args *args;
    const struct cpu_kernels *kernels;
};

/* A range of columns of all rows: two rows may name the same place, and then the later one must
 * win. */
static void scatter_columns(const void *context, int piece, int thread) {
    (void)thread;
    const struct scattering *scattering = context;
    const struct scatter_rows_args *args = scattering->args;
    const bool halves = args->y.dtype == DTYPE_F16 && args->x.dtype == DTYPE_F32;
    size_t column = (size_t)piece * SCATTER_COLUMNS;
    size_t columns = (size_t)min_int(SCATTER_COLUMNS, args->x.cols - piece * SCATTER_COLUMNS);
    for (int i = 0; i < args->x.rows; i++) {
        if (args->rows[i] < 0) continue;
        char *to = (char *)row_of(args->y, args->rows[i]) + column * dtype_bytes(args->y.dtype);
        const char *from = (const char *)row_of(args->x, i) + column * dtype_bytes(args->x.dtype);
        if (halves)
            scattering->kernels->halve((uint16_t *)(void *)to, (const float *)(const void *)from,
                                       (int)columns);
        else
            dtype_convert(to, args->y.dtype, from, args->x.dtype, columns);
    }
}

static int groups_together(const struct scatter_rows_args *args) {
    return max_int(1, SCATTER_COLUMNS / (args->x.cols / args->scales.cols));
}

/* A range of groups of all rows, for the same reason. */
static void scatter_groups(const void *context, int piece, int thread) {
    (void)thread;
    const struct scattering *scattering = context;
    const struct scatter_rows_args *args = scattering->args;
    int width = args->x.cols / args->scales.cols, together = groups_together(args);
    int first = piece * together, end = min_int(first + together, args->scales.cols);
    for (int i = 0; i < args->x.rows; i++) {
        if (args->rows[i] < 0) continue;
        uint16_t *scales = row_of(args->scales, args->rows[i]);
        int8_t *to = row_of(args->y, args->rows[i]);
        for (int group = first; group < end; group++)
            scales[group] = scattering->kernels->narrow(to + group * width,
                                                        row_f32(args->x, i) + group * width, width);
    }
}

void cpu_scatter_rows(struct backend *backend, const struct scatter_rows_args *args) {
    int pieces = divide_up(args->x.cols, SCATTER_COLUMNS);
    struct scattering scattering = {.args = args, .kernels = cpu_of(backend)->kernels};
    double work = (double)args->x.rows * args->x.cols;
    if (args->y.dtype == DTYPE_INT8)
        cpu_run(backend, work, divide_up(args->scales.cols, groups_together(args)), scatter_groups,
                &scattering);
    else
        cpu_run(backend, work, pieces, scatter_columns, &scattering);
}

/* Sums and the norm are in double: rows are few and the cost is nothing. An empty run gives zeros.
 */
static void mean_row(const void *context, int s, int thread) {
    (void)thread;
    const struct mean_rows_args *args = context;
    float *y = row_f32(args->y, s);
    int first = args->starts[s], end = args->starts[s + 1];
    double squares = 0;
    for (int j = 0; j < args->y.cols; j++) {
        double sum = 0;
        for (int i = first; i < end; i++) sum += (double)row_f32(args->x, i)[j];
        double mean = end > first ? sum / (end - first) : 0;
        y[j] = (float)mean;
        squares += mean * mean;
    }
    if (!args->normalize || squares == 0) return;
    double scale = 1 / sqrt(squares);
    for (int j = 0; j < args->y.cols; j++) y[j] = (float)((double)y[j] * scale);
}

void cpu_mean_rows(struct backend *backend, const struct mean_rows_args *args) {
    cpu_run(backend, (double)args->x.rows * args->x.cols, args->y.rows, mean_row, args);
}
