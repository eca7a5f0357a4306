/* kernels/cpu/attention.c: softmax attention over packed rows.
 *
 * Keys are cut in ranges of ATTENTION_KEYS, counted from the span's first key. In each a row makes,
 * of the keys i that it sees there,
 *
 *     s_i = sum over d of (scale q_d) k_id, then s_i = softcap tanh(s_i / softcap), then s_i +=
 * bias of i, or what its distance adds, if given; m = max s_i;  p_i = exp(s_i - m);  sum = p_0 +
 * p_1 + ...; out = p_0 v_0 + p_1 v_1 + ..., in rising i,
 *
 * where s_i is 16 sums, each over every 16th d in rising order, which are added 8 apart, then 4, 2
 * and 1, and so is the sum of p_i in the vector variants. Integers are widened as they are: the
 * scale of key i multiplies s_i first of all, that of value i multiplies p_i where it meets v_i.
 * A variant that multiplies bf16 (cpu_kernels.attention_rounds) rounds scale q_d, k_id, p_i and v_i
 * to it where keys and values have fewer than 32 bits and the call is not exact. A sum of s_i then
 * goes over every 16th pair of d, and one of p_i v_i over pairs of i, the even one first in the
 * range; p_0 + p_1 + ... has the p_i that are not rounded.
 *
 * Ranges are merged in rising order, from m
 * = -infinity and zeros:
 *
 *     m' = max(m, m_range);  sum = sum_range exp(m_range - m') + sum exp(m - m');  out likewise.
 *
 * A sink is a range before the first: m is its score, sum is 1, out zeros.
 *
 * Keys the row may not see are left out, not multiplied by zero: what they hold, NaN included, has
 * no effect. Ranges without a key that a piece (below) sees are not read, so with a window the cost
 * follows the window. The order depends on the row's own list of keys alone, so the result is the
 * same in any batch and with any number of threads.
 *
 * Within a range keys and values are read block by block, each where the block table has it;
 * without a table blocks follow each other. Cutting the loops there has no effect on the order of
 * any sum.
 *
 * A piece of work is up to ATTENTION_ROWS (query, head) rows of one span: all rows of as many key
 * heads as that allows, since whole rows of a key/value cache are read faster than columns of them;
 * measured, 38 GB/s instead of 11 for one head of 64 of 32. One thread takes a piece through all
 * its ranges. Where pieces are too few for the threads, (piece, range) pairs are shared out, and
 * what they leave is merged afterwards, as many ranges at a time as there is room for.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    JOBS_EACH = 4,  /* jobs for each thread, so that none waits long for the last */
    HEADS_ROWS = 64 /* rows of a piece of several key heads, at most */
};

/* One attention call: how it is cut. Pieces are numbered span by span. */
struct call {
    const struct attention_args *args;
    const struct cpu *cpu;
    int group, padded;  /* query heads of a key head; head_dim rounded up to TILE_COLUMNS */
    int heads_most;     /* key heads of a piece, at most */
    int pieces, ranges; /* ranges of the piece that has most, or a few more */
    int sums_each;      /* sums of a piece that one thread's scratch has room for */
    int first_range,
        parts;    /* ranges that are shared out at a time, counted from each piece's first */
    int together; /* of which so many, one after the other, are one job */
};

/* One piece: (query, head of the group) pairs numbered first .. first + rows in the span, for each
 * of some key heads.
 */
struct attention_piece {
    const struct attention_span *span;
    int first_head, heads, first, rows;
};

/* The key of its span at which the query of row `row` of a piece stands. */
static int query_stands(const struct call *call, const struct attention_piece *piece, int row) {
    return piece->span->k_count - piece->span->q_count + (piece->first + row) / call->group;
}

/* The row sees keys [keys_hidden, keys_seen) of its span. */
static int keys_seen(const struct call *call, const struct attention_piece *piece, int row) {
    return attention_keys_end(call->args, piece->span, query_stands(call, piece, row));
}

static int keys_hidden(const struct call *call, const struct attention_piece *piece, int row) {
    return attention_keys_begin(call->args, query_stands(call, piece, row));
}

