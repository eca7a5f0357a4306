/* kernels/cpu/attention.c: softmax attention over packed rows in one streaming pass.
 *
 * A piece of work is up to 16 (query, head) rows of one span that share a key head. Keys come in blocks of 64 counted
 * from the span's k_start; a block is converted to f32 once, keys transposed so that 64 scores come out side by side.
 * Each row keeps a running maximum, sum and output, and for every block that holds a key it may see does
 *     s_i = sum over d, in rising d, of (scale q_d) k_id;  m' = max(m, max s_i);  p_i = exp(s_i - m')
 *     sum = sum * exp(m - m') + (p_0 + p_1 + ...);  out = out * exp(m - m') + p_0 v_0 + p_1 v_1 + ..., in rising i
 * Keys the row may not see are left out, not multiplied by zero: what they hold, NaN included, has no effect. The order
 * depends on the row's own list of keys alone, so the result is the same in any batch. Memory is one thread's scratch,
 * whatever the number of keys. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* One attention call: pieces are numbered span by span, key head by key head. */
struct call {
    const struct attention_args *args;
    const struct cpu *cpu;
};

/* One piece: rows of scratch are (query, head of the group) pairs numbered first .. first + rows in the span. */
struct piece {
    const struct attention_span *span;
    int kv_head, first, rows;
};

/* How many keys of its span query `i` sees. */
static int keys_seen(const struct attention_args *a, const struct attention_span *span, int i) {
    return a->mask == MASK_CAUSAL ? span->k_count - span->q_count + i + 1 : span->k_count;
}

static float *piece_row(const struct attention_args *a, struct tensor t, const struct piece *p, int row) {
    int group = a->heads / a->kv_heads, at = p->first + row;
    return row_f32(t, p->span->q_start + at / group) + (int64_t)(p->kv_head * group + at % group) * a->head_dim;
}

static void piece_begin(const struct call *call, const struct piece *p, const struct attention_block *block) {
    const struct attention_args *a = call->args;
    struct attention_scratch *s = block->scratch;
    for (int row = 0; row < p->rows; row++) {
        const float *q = piece_row(a, a->q, p, row);
        call->cpu->kernels->scale(s->queries + row * block->padded, q, a->head_dim, a->scale);
        s->largest[row] = -INFINITY;
        s->sum[row] = 0;
    }
    memset(s->outputs, 0, (size_t)p->rows * (size_t)block->padded * sizeof(float));
}

static void piece_end(const struct call *call, const struct piece *p, const struct attention_block *block) {
    const struct attention_args *a = call->args;
    const struct attention_scratch *s = block->scratch;
    for (int row = 0; row < p->rows; row++) {
        float *out = piece_row(a, a->out, p, row);
        call->cpu->kernels->scale(out, s->outputs + row * block->padded, a->head_dim, 1 / s->sum[row]);
    }
}

static void piece_run(const struct call *call, const struct piece *p, struct attention_scratch *scratch) {
    const struct attention_args *a = call->args;
    const struct cpu_kernels *kernels = call->cpu->kernels;
    struct attention_block block = {.scratch = scratch, .rows = p->rows, .head_dim = a->head_dim};
    block.padded = packed_tiles(a->head_dim) * TILE_COLUMNS;
    int group = a->heads / a->kv_heads, column = p->kv_head * a->head_dim;
    int most = keys_seen(a, p->span, (p->first + p->rows - 1) / group);
    piece_begin(call, p, &block);
    for (int key = 0; key < most; key += ATTENTION_KEYS) {
        block.keys = min_int(ATTENTION_KEYS, most - key);
        for (int row = 0; row < p->rows; row++)
            scratch->visible[row] = min_int(block.keys, keys_seen(a, p->span, (p->first + row) / group) - key);
        int first = p->span->k_start + key;
        kernels->load_keys(scratch->keys, tensor_slice(a->k, first, block.keys, column, a->head_dim), a->head_dim);
        kernels->load_values(scratch->values, tensor_slice(a->v, first, block.keys, column, a->head_dim), a->head_dim);
        kernels->attention(&block);
    }
    piece_end(call, p, &block);
}

/* Rows that no span writes are zeros. */
static void zero_out(const struct attention_args *a) {
    for (int i = 0; i < a->out.rows; i++) memset(row_f32(a->out, i), 0, (size_t)a->out.cols * sizeof(float));
}

/* Pieces of one key head of a span; none when there is nothing to read. */
static int head_pieces(const struct attention_args *a, const struct attention_span *span) {
    int pairs = span->k_count == 0 ? 0 : span->q_count * (a->heads / a->kv_heads);
    return (pairs + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
}

static void numbered_piece(const void *context, int number, int thread) {
    const struct call *call = context;
    const struct attention_args *a = call->args;
    const struct attention_span *span = a->spans;
    for (; number >= head_pieces(a, span) * a->kv_heads; span++) number -= head_pieces(a, span) * a->kv_heads;
    int per_head = head_pieces(a, span), first = number % per_head * ATTENTION_ROWS;
    struct piece p = {.span = span, .kv_head = number / per_head, .first = first};
    p.rows = min_int(ATTENTION_ROWS, span->q_count * (a->heads / a->kv_heads) - first);
    piece_run(call, &p, &call->cpu->scratch[thread]);
}

void cpu_attention(struct backend *b, const struct attention_args *a) {
    struct call call = {.args = a, .cpu = cpu_of(b)};
    double work = 0;
    int pieces = 0;
    for (int s = 0; s < a->n_spans; s++) {
        work += (double)a->spans[s].q_count * a->spans[s].k_count * a->q.cols;
        pieces += head_pieces(a, &a->spans[s]) * a->kv_heads;
    }
    zero_out(a);
    cpu_run(b, work, pieces, numbered_piece, &call);
}
