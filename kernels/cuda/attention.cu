/* kernels/cuda/attention.cu: softmax attention over packed rows, without a matrix of scores: which span goes to which
 * kernel (attention.cuh). */
#include "kernels/cuda/attention.cuh"

#include <string.h>

/* Steps by a quarter. */
int count_pad(int n) {
    int step = 1;
    while (4 * step < n) step *= 2;
    return (n + step - 1) / step * step;
}

/* Longest first: under a causal mask later tiles see more keys, and the last blocks to run should be short ones. */
const struct tile_piece *tiles_list(struct backend *b, const struct attention_args *a, int rows, int *n) {
    struct cuda *cuda = cuda_of(b);
    struct tile_piece *pieces = NULL;
    int group = a->heads / a->kv_heads, count = 0;
    for (int pass = 0; pass < 2; pass++) { /* count, then list */
        if (pass == 1) pieces = (struct tile_piece *)host_list_reserve(&cuda->pieces, (size_t)count * sizeof *pieces);
        count = 0;
        for (int i = 0; i < a->n_spans; i++) {
            if (a->spans[i].q_count <= 1 || a->spans[i].k_count == 0) continue;
            int tiles = (int)blocks_for((int64_t)a->spans[i].q_count * group, rows);
            for (int tile = tiles - 1; tile >= 0; tile--) {
                if (pass == 1) pieces[count] = {i, tile * rows};
                count++;
            }
        }
    }
    *n = count;
    return array_stage(b, pieces, (size_t)count);
}

struct zero_command {
    void *data;
    size_t step, row, rows;
};

static void zero_run(struct backend *b, const void *arguments) {
    const struct zero_command *c = (const struct zero_command *)arguments;
    cuda_ok(b, cudaMemset2DAsync(c->data, c->step, 0, c->row, c->rows, cuda_of(b)->stream), "zeroing rows");
}

/* Rows that no span writes are zeros; the spans overlap in no row, so it is enough to count. */
static void rows_zero_unwritten(struct backend *b, const struct attention_args *a) {
    int written = 0;
    for (int i = 0; i < a->n_spans; i++) written += a->spans[i].k_count > 0 ? a->spans[i].q_count : 0;
    if (written == a->out.rows || a->out.cols == 0) return;
    struct zero_command c = {a->out.data, (size_t)a->out.stride * sizeof(float), (size_t)a->out.cols * sizeof(float),
                             (size_t)a->out.rows};
    work_add(b, zero_run, &c, sizeof c);
}

/* The block tables on the device, padded: they grow as sequences do, and what is staged after them in equal steps is to
 * lie at equal places (graph.cu). */
static const int32_t *blocks_stage(struct backend *b, const struct attention_args *a) {
    struct cuda *cuda = cuda_of(b);
    if (a->blocks == NULL) return NULL;
    int n = count_pad(a->n_blocks);
    int32_t *padded = (int32_t *)host_list_reserve(&cuda->blocks, (size_t)n * sizeof *padded);
    memcpy(padded, a->blocks, (size_t)a->n_blocks * sizeof *padded);
    memset(padded + a->n_blocks, 0, (size_t)(n - a->n_blocks) * sizeof *padded);
    return array_stage(b, padded, (size_t)n);
}

struct attention_shape attention_shape_of(struct backend *b, const struct attention_args *a) {
    return {a->out,
            a->q,
            a->k,
            a->v,
            array_stage(b, a->spans, (size_t)a->n_spans),
            blocks_stage(b, a),
            (const float *)a->bias.data,
            a->bias.stride,
            a->heads,
            a->kv_heads,
            a->head_dim,
            a->heads / a->kv_heads,
            a->scale,
            a->softcap,
            a->mask == MASK_CAUSAL,
            a->window,
            a->bias.cols / 2,
            view_divides(&a->k, 8) && view_divides(&a->v, 8) && a->head_dim % 8 == 0};
}

void cuda_attention(struct backend *b, const struct attention_args *a) {
    CHECK(a->head_dim <= ATTENTION_MAX_HEAD && a->kv_heads <= 65535);
    struct attention_shape shape = attention_shape_of(b, a);
    rows_zero_unwritten(b, a);
    attention_decode(b, a, shape);
    if (attention_fits_tensor(a))
        attention_tensor(b, a, shape);
    else
        attention_tiles(b, a, shape);
}