/* Key heads of one piece of a span, and the pieces of each such set of heads. */
static int heads_together(const struct call *call, const struct attention_span *span) {
    int pairs = span->q_count * call->group, most = call->heads_most;
    if (pairs > 1) most = min_int(most, ATTENTION_COPY / 4 / call->padded);
    return pairs > HEADS_ROWS ? 1 : min_int(most, HEADS_ROWS / pairs);
}

static int head_pieces(const struct call *call, const struct attention_span *span) {
    return divide_up(span->q_count * call->group, ATTENTION_ROWS);
}

/* Pieces of a span; none when there is nothing to read, or nobody who reads. */
static int span_pieces(const struct call *call, const struct attention_span *span) {
    if (span->k_count == 0 || span->q_count == 0) return 0;
    return divide_up(call->args->kv_heads, heads_together(call, span)) * head_pieces(call, span);
}

static struct attention_piece piece_number(const struct call *call, int number) {
    const struct attention_span *span = call->args->spans;
    for (; number >= span_pieces(call, span); span++) number -= span_pieces(call, span);
    int together = heads_together(call, span), per_head = head_pieces(call, span);
    struct attention_piece piece = {.span = span, .first_head = number / per_head * together};
    piece.first = number % per_head * ATTENTION_ROWS;
    piece.heads = min_int(together, call->args->kv_heads - piece.first_head);
    piece.rows = min_int(ATTENTION_ROWS, span->q_count * call->group - piece.first);
    return piece;
}

/* Where row `row` of key head `head` of a piece is in q or out. */
static float *piece_row(const struct call *call, struct tensor t,
                        const struct attention_piece *piece, int head, int row) {
    int at = piece->first + row,
        column = (piece->first_head + head) * call->group + at % call->group;
    return row_f32(t, piece->span->q_start + at / call->group) +
           (int64_t)column * call->args->head_dim;
}

static struct attention_sums sums_at(const struct call *call, struct attention_scratch *scratch,
                                     int number) {
    float *floats = scratch->sums + number * ATTENTION_ROWS * (call->padded + 2);
    return (struct attention_sums){.out = floats,
                                   .largest = floats + ATTENTION_ROWS * call->padded,
                                   .sum = floats + ATTENTION_ROWS * (call->padded + 1)};
}

/* The query head of row i of a piece, counted over its key heads. */
static int query_head(const struct call *call, const struct attention_piece *piece, int i) {
    return (piece->first_head + i / piece->rows) * call->group +
           (piece->first + i % piece->rows) % call->group;
}

static void sums_begin(const struct call *call, const struct attention_piece *piece,
                       const struct attention_sums *total) {
    const float *sinks = call->args->sinks;
    for (int row = 0; row < piece->heads * piece->rows; row++) {
        total->largest[row] = sinks ? sinks[query_head(call, piece, row)] : -INFINITY;
        total->sum[row] = sinks ? 1 : 0;
    }
    memset(total->out, 0,
           (size_t)(piece->heads * piece->rows) * (size_t)call->padded * sizeof(float));
}

/* A head's row is short: a call of a kernel would take longer than the products. */
static inline void scale_head(float *to, const float *from, int n, float scale) {
#pragma omp simd
    for (int d = 0; d < n; d++) to[d] = from[d] * scale;
}

static void sums_end(const struct call *call, const struct attention_piece *piece,
                     const struct attention_sums *total) {
    const struct attention_args *args = call->args;
    for (int i = 0; i < piece->heads * piece->rows; i++) {
        float *out = piece_row(call, args->out, piece, i / piece->rows, i % piece->rows);
        scale_head(out, total->out + i * call->padded, args->head_dim, 1 / total->sum[i]);
    }
}

static void scale_queries(const struct call *call, const struct attention_piece *piece,
                          struct attention_scratch *scratch) {
    const struct attention_args *args = call->args;
    for (int i = 0; i < piece->heads * piece->rows; i++) {
        float *to = scratch->queries + i * call->padded;
        scale_head(to, piece_row(call, args->q, piece, i / piece->rows, i % piece->rows),
                   args->head_dim, args->scale);
        for (int d = args->head_dim; d < call->padded; d++) to[d] = 0;
    }
}

