/* kernels/cpu/delta.c: gated delta nets: the convolution, what a row writes and forgets, and the
 * cut into pieces for threads; the delta rule itself is in the variants (delta_vector.h).
 *
 * A piece is one key head, with the value heads that read it, of the spans of one sequence: it
 * touches no channel and no state of another piece. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/row_math.h"

/* The most rows whose channels are convolved before the delta rule reads them. */
enum { DELTA_ROWS = 32 };

/* One thread's memory, in place of attention's. */
struct delta_scratch {
    float channels[DELTA_ROWS * DELTA_MAX_CHANNELS / 2]; /* [rows][channels of the piece] */
    float filter[DELTA_MAX_KERNEL * DELTA_MAX_CHANNELS]; /* of q, k and v: [kernel][channels] */
    float decay[DELTA_ROWS * DELTA_MAX_GROUP], strength[DELTA_ROWS * DELTA_MAX_GROUP];
    float state[DELTA_MAX_STATE]; /* that nobody keeps */
};
_Static_assert(sizeof(struct delta_scratch) <= sizeof(struct attention_scratch),
               "the memory is there");

struct delta_call {
    const struct delta_args *args;
    const struct cpu_kernels *kernels;
    struct attention_scratch *scratch;
};

/* Neighbouring channels of a piece: q, k or v. */
struct delta_range {
    int first, n;        /* of a row of x */
    int at;              /* of the piece's channels */
    const float *filter; /* [kernel][n] */
};

struct delta_piece {
    const struct delta_args *args;
    const struct cpu_kernels *kernels;
    struct delta_scratch *scratch;
    struct delta_range ranges[3];
    int head, group; /* the key head, and how many value heads read it */
    int channels;
};

static bool follows(const struct delta_args *args, int span) {
    return span > 0 && args->spans[span].follows;
}

/* The first span of the sequence with this number; n_spans: there are fewer. */
static int find_chain(const struct delta_args *args, int number) {
    int span = 0;
    for (int seen = -1; span < args->n_spans; span++) {
        seen += !follows(args, span);
        if (seen == number) break;
    }
    return span;
}

static int count_chains(const struct delta_args *args) {
    int n = 0;
    for (int i = 0; i < args->n_spans; i++) n += !follows(args, i);
    return n;
}

/* A state's latest rows of x, and S of the piece's first value head. NULL of state -1. */
static float *state_rows(const struct delta_args *args, int state) {
    return state < 0 ? NULL : row_f32(args->states, state);
}
static float *state_matrix(const struct delta_piece *piece, int state) {
    const struct delta_args *args = piece->args;
    if (state < 0) return NULL;
    int64_t head = (int64_t)piece->head * piece->group;
    return row_f32(args->states, state) + (int64_t)(args->filter.cols - 1) * args->x.cols +
           head * args->key_dim * args->value_dim;
}

static void take_range(struct delta_piece *piece, int which, int first, int n) {
    const struct delta_args *args = piece->args;
    int kernel = args->filter.cols;
    struct delta_range *range = &piece->ranges[which];
    float *filter = piece->scratch->filter + (int64_t)kernel * piece->channels;
    *range = (struct delta_range){first, n, piece->channels, filter};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < kernel; j++) filter[j * n + i] = row_f32(args->filter, first + i)[j];
    piece->channels += n;
}

/* Channels of a row of a span: convolved over it and the rows before it, some of which the state
 * has. */
static void convolve(const struct delta_piece *piece, const struct state_span *span, int row,
                     float *to) {
    static const float zeros[DELTA_MAX_CHANNELS];
    const struct delta_args *args = piece->args;
    const float *before = state_rows(args, span->from);
    int kernel = args->filter.cols;
    for (int r = 0; r < 3; r++) {
        const struct delta_range *range = &piece->ranges[r];
        const float *x[DELTA_MAX_KERNEL];
        for (int j = 0; j < kernel; j++) {
            int at = row - kernel + 1 + j;
            if (at >= 0)
                x[j] = row_f32(args->x, span->first + at) + range->first;
            else if (before)
                x[j] = before + (int64_t)(kernel - 1 + at) * args->x.cols + range->first;
            else
                x[j] = zeros;
        }
        piece->kernels->convolve(to + range->at, x, range->filter, kernel, range->n);
    }
    piece->kernels->activate(to, to, piece->channels, ACTIVATION_SILU);
}

static void normalise(const struct delta_piece *piece, float *x, int n, double scale) {
    double factor = scale / sqrt(row_squares(x, n, 0) + 1e-6);
    piece->kernels->scale(x, x, n, (float)factor);
}

