/* kernels/cpu/attention.c: softmax attention over packed rows.
 *
 * Keys are cut in ranges of ATTENTION_KEYS, counted from the span's first key. In each a row makes, of the keys i that
 * it sees there,
 *
 *     s_i = sum over d of (scale q_d) k_id, then s_i = softcap tanh(s_i / softcap), then s_i += bias of i, if given;
 *     m = max s_i;  p_i = exp(s_i - m);  sum = p_0 + p_1 + ...;
 *     out = p_0 v_0 + p_1 v_1 + ..., in rising i,
 *
 * where s_i is 16 sums, each over every 16th d in rising order, which are added 8 apart, then 4, 2 and 1, and so is the
 * sum of p_i in the vector variants. Ranges are merged in rising order, from m = -infinity and zeros:
 *
 *     m' = max(m, m_range);  sum = sum_range exp(m_range - m') + sum exp(m - m');  out likewise.
 *
 * Keys the row may not see are left out, not multiplied by zero: what they hold, NaN included, has no effect. Ranges
 * without a key that a piece (below) sees are not read, so with a window the cost follows the window. The order depends
 * on the row's own list of keys alone, so the result is the same in any batch and with any number of threads.
 *
 * Within a range keys and values are read block by block, each where the block table has it; without a table blocks
 * follow each other. Cutting the loops there has no effect on the order of any sum.
 *
 * A piece of work is up to ATTENTION_ROWS (query, head) rows of one span: all rows of as many key heads as that allows,
 * since whole rows of a key/value cache are read faster than columns of them; measured, 38 GB/s instead of 11 for one
 * head of 64 of 32. One thread takes a piece through all its ranges. Where pieces are too few for the threads, (piece,
 * range) pairs are shared out, and what they leave is merged afterwards, as many ranges at a time as there is room for.
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
    int group, padded;      /* query heads of a key head; head_dim rounded up to TILE_COLUMNS */
    int heads_most;         /* key heads of a piece, at most */
    int pieces, ranges;     /* ranges of the piece that has most, or a few more */
    int sums_each;          /* sums of a piece that one thread's scratch has room for */
    int first_range, parts; /* ranges that are shared out at a time, counted from each piece's first */
    int together;           /* of which so many, one after the other, are one job */
};

/* One piece: (query, head of the group) pairs numbered first .. first + rows in the span, for each of some key heads.
 */
struct attention_piece {
    const struct attention_span *span;
    int first_head, heads, first, rows;
};

static int divide_up(int x, int y) { return (x + y - 1) / y; }

/* The key of its span at which the query of row `row` of a piece stands. */
static int query_stands(const struct call *call, const struct attention_piece *p, int row) {
    return p->span->k_count - p->span->q_count + (p->first + row) / call->group;
}

/* The row sees keys [keys_hidden, keys_seen) of its span. */
static int keys_seen(const struct call *call, const struct attention_piece *p, int row) {
    return call->args->mask == MASK_NONE ? p->span->k_count : query_stands(call, p, row) + 1;
}

static int keys_hidden(const struct call *call, const struct attention_piece *p, int row) {
    return call->args->window == 0 ? 0 : max_int(0, keys_seen(call, p, row) - call->args->window);
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
    struct attention_piece p = {.span = span, .first_head = number / per_head * together};
    p.first = number % per_head * ATTENTION_ROWS;
    p.heads = min_int(together, call->args->kv_heads - p.first_head);
    p.rows = min_int(ATTENTION_ROWS, span->q_count * call->group - p.first);
    return p;
}

/* Where row `row` of key head `head` of a piece is in q or out. */
static float *piece_row(const struct call *call, struct tensor t, const struct attention_piece *p, int head, int row) {
    int at = p->first + row, column = (p->first_head + head) * call->group + at % call->group;
    return row_f32(t, p->span->q_start + at / call->group) + (int64_t)column * call->args->head_dim;
}

static struct attention_sums sums_at(const struct call *call, struct attention_scratch *scratch, int number) {
    float *floats = scratch->sums + number * ATTENTION_ROWS * (call->padded + 2);
    return (struct attention_sums){.out = floats,
                                   .largest = floats + ATTENTION_ROWS * call->padded,
                                   .sum = floats + ATTENTION_ROWS * (call->padded + 1)};
}

static void sums_begin(const struct call *call, const struct attention_piece *p, const struct attention_sums *total) {
    for (int row = 0; row < p->heads * p->rows; row++) {
        total->largest[row] = -INFINITY;
        total->sum[row] = 0;
    }
    memset(total->out, 0, (size_t)(p->heads * p->rows) * (size_t)call->padded * sizeof(float));
}