/* The row of k and v where key `key` of a span lies, the first of a block. Past the last block the
 * last serves. */
static int block_row(const struct attention_args *args, const struct attention_span *span,
                     int key) {
    if (args->blocks == NULL) return span->k_start + key;
    int last = (span->k_count - 1) / ATTENTION_BLOCK;
    return args->blocks[span->k_start + min_int(key / ATTENTION_BLOCK, last)] * ATTENTION_BLOCK;
}

/* The bias of each key of the range for one row of a piece, by their distances. */
static void add_distances(const struct call *call, const struct attention_piece *piece, int key,
                          const struct attention_range *range, int i) {
    const struct attention_args *args = call->args;
    const struct distance_scores *distances = &args->distances;
    int row = i % piece->rows, stands = query_stands(call, piece, row), reach = distances->reach,
        columns = distances->by_query.cols / args->heads,
        first = query_head(call, piece, i) * columns;
    const float *query =
        row_f32(distances->by_query, piece->span->q_start + piece->first + row) + first;
    float *bias = range->scratch->bias + i * ATTENTION_KEYS;
    for (int j = 0; j < range->keys; j++) {
        int at = piece->span->k_start + key + j, distance = stands - key - j;
        int column = distances->columns[reach + max_int(-reach, min_int(distance, reach))];
        bias[j] = args->scale * (query[column] + row_f32(distances->by_key, at)[first + column]);
    }
}

/* The bias of each row is its own, by the number of the key in the range. */
static void find_distances(const struct call *call, const struct attention_piece *piece, int key,
                           struct attention_range *range) {
    range->reach = ATTENTION_KEYS;
    for (int row = 0; row < piece->rows; row++) range->distance[row] = 0;
    for (int i = 0; i < piece->heads * piece->rows; i++) {
        add_distances(call, piece, key, range, i);
        range->bias[i] = range->scratch->bias + i * ATTENTION_KEYS;
    }
}

static void find_bias(const struct call *call, const struct attention_piece *piece, int key,
                      struct attention_range *range) {
    const struct attention_args *args = call->args;
    if (args->distances.by_query.data) {
        find_distances(call, piece, key, range);
        return;
    }
    range->reach = args->bias.data == NULL ? -1 : args->bias.cols / 2;
    if (range->reach < 0) return;
    for (int row = 0; row < piece->rows; row++)
        range->distance[row] = key - query_stands(call, piece, row);
    for (int i = 0; i < piece->heads * piece->rows; i++)
        range->bias[i] = row_f32(args->bias, query_head(call, piece, i)) + range->reach;
}

/* The sums of one range, which holds a key that the piece's last row sees. */
static void run_range(const struct call *call, const struct attention_piece *piece, int range,
                      struct attention_scratch *scratch, struct attention_sums sums) {
    const struct attention_args *args = call->args;
    struct attention_range attention_range = {
        .scratch = scratch, .sums = sums, .kv_heads = piece->heads, .rows = piece->rows};
    int key = range * ATTENTION_KEYS, column = piece->first_head * args->head_dim,
        columns = piece->heads * args->head_dim;
    attention_range.k = tensor_cols(args->k, column, columns);
    attention_range.v = tensor_cols(args->v, column, columns);
    if (args->k_scales.data)
        attention_range.k_scales = tensor_cols(args->k_scales, piece->first_head, piece->heads);
    if (args->v_scales.data)
        attention_range.v_scales = tensor_cols(args->v_scales, piece->first_head, piece->heads);
    for (size_t i = 0; i < ARRAY_COUNT(attention_range.starts); i++)
        attention_range.starts[i] = block_row(args, piece->span, key + (int)i * ATTENTION_BLOCK);
    attention_range.keys = min_int(ATTENTION_KEYS, keys_seen(call, piece, piece->rows - 1) - key);
    attention_range.head_dim = args->head_dim;
    attention_range.exact = args->exact;
    attention_range.padded = call->padded;
    attention_range.softcap = args->softcap;
    for (int row = 0; row < piece->rows; row++) {
        attention_range.visible[row] =
            min_int(attention_range.keys, keys_seen(call, piece, row) - key);
        attention_range.hidden[row] = max_int(0, keys_hidden(call, piece, row) - key);
    }
    find_bias(call, piece, key, &attention_range);
    call->cpu->kernels->attention(&attention_range);
}

