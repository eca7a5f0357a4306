/* kernels/cpu/delta.c: layers whose heads keep a matrix, gated delta nets and state spaces: what a
 * row writes and forgets, and the cut into pieces for threads; the rules themselves are in the
 * variants (delta_vector.h).
 *
 * A piece is some value heads that read one key head, of the spans of one sequence: it touches no
 * state of another piece. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chains.h"
#include "kernels/cpu/row_math.h"

enum {
    DELTA_ROWS = 32,       /* the most rows whose keys are made ready before values meet them */
    DELTA_STATE = 1 << 16, /* the most floats of the states of a piece */
    DELTA_PIECE_HEADS = 16 /* the most value heads */
};
_Static_assert(DELTA_MAX_HEAD *DELTA_MAX_HEAD <= DELTA_STATE, "a piece has a head");

/* One thread's memory, in place of attention's. */
struct delta_scratch {
    float keys[DELTA_ROWS * 2 * DELTA_MAX_HEAD]; /* [rows][q, k] */
    float decay[DELTA_ROWS * DELTA_PIECE_HEADS], strength[DELTA_ROWS * DELTA_PIECE_HEADS];
    float state[DELTA_STATE]; /* that nobody keeps */
};
_Static_assert(sizeof(struct delta_scratch) <= sizeof(struct attention_scratch),
               "the memory is there");

struct delta_call {
    const struct delta_args *args;
    const struct cpu_kernels *kernels;
    struct attention_scratch *scratch;
    int most; /* heads of a piece */
};

struct delta_piece {
    const struct delta_args *args;
    const struct cpu_kernels *kernels;
    struct delta_scratch *scratch;
    int first, n; /* value heads */
    int q, k, v;  /* columns of x where q and k of the key head and v of the first value
                     head begin */
};

/* S of the piece's first value head; NULL of state -1. */
static float *state_matrix(const struct delta_piece *piece, int state) {
    const struct delta_args *args = piece->args;
    int64_t size = (int64_t)args->key_dim * args->value_dim;
    if (state < 0) return NULL;
    return row_f32(args->states, state) + args->states.cols -
           (args->value_heads - piece->first) * size;
}

/* q or k of a row, with the length that the delta rule gives it. */
static void normalise(const struct delta_piece *piece, float *to, const float *x, double scale) {
    int n = piece->args->key_dim;
    double factor = scale / sqrt(row_squares(x, n, 0) + 1e-6);
    piece->kernels->scale(to, x, n, (float)factor);
}

static double softplus(double a) { return a > 20 ? a : log1p(exp(a)); }

/* How much of a value head's state stays, and how much is written. */
static void weigh_row(const struct delta_piece *piece, int row, int to) {
    const struct delta_args *args = piece->args;
    const float *gates = row_f32(args->gates, row);
    bool adds = args->rule == DELTA_ADDS;
    double scale = args->write_scale > 0 ? (double)args->write_scale : 1;
    for (int i = 0; i < piece->n; i++) {
        int head = piece->first + i, at = to * piece->n + i;
        const float *a = adds ? gates : gates + args->value_heads;
        double step = softplus((double)a[head] + (double)args->bias[head]);
        if (adds) step = fmin(fmax(step, (double)args->least), (double)args->most);
        piece->scratch->decay[at] = (float)exp(-(double)args->rate[head] * step);
        piece->scratch->strength[at] =
            (float)(adds ? step : scale / (1 + exp(-(double)gates[head])));
    }
}

/* Rows of x from `row` on meet a value head. */
static void meet_head(const struct delta_piece *piece, struct delta_rows rows, int row, int i,
                      float *state) {
    const struct delta_args *args = piece->args;
    rows.v = row_f32(args->x, row) + piece->v + i * args->value_dim;
    rows.v_apart = args->x.stride;
    rows.y = row_f32(args->y, row) + (piece->first + i) * args->value_dim;
    rows.y_apart = args->y.stride;
    rows.state = state + (int64_t)i * args->key_dim * args->value_dim;
    rows.decay = piece->scratch->decay + i;
    rows.strength = piece->scratch->strength + i;
    if (args->rule == DELTA_ADDS) rows.skip = args->skip[piece->first + i];
    piece->kernels->delta(&rows);
}