/* A head's row is short: a call of a kernel would take longer than the products. */
static inline void scale_head(float *to, const float *from, int n, float scale) {
#pragma omp simd
    for (int d = 0; d < n; d++) to[d] = from[d] * scale;
}

static void sums_end(const struct call *call, const struct attention_piece *p, const struct attention_sums *total) {
    const struct attention_args *a = call->args;
    for (int i = 0; i < p->heads * p->rows; i++) {
        float *out = piece_row(call, a->out, p, i / p->rows, i % p->rows);
        scale_head(out, total->out + i * call->padded, a->head_dim, 1 / total->sum[i]);
    }
}

static void scale_queries(const struct call *call, const struct attention_piece *p, struct attention_scratch *scratch) {
    const struct attention_args *a = call->args;
    for (int i = 0; i < p->heads * p->rows; i++) {
        float *to = scratch->queries + i * call->padded;
        scale_head(to, piece_row(call, a->q, p, i / p->rows, i % p->rows), a->head_dim, a->scale);
        for (int d = a->head_dim; d < call->padded; d++) to[d] = 0;
    }
}

/* The row of k and v where key `key` of a span lies, the first of a block. Past the last block the last serves. */
static int block_row(const struct attention_args *a, const struct attention_span *span, int key) {
    if (a->blocks == NULL) return span->k_start + key;
    int last = (span->k_count - 1) / ATTENTION_BLOCK;
    return a->blocks[span->k_start + min_int(key / ATTENTION_BLOCK, last)] * ATTENTION_BLOCK;
}

static void find_bias(const struct call *call, const struct attention_piece *p, int key, struct attention_range *r) {
    const struct attention_args *a = call->args;
    r->reach = a->bias.data == NULL ? -1 : a->bias.cols / 2;
    if (r->reach < 0) return;
    for (int row = 0; row < p->rows; row++) r->distance[row] = key - query_stands(call, p, row);
    for (int i = 0; i < p->heads * p->rows; i++) {
        int head = (p->first_head + i / p->rows) * call->group + (p->first + i % p->rows) % call->group;
        r->bias[i] = row_f32(a->bias, head) + r->reach;
    }
}

/* The sums of one range, which holds a key that the piece's last row sees. */
static void run_range(const struct call *call, const struct attention_piece *p, int range,
                      struct attention_scratch *scratch, struct attention_sums sums) {
    const struct attention_args *a = call->args;
    struct attention_range r = {.scratch = scratch, .sums = sums, .kv_heads = p->heads, .rows = p->rows};
    int key = range * ATTENTION_KEYS, column = p->first_head * a->head_dim, columns = p->heads * a->head_dim;
    r.k = tensor_cols(a->k, column, columns);
    r.v = tensor_cols(a->v, column, columns);
    for (size_t i = 0; i < ARRAY_COUNT(r.starts); i++)
        r.starts[i] = block_row(a, p->span, key + (int)i * ATTENTION_BLOCK);
    r.keys = min_int(ATTENTION_KEYS, keys_seen(call, p, p->rows - 1) - key);
    r.head_dim = a->head_dim;
    r.padded = call->padded;
    r.softcap = a->softcap;
    for (int row = 0; row < p->rows; row++) {
        r.visible[row] = min_int(r.keys, keys_seen(call, p, row) - key);
        r.hidden[row] = max_int(0, keys_hidden(call, p, row) - key);
    }
    find_bias(call, p, key, &r);
    call->cpu->kernels->attention(&r);
}

static void merge_range(const struct call *call, const struct attention_piece *p, int range,
                        const struct attention_sums *total, const struct attention_sums *sums) {
    int first = range * ATTENTION_KEYS, end = first + ATTENTION_KEYS;
    for (int i = 0; i < p->heads * p->rows; i++) {
        int row = i % p->rows;
        if (keys_seen(call, p, row) > first && keys_hidden(call, p, row) < end)
            call->cpu->kernels->merge(total, sums, i, call->padded);
    }
}

/* A piece has ranges [piece_first, piece_end) of its span. */
static int piece_first(const struct call *call, const struct attention_piece *p) {
    return keys_hidden(call, p, 0) / ATTENTION_KEYS;
}
static int piece_end(const struct call *call, const struct attention_piece *p) {
    return divide_up(keys_seen(call, p, p->rows - 1), ATTENTION_KEYS);
}