static void merge_range(const struct call *call, const struct attention_piece *piece, int range,
                        const struct attention_sums *total, const struct attention_sums *sums) {
    int first = range * ATTENTION_KEYS, end = first + ATTENTION_KEYS;
    for (int i = 0; i < piece->heads * piece->rows; i++) {
        int row = i % piece->rows;
        if (keys_seen(call, piece, row) > first && keys_hidden(call, piece, row) < end)
            call->cpu->kernels->merge(total, sums, i, call->padded);
    }
}

/* A piece has ranges [piece_first, piece_end) of its span. */
static int piece_first(const struct call *call, const struct attention_piece *piece) {
    return keys_hidden(call, piece, 0) / ATTENTION_KEYS;
}
static int piece_end(const struct call *call, const struct attention_piece *piece) {
    return divide_up(keys_seen(call, piece, piece->rows - 1), ATTENTION_KEYS);
}

/* A piece from its first range to its last. */
static void whole_piece(const void *context, int number, int thread) {
    const struct call *call = context;
    struct attention_piece piece = piece_number(call, number);
    struct attention_scratch *scratch = &call->cpu->scratch[thread];
    struct attention_sums total = sums_at(call, scratch, 0), part = sums_at(call, scratch, 1);
    scale_queries(call, &piece, scratch);
    sums_begin(call, &piece, &total);
    for (int range = piece_first(call, &piece); range < piece_end(call, &piece); range++) {
        run_range(call, &piece, range, scratch, part);
        merge_range(call, &piece, range, &total, &part);
    }
    sums_end(call, &piece, &total);
}

/* Sums in all threads' scratch: first the totals of all pieces, then, for each range that is shared
 * out, its sums of all pieces. */
static struct attention_sums shared_sums(const struct call *call, int number) {
    return sums_at(call, &call->cpu->scratch[number / call->sums_each], number % call->sums_each);
}

static void part_of_piece(const void *context, int number, int thread) {
    const struct call *call = context;
    struct attention_scratch *scratch = &call->cpu->scratch[thread];
    struct attention_piece piece = piece_number(call, number % call->pieces);
    int first = piece_first(call, &piece) + call->first_range,
        part = number / call->pieces * call->together;
    int end = min_int(min_int(part + call->together, call->parts), piece_end(call, &piece) - first);
    if (part < end) scale_queries(call, &piece, scratch);
    for (; part < end; part++)
        run_range(call, &piece, first + part, scratch,
                  shared_sums(call, (part + 1) * call->pieces + number % call->pieces));
}

static void merge_parts(const void *context, int number, int thread) {
    (void)thread;
    const struct call *call = context;
    struct attention_piece piece = piece_number(call, number);
    struct attention_sums total = shared_sums(call, number);
    int first = piece_first(call, &piece) + call->first_range, last = piece_end(call, &piece);
    int end = min_int(last, first + call->parts);
    if (first >= last) return;
    if (call->first_range == 0) sums_begin(call, &piece, &total);
    for (int range = first; range < end; range++) {
        struct attention_sums part = shared_sums(call, (range - first + 1) * call->pieces + number);
        merge_range(call, &piece, range, &total, &part);
    }
    if (end == last) sums_end(call, &piece, &total);
}

/* Rows that no span writes are zeros. Spans overlap in no row. */
static void zero_out(const struct attention_args *args) {
    int written = 0;
    for (int s = 0; s < args->n_spans; s++)
        if (args->spans[s].k_count > 0) written += args->spans[s].q_count;
    for (int i = 0; written < args->out.rows && i < args->out.rows; i++)
        memset(row_f32(args->out, i), 0, (size_t)args->out.cols * sizeof(float));
}