/* How much of a value head's state stays, and how much of what is missing is written. */
static void weigh_row(const struct delta_piece *piece, int row, int to) {
    const struct delta_args *args = piece->args;
    const float *gates = row_f32(args->gates, row);
    for (int h = 0; h < piece->group; h++) {
        int head = piece->head * piece->group + h;
        double a = (double)gates[args->value_heads + head] + (double)args->bias[head];
        double softplus = a > 20 ? a : log1p(exp(a));
        piece->scratch->decay[to * piece->group + h] =
            (float)exp(-(double)args->rate[head] * softplus);
        piece->scratch->strength[to * piece->group + h] =
            (float)(1 / (1 + exp(-(double)gates[head])));
    }
}

/* Rows [first, first + n) of a span, which go on from the piece's state. */
static void run_rows(const struct delta_piece *piece, const struct state_span *span, int first,
                     int n, float *state) {
    const struct delta_args *args = piece->args;
    struct delta_scratch *scratch = piece->scratch;
    int keys = args->key_dim, values = args->value_dim;
    for (int i = 0; i < n; i++) {
        float *channels = scratch->channels + (int64_t)i * piece->channels;
        convolve(piece, span, first + i, channels);
        normalise(piece, channels, keys, 1 / sqrt((double)keys));
        normalise(piece, channels + keys, keys, 1);
        weigh_row(piece, span->first + first + i, i);
    }
    for (int h = 0; h < piece->group; h++) {
        struct delta_rows rows = {
            .q = scratch->channels,
            .k = scratch->channels + keys,
            .v = scratch->channels + 2 * keys + h * values,
            .apart = piece->channels,
            .y = row_f32(args->y, span->first + first) + (piece->head * piece->group + h) * values,
            .y_apart = args->y.stride,
            .state = state + (int64_t)h * keys * values,
            .decay = scratch->decay + h,
            .strength = scratch->strength + h,
            .heads = piece->group,
            .rows = n,
            .key_dim = keys,
            .value_dim = values};
        piece->kernels->delta(&rows);
    }
}

/* The state's latest rows: in place they only move forward. */
static void keep_latest(const struct delta_piece *piece, const struct state_span *span) {
    const struct delta_args *args = piece->args;
    const float *before = state_rows(args, span->from);
    float *to = state_rows(args, span->to);
    int kept = args->filter.cols - 1;
    for (int j = 0; j < kept && to; j++) {
        int at = span->n - kept + j;
        for (int r = 0; r < 3; r++) {
            const struct delta_range *range = &piece->ranges[r];
            float *row = to + (int64_t)j * args->x.cols + range->first;
            size_t bytes = (size_t)range->n * sizeof *row;
            if (at >= 0)
                memcpy(row, row_f32(args->x, span->first + at) + range->first, bytes);
            else if (before)
                memmove(row, before + (int64_t)(kept + at) * args->x.cols + range->first, bytes);
            else
                memset(row, 0, bytes);
        }
    }
}

static void run_span(const struct delta_piece *piece, const struct state_span *span) {
    const struct delta_args *args = piece->args;
    size_t bytes =
        (size_t)piece->group * (size_t)args->key_dim * (size_t)args->value_dim * sizeof(float);
    const float *from = state_matrix(piece, span->from);
    float *state = span->to < 0 ? piece->scratch->state : state_matrix(piece, span->to);
    int step = min_int(DELTA_ROWS, (int)ARRAY_COUNT(piece->scratch->channels) / piece->channels);
    if (from == NULL)
        memset(state, 0, bytes);
    else if (from != state)
        memcpy(state, from, bytes);
    for (int first = 0; first < span->n; first += step)
        run_rows(piece, span, first, min_int(step, span->n - first), state);
    keep_latest(piece, span);
}

static void delta_piece_run(const void *context, int i, int thread) {
    const struct delta_call *call = context;
    const struct delta_args *args = call->args;
    int group = args->value_heads / args->key_heads, head = i % args->key_heads,
        keys = args->key_heads * args->key_dim;
    struct delta_piece piece = {.args = args,
                                .kernels = call->kernels,
                                .scratch = (void *)&call->scratch[thread],
                                .head = head,
                                .group = group};
    take_range(&piece, 0, head * args->key_dim, args->key_dim);
    take_range(&piece, 1, keys + head * args->key_dim, args->key_dim);
    take_range(&piece, 2, 2 * keys + head * group * args->value_dim, group * args->value_dim);
    int span = find_chain(args, i / args->key_heads);
    do {
        run_span(&piece, &args->spans[span]);
        span++;
    } while (span < args->n_spans && follows(args, span));
}

void cpu_delta(struct backend *backend, const struct delta_args *args) {
    struct delta_call call = {
        .args = args, .kernels = cpu_of(backend)->kernels, .scratch = cpu_of(backend)->scratch};
    double rows = 0;
    for (int i = 0; i < args->n_spans; i++) rows += args->spans[i].n;
    double operations = 2 * rows * args->value_heads * args->key_dim * args->value_dim;
    cpu_run(backend, operations, count_chains(args) * args->key_heads, delta_piece_run, &call);
}
