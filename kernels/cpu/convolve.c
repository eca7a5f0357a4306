/* kernels/cpu/convolve.c: short causal convolutions of channels.
 *
 * A piece is a run of channels of the spans of one sequence: it touches no channel and no part of a
 * state of another piece. */
#include <string.h>

#include "kernels/cpu/chains.h"

/* The most channels of a piece. */
enum { CONVOLVE_COLUMNS = 256 };

struct convolve_call {
    const struct convolve_args *args;
    const struct cpu_kernels *kernels;
};

struct convolve_piece {
    const struct convolve_args *args;
    const struct cpu_kernels *kernels;
    int first, n, kernel;                              /* channels */
    float filter[DELTA_MAX_KERNEL * CONVOLVE_COLUMNS]; /* [kernel][n] */
};

/* A state's latest rows of x, of the piece's channels; NULL of state -1. */
static float *latest_rows(const struct convolve_piece *piece, int state) {
    return state < 0 ? NULL : row_f32(piece->args->states, state) + piece->first;
}

/* The row that stands `row` rows behind a span's first: those before it are of the state. */
static const float *row_at(const struct convolve_piece *piece, const struct state_span *span,
                           int row) {
    static const float zeros[CONVOLVE_COLUMNS];
    const struct convolve_args *args = piece->args;
    const float *before = latest_rows(piece, span->from);
    if (row >= 0) return row_f32(args->x, span->first + row) + piece->first;
    return before ? before + (int64_t)(piece->kernel - 1 + row) * args->x.cols : zeros;
}

static void convolve_one(const struct convolve_piece *piece, const struct state_span *span,
                         int row) {
    const struct convolve_args *args = piece->args;
    float *y = row_f32(args->y, span->first + row) + piece->first;
    const float *x[DELTA_MAX_KERNEL];
    for (int j = 0; j < piece->kernel; j++) x[j] = row_at(piece, span, row - piece->kernel + 1 + j);
    piece->kernels->convolve(y, x, piece->filter, piece->kernel, piece->n);
    for (int i = 0; i < piece->n && args->bias; i++) y[i] += args->bias[piece->first + i];
    if (args->activation != ACTIVATION_NONE)
        piece->kernels->activate(y, y, piece->n, args->activation);
}

/* The state's latest rows: in place they only move forward. */
static void keep_latest(const struct convolve_piece *piece, const struct state_span *span) {
    float *to = latest_rows(piece, span->to);
    int kept = piece->kernel - 1;
    for (int j = 0; j < kept && to; j++)
        memmove(to + (int64_t)j * piece->args->x.cols, row_at(piece, span, span->n - kept + j),
                (size_t)piece->n * sizeof *to);
}

static void convolve_piece_run(const void *context, int i, int thread) {
    (void)thread;
    const struct convolve_call *call = context;
    const struct convolve_args *args = call->args;
    int channels = args->x.cols, pieces = (channels + CONVOLVE_COLUMNS - 1) / CONVOLVE_COLUMNS;
    struct convolve_piece piece = {.args = args,
                                   .kernels = call->kernels,
                                   .first = i % pieces * CONVOLVE_COLUMNS,
                                   .kernel = args->filter.cols};
    piece.n = min_int(CONVOLVE_COLUMNS, channels - piece.first);
    for (int c = 0; c < piece.n; c++)
        for (int j = 0; j < piece.kernel; j++)
            piece.filter[j * piece.n + c] = row_f32(args->filter, piece.first + c)[j];

    int span = find_chain(args->spans, args->n_spans, i / pieces);
    do {
        for (int row = 0; row < args->spans[span].n; row++)
            convolve_one(&piece, &args->spans[span], row);
        keep_latest(&piece, &args->spans[span]);
        span++;
    } while (span < args->n_spans && span_follows(args->spans, span));
}

void cpu_convolve(struct backend *backend, const struct convolve_args *args) {
    struct convolve_call call = {.args = args, .kernels = cpu_of(backend)->kernels};
    int pieces = (args->x.cols + CONVOLVE_COLUMNS - 1) / CONVOLVE_COLUMNS;
    double operations = count_rows(args->spans, args->n_spans) * args->x.cols; /* moved */
    cpu_run(backend, operations, count_chains(args->spans, args->n_spans) * pieces,
            convolve_piece_run, &call);
}