/* Keys that the queries of a piece see together, at most. */
static int keys_together(const struct call *call, const struct attention_span *span) {
    const struct attention_args *args = call->args;
    int queries = min_int(span->q_count, ATTENTION_ROWS / call->group + 2);
    if (span->mutual) queries = span->q_count;
    if (args->window == 0 || args->window >= span->k_count - queries) return span->k_count;
    int sides = args->mask == MASK_NONE ? 2 : 1;
    return min_int(span->k_count, queries + sides * args->window);
}

static void count_pieces(struct call *call) {
    call->pieces = call->ranges = 0;
    for (int s = 0; s < call->args->n_spans; s++) {
        const struct attention_span *span = &call->args->spans[s];
        int keys = keys_together(call, span), ranges = divide_up(keys, ATTENTION_KEYS);
        call->pieces += span_pieces(call, span);
        call->ranges = max_int(call->ranges, keys < span->k_count ? ranges + 1 : ranges);
    }
}

/* Whole pieces where there are several for each thread, else parts of them, several jobs for each
 * thread; and if even ranges are too few, with fewer heads each. No choice made here has an effect
 * on the result. */
static void cut_call(struct call *call) {
    int threads = call->cpu->threads, heads = call->args->kv_heads;
    call->heads_most = heads;
    call->sums_each = (int)(ARRAY_COUNT(call->cpu->scratch->sums) /
                            (size_t)(ATTENTION_ROWS * (call->padded + 2)));
    count_pieces(call);
    if (call->pieces == 0 || call->pieces >= JOBS_EACH * threads || threads == 1) return;
    int jobs = call->pieces * call->ranges;
    if (jobs < threads) call->heads_most = divide_up(heads, divide_up(threads, jobs));
    count_pieces(call);
    if (call->ranges == 1) return;
    call->parts = min_int(call->ranges, threads * call->sums_each / call->pieces - 1);
    call->together = max_int(1, call->pieces * call->parts / (JOBS_EACH * threads));
}

void cpu_attention(struct backend *backend, const struct attention_args *args) {
    struct call call = {
        .args = args, .cpu = cpu_of(backend), .group = args->heads / args->kv_heads};
    call.padded = packed_tiles(args->head_dim) * TILE_COLUMNS;
    double work = 0;
    for (int s = 0; s < args->n_spans; s++)
        work +=
            (double)args->spans[s].q_count * keys_together(&call, &args->spans[s]) * args->q.cols;
    cut_call(&call);
    zero_out(args);
    if (call.parts < 1) {
        cpu_run(backend, work, call.pieces, whole_piece, &call);
        return;
    }
    for (; call.first_range < call.ranges; call.first_range += call.parts) {
        cpu_run(backend, work, call.pieces * divide_up(call.parts, call.together), part_of_piece,
                &call);
        cpu_run(backend, work / ATTENTION_KEYS, call.pieces, merge_parts, &call);
    }
}

/* Shares: a job is one query with all its heads, which are added in rising order. Its ranges are
 * gone through twice, for the softmax over all keys and for what each group has of it; the keys
 * serve as values, which are not needed, and whose scales would multiply what is told. */
struct shares_call {
    struct call call; /* its `args` are those of `shares`, with k as v */
    const struct attention_shares_args *shares;
};

/* The query of a job, and its span's number. */
struct shares_job {
    int span, query;
};

static int queries_of(const struct attention_span *span) {
    return span->k_count > 0 ? span->q_count : 0;
}

static struct shares_job shares_job_number(const struct call *call, int number) {
    int span = 0;
    for (; number >= queries_of(&call->args->spans[span]); span++)
        number -= queries_of(&call->args->spans[span]);
    return (struct shares_job){span, number};
}