/* A piece from its first range to its last. */
static void whole_piece(const void *context, int number, int thread) {
    const struct call *call = context;
    struct attention_piece p = piece_number(call, number);
    struct attention_scratch *scratch = &call->cpu->scratch[thread];
    struct attention_sums total = sums_at(call, scratch, 0), part = sums_at(call, scratch, 1);
    scale_queries(call, &p, scratch);
    sums_begin(call, &p, &total);
    for (int range = piece_first(call, &p); range < piece_end(call, &p); range++) {
        run_range(call, &p, range, scratch, part);
        merge_range(call, &p, range, &total, &part);
    }
    sums_end(call, &p, &total);
}

/* Sums in all threads' scratch: first the totals of all pieces, then, for each range that is shared out, its sums of
 * all pieces. */
static struct attention_sums shared_sums(const struct call *call, int number) {
    return sums_at(call, &call->cpu->scratch[number / call->sums_each], number % call->sums_each);
}

static void part_of_piece(const void *context, int number, int thread) {
    const struct call *call = context;
    struct attention_scratch *scratch = &call->cpu->scratch[thread];
    struct attention_piece p = piece_number(call, number % call->pieces);
    int first = piece_first(call, &p) + call->first_range, part = number / call->pieces * call->together;
    int end = min_int(min_int(part + call->together, call->parts), piece_end(call, &p) - first);
    if (part < end) scale_queries(call, &p, scratch);
    for (; part < end; part++)
        run_range(call, &p, first + part, scratch,
                  shared_sums(call, (part + 1) * call->pieces + number % call->pieces));
}

static void merge_parts(const void *context, int number, int thread) {
    (void)thread;
    const struct call *call = context;
    struct attention_piece p = piece_number(call, number);
    struct attention_sums total = shared_sums(call, number);
    int first = piece_first(call, &p) + call->first_range, last = piece_end(call, &p);
    int end = min_int(last, first + call->parts);
    if (first >= last) return;
    if (call->first_range == 0) sums_begin(call, &p, &total);
    for (int range = first; range < end; range++) {
        struct attention_sums part = shared_sums(call, (range - first + 1) * call->pieces + number);
        merge_range(call, &p, range, &total, &part);
    }
    if (end == last) sums_end(call, &p, &total);
}

/* Rows that no span writes are zeros. Spans overlap in no row. */
static void zero_out(const struct attention_args *a) {
    int written = 0;
    for (int s = 0; s < a->n_spans; s++)
        if (a->spans[s].k_count > 0) written += a->spans[s].q_count;
    for (int i = 0; written < a->out.rows && i < a->out.rows; i++)
        memset(row_f32(a->out, i), 0, (size_t)a->out.cols * sizeof(float));
}