/* Rows [row, row + n), which go on from the piece's state. */
static void run_rows(const struct delta_piece *piece, int row, int n, float *state) {
    const struct delta_args *args = piece->args;
    struct delta_scratch *scratch = piece->scratch;
    int keys = args->key_dim;
    struct delta_rows rows = {.q = row_f32(args->x, row) + piece->q,
                              .k = row_f32(args->x, row) + piece->k,
                              .apart = args->x.stride,
                              .heads = piece->n,
                              .rows = n,
                              .key_dim = keys,
                              .value_dim = args->value_dim,
                              .rule = args->rule};
    for (int i = 0; i < n; i++) weigh_row(piece, row + i, i);
    if (args->rule == DELTA_CORRECTS) {
        for (int i = 0; i < n; i++) {
            float *to = scratch->keys + (int64_t)i * 2 * keys;
            normalise(piece, to, rows.q + i * rows.apart, 1 / sqrt((double)keys));
            normalise(piece, to + keys, rows.k + i * rows.apart, 1);
        }
        rows.q = scratch->keys;
        rows.k = scratch->keys + keys;
        rows.apart = 2 * (int64_t)keys;
    }
    for (int i = 0; i < piece->n; i++) meet_head(piece, rows, row, i, state);
}

static void run_span(const struct delta_piece *piece, const struct state_span *span) {
    const struct delta_args *args = piece->args;
    size_t bytes =
        (size_t)piece->n * (size_t)args->key_dim * (size_t)args->value_dim * sizeof(float);
    const float *from = state_matrix(piece, span->from);
    float *state = span->to < 0 ? piece->scratch->state : state_matrix(piece, span->to);
    if (from == NULL)
        memset(state, 0, bytes);
    else if (from != state)
        memcpy(state, from, bytes);
    for (int first = 0; first < span->n; first += DELTA_ROWS)
        run_rows(piece, span->first + first, min_int(DELTA_ROWS, span->n - first), state);
}

static int pieces_of_head(const struct delta_args *args, int most) {
    return (args->value_heads / args->key_heads + most - 1) / most;
}

static void delta_piece_run(const void *context, int i, int thread) {
    const struct delta_call *call = context;
    const struct delta_args *args = call->args;
    int group = args->value_heads / args->key_heads, apiece = pieces_of_head(args, call->most),
        part = i % apiece * call->most, head = i / apiece % args->key_heads,
        keys = args->key_heads * args->key_dim, values = args->value_heads * args->value_dim;
    bool adds = args->rule == DELTA_ADDS;
    struct delta_piece piece = {.args = args,
                                .kernels = call->kernels,
                                .scratch = (void *)&call->scratch[thread],
                                .first = head * group + part,
                                .n = min_int(call->most, group - part)};
    piece.q = head * args->key_dim + (adds ? values + keys : 0);
    piece.k = head * args->key_dim + (adds ? values : keys);
    piece.v = piece.first * args->value_dim + (adds ? 0 : 2 * keys);

    int span = find_chain(args->spans, args->n_spans, i / (apiece * args->key_heads));
    do {
        run_span(&piece, &args->spans[span]);
        span++;
    } while (span < args->n_spans && span_follows(args->spans, span));
}

void cpu_delta(struct backend *backend, const struct delta_args *args) {
    struct delta_call call = {
        .args = args, .kernels = cpu_of(backend)->kernels, .scratch = cpu_of(backend)->scratch};
    call.most = min_int(DELTA_PIECE_HEADS, DELTA_STATE / (args->key_dim * args->value_dim));
    double operations = 2 * count_rows(args->spans, args->n_spans) * args->value_heads *
                        args->key_dim * args->value_dim;
    int pieces = count_chains(args->spans, args->n_spans) * args->key_heads *
                 pieces_of_head(args, call.most);
    cpu_run(backend, operations, pieces, delta_piece_run, &call);
}