/* The scores of a range that the row sees and that group `keys` has. */
static float sum_scores(const struct call *call, const struct attention_piece *piece, int row,
                        int first_key, struct key_group keys, const float *scores) {
    int begin = max_int(keys.first, keys_hidden(call, piece, row)),
        end = min_int(keys.first + keys.n, keys_seen(call, piece, row));
    float sum = 0;
    begin = max_int(begin, first_key);
    end = min_int(end, first_key + ATTENTION_KEYS);
    for (int key = begin; key < end; key++) sum += scores[key - first_key];
    return sum;
}

/* Adds what the groups have of one range, whose sums are `part`, to the query's row of y. */
static void add_range_shares(const struct shares_call *shares_call,
                             const struct attention_piece *piece, struct shares_job job, int range,
                             struct attention_scratch *scratch) {
    const struct call *call = &shares_call->call;
    const struct attention_sums total = sums_at(call, scratch, 0), part = sums_at(call, scratch, 1);
    const struct key_group list = shares_call->shares->span_groups[job.span];
    float *y = row_f32(shares_call->shares->y, piece->span->q_start + job.query);
    for (int i = 0; i < piece->heads * piece->rows; i++) {
        const float *scores = scratch->scores + i * ATTENTION_KEYS;
        for (int g = 0; g < list.n; g++) {
            struct key_group keys = shares_call->shares->groups[list.first + g];
            float sum =
                sum_scores(call, piece, i % piece->rows, range * ATTENTION_KEYS, keys, scores);
            if (sum > 0)
                y[g] += shares_call->shares->weight * sum *
                        expf(part.largest[i] - total.largest[i]) / total.sum[i];
        }
    }
}

static void share_piece(const struct shares_call *shares_call, const struct attention_piece *piece,
                        struct shares_job job, struct attention_scratch *scratch) {
    const struct call *call = &shares_call->call;
    const struct attention_sums total = sums_at(call, scratch, 0), part = sums_at(call, scratch, 1);
    int first = piece_first(call, piece), end = piece_end(call, piece);
    scale_queries(call, piece, scratch);
    sums_begin(call, piece, &total);
    for (int range = first; range < end; range++) {
        run_range(call, piece, range, scratch, part);
        merge_range(call, piece, range, &total, &part);
    }
    for (int range = first; range < end; range++) {
        if (end - first > 1)
            run_range(call, piece, range, scratch, part); /* one range is still there */
        add_range_shares(shares_call, piece, job, range, scratch);
    }
}

/* Key heads that are worked on together, as many as the scratch has rows for. */
static void share_query(const void *context, int number, int thread) {
    const struct shares_call *shares_call = context;
    const struct call *call = &shares_call->call;
    struct shares_job job = shares_job_number(call, number);
    int rows = min_int(call->group, ATTENTION_ROWS), heads = ATTENTION_ROWS / rows;
    if (rows > 1) heads = min_int(heads, ATTENTION_COPY / 4 / call->padded);
    for (int head = 0; head < call->args->kv_heads; head += heads)
        for (int row = 0; row < call->group; row += rows) {
            struct attention_piece piece = {.span = &call->args->spans[job.span],
                                            .first_head = head};
            piece.heads = min_int(heads, call->args->kv_heads - head);
            piece.first = job.query * call->group + row;
            piece.rows = min_int(rows, call->group - row);
            share_piece(shares_call, &piece, job, &call->cpu->scratch[thread]);
        }
}

void cpu_attention_shares(struct backend *backend, const struct attention_shares_args *args) {
    struct attention_args of = args->of;
    struct shares_call call = {.shares = args};
    int jobs = 0;
    double work = 0;
    of.v = of.k;
    of.v_scales = (struct tensor){0};
    call.call = (struct call){.args = &of, .cpu = cpu_of(backend), .group = of.heads / of.kv_heads};
    call.call.padded = packed_tiles(of.head_dim) * TILE_COLUMNS;
    for (int i = 0; i < of.n_spans; i++) {
        jobs += queries_of(&of.spans[i]);
        work +=
            2.0 * queries_of(&of.spans[i]) * keys_together(&call.call, &of.spans[i]) * of.q.cols;
    }
    cpu_run(backend, work, jobs, share_query, &call);
}