/* Keys that the queries of a piece see together, at most. */
static int keys_together(const struct call *call, const struct attention_span *span) {
    int queries = min_int(span->q_count, ATTENTION_ROWS / call->group + 2), window = call->args->window;
    return window == 0 || window >= span->k_count - queries ? span->k_count : window + queries;
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

/* Whole pieces where there are several for each thread, else parts of them, several jobs for each thread; and if even
 * ranges are too few, with fewer heads each. No choice made here has an effect on the result. */
static void cut_call(struct call *call) {
    int threads = call->cpu->threads, heads = call->args->kv_heads;
    call->heads_most = heads;
    call->sums_each = (int)(ARRAY_COUNT(call->cpu->scratch->sums) / (size_t)(ATTENTION_ROWS * (call->padded + 2)));
    count_pieces(call);
    if (call->pieces == 0 || call->pieces >= JOBS_EACH * threads || threads == 1) return;
    int jobs = call->pieces * call->ranges;
    if (jobs < threads) call->heads_most = divide_up(heads, divide_up(threads, jobs));
    count_pieces(call);
    if (call->ranges == 1) return;
    call->parts = min_int(call->ranges, threads * call->sums_each / call->pieces - 1);
    call->together = max_int(1, call->pieces * call->parts / (JOBS_EACH * threads));
}

void cpu_attention(struct backend *b, const struct attention_args *a) {
    struct call call = {.args = a, .cpu = cpu_of(b), .group = a->heads / a->kv_heads};
    call.padded = packed_tiles(a->head_dim) * TILE_COLUMNS;
    double work = 0;
    for (int s = 0; s < a->n_spans; s++)
        work += (double)a->spans[s].q_count * keys_together(&call, &a->spans[s]) * a->q.cols;
    cut_call(&call);
    zero_out(a);
    if (call.parts < 1) {
        cpu_run(b, work, call.pieces, whole_piece, &call);
        return;
    }
    for (; call.first_range < call.ranges; call.first_range += call.parts) {
        cpu_run(b, work, call.pieces * divide_up(call.parts, call.together), part_of_piece, &call);
        cpu_run(b, work / ATTENTION_KEYS, call.pieces, merge_parts, &call);
    }
}

/* Shares: a job is one query with all its heads, which are added in rising order. Its ranges are gone through twice,
 * for the softmax over all keys and for what each group has of it; the keys serve as values, which are not needed. */
struct shares_call {
    struct call call; /* its `args` are those of `shares`, with k as v */
    const struct attention_shares_args *shares;
};

/* The query of a job, and its span's number. */
struct shares_job {
    int span, query;
};

static int queries_of(const struct attention_span *span) { return span->k_count > 0 ? span->q_count : 0; }

static struct shares_job shares_job_number(const struct call *call, int number) {
    int span = 0;
    for (; number >= queries_of(&call->args->spans[span]); span++) number -= queries_of(&call->args->spans[span]);
    return (struct shares_job){span, number};
}

/* The scores of a range that the row sees and that group `keys` has. */
static float sum_scores(const struct call *call, const struct attention_piece *p, int row, int first_key,
                        struct key_group keys, const float *scores) {
    int begin = max_int(keys.first, keys_hidden(call, p, row)),
        end = min_int(keys.first + keys.n, keys_seen(call, p, row));
    float sum = 0;
    begin = max_int(begin, first_key);
    end = min_int(end, first_key + ATTENTION_KEYS);
    for (int key = begin; key < end; key++) sum += scores[key - first_key];
    return sum;
}

/* Adds what the groups have of one range, whose sums are `part`, to the query's row of y. */
static void add_range_shares(const struct shares_call *s, const struct attention_piece *p, struct shares_job job,
                             int range, struct attention_scratch *scratch) {
    const struct call *call = &s->call;
    const struct attention_sums total = sums_at(call, scratch, 0), part = sums_at(call, scratch, 1);
    const struct key_group list = s->shares->span_groups[job.span];
    float *y = row_f32(s->shares->y, p->span->q_start + job.query);
    for (int i = 0; i < p->heads * p->rows; i++) {
        const float *scores = scratch->scores + i * ATTENTION_KEYS;
        for (int g = 0; g < list.n; g++) {
            struct key_group keys = s->shares->groups[list.first + g];
            float sum = sum_scores(call, p, i % p->rows, range * ATTENTION_KEYS, keys, scores);
            if (sum > 0) y[g] += s->shares->weight * sum * expf(part.largest[i] - total.largest[i]) / total.sum[i];
        }
    }
}

static void share_piece(const struct shares_call *s, const struct attention_piece *p, struct shares_job job,
                        struct attention_scratch *scratch) {
    const struct call *call = &s->call;
    const struct attention_sums total = sums_at(call, scratch, 0), part = sums_at(call, scratch, 1);
    int first = piece_first(call, p), end = piece_end(call, p);
    scale_queries(call, p, scratch);
    sums_begin(call, p, &total);
    for (int range = first; range < end; range++) {
        run_range(call, p, range, scratch, part);
        merge_range(call, p, range, &total, &part);
    }
    for (int range = first; range < end; range++) {
        if (end - first > 1) run_range(call, p, range, scratch, part); /* one range is still there */
        add_range_shares(s, p, job, range, scratch);
    }
}

/* Key heads that are worked on together, as many as the scratch has rows for. */
static void share_query(const void *context, int number, int thread) {
    const struct shares_call *s = context;
    const struct call *call = &s->call;
    struct shares_job job = shares_job_number(call, number);
    int rows = min_int(call->group, ATTENTION_ROWS), heads = ATTENTION_ROWS / rows;
    if (rows > 1) heads = min_int(heads, ATTENTION_COPY / 4 / call->padded);
    for (int head = 0; head < call->args->kv_heads; head += heads)
        for (int row = 0; row < call->group; row += rows) {
            struct attention_piece p = {.span = &call->args->spans[job.span], .first_head = head};
            p.heads = min_int(heads, call->args->kv_heads - head);
            p.first = job.query * call->group + row;
            p.rows = min_int(rows, call->group - row);
            share_piece(s, &p, job, &call->cpu->scratch[thread]);
        }
}

void cpu_attention_shares(struct backend *b, const struct attention_shares_args *a) {
    struct attention_args of = a->of;
    struct shares_call s = {.shares = a};
    int jobs = 0;
    double work = 0;
    of.v = of.k;
    s.call = (struct call){.args = &of, .cpu = cpu_of(b), .group = of.heads / of.kv_heads};
    s.call.padded = packed_tiles(of.head_dim) * TILE_COLUMNS;
    for (int i = 0; i < of.n_spans; i++) {
        jobs += queries_of(&of.spans[i]);
        work += 2.0 * queries_of(&of.spans[i]) * keys_together(&s.call, &of.spans[i]) * of.q.cols;
    }
    cpu_run(b, work, jobs, share_query, &s);
}
