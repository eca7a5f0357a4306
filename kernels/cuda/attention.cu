/* kernels/cuda/attention.cu: softmax attention over packed rows, without a matrix of scores: which span goes to which
 * kernel (attention.cuh). */
#include "kernels/cuda/attention.cuh"

/* Longest first: under a causal mask later tiles see more keys, and the last blocks to run should be short ones. */
const struct tile_piece *list_tiles(struct backend *b, const struct attention_args *a, int rows, int *n) {
    struct cuda *cuda = cuda_of(b);
    struct tile_piece *pieces = NULL;
    int group = a->heads / a->kv_heads, count = 0;
    for (int pass = 0; pass < 2; pass++) { /* count, then list */
        if (pass == 1) pieces = (struct tile_piece *)host_list_reserve(&cuda->pieces, (size_t)count * sizeof *pieces);
        count = 0;
        for (int i = 0; i < a->n_spans; i++) {
            if (a->spans[i].q_count <= 1 || a->spans[i].k_count == 0) continue;
            int tiles = (int)blocks_for((int64_t)a->spans[i].q_count * group, rows);
            for (int tile = tiles - 1; tile >= 0; tile--, count++)
                if (pass == 1) pieces[count] = {i, tile * rows};
        }
    }
    *n = count;
    return stage(b, pieces, (size_t)count);
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
static void zero_unwritten(struct backend *b, const struct attention_args *a) {
    int written = 0;
    for (int i = 0; i < a->n_spans; i++) written += a->spans[i].k_count > 0 ? a->spans[i].q_count : 0;
    if (written == a->out.rows || a->out.cols == 0) return;
    struct zero_command c = {a->out.data, (size_t)a->out.stride * sizeof(float), (size_t)a->out.cols * sizeof(float),
                             (size_t)a->out.rows};
    work_add(b, zero_run, &c, sizeof c);
}

void cuda_attention(struct backend *b, const struct attention_args *a) {
    CHECK(a->head_dim <= ATTENTION_MAX_HEAD && a->kv_heads <= 65535);
    struct attention_shape shape = {a->out,
                                    a->q,
                                    a->k,
                                    a->v,
                                    stage(b, a->spans, (size_t)a->n_spans),
                                    a->heads,
                                    a->kv_heads,
                                    a->head_dim,
                                    a->heads / a->kv_heads,
                                    a->scale,
                                    a->mask == MASK_CAUSAL,
                                    divides(&a->k, 8) && divides(&a->v, 8) && a->head_dim % 8 == 0};
    zero_unwritten(b, a);
    attend_decode(b, a, shape);
    if (fits_tensor_cores(a))
        attend_on_tensor_cores(b, a, shape);
    else
        attend_tiles(b, a, shape);
}
