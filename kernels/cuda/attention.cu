/* kernels/cuda/attention.cu: softmax attention over packed rows, without a matrix of scores: which
 * span goes to which kernel (attention.cuh). */
#include "kernels/cuda/attention.cuh"

#include <string.h>

/* Steps by a quarter. */
int count_pad(int n) {
    int step = 1;
    while (4 * step < n) step *= 2;
    return (n + step - 1) / step * step;
}

static bool runs_in_tiles(const struct attention_args *args, int i, bool tensor) {
    const struct attention_span *span = &args->spans[i];
    return span->q_count > 1 && span->k_count > 0 && attention_fits_tensor(args, span) == tensor;
}

/* Longest first: under a causal mask later tiles see more keys, and the last blocks to run should
 * be short ones. */
const struct tile_piece *tiles_list(struct backend *backend, const struct attention_args *args,
                                    int rows, bool tensor, int *n) {
    struct cuda *cuda = cuda_of(backend);
    struct tile_piece *pieces = NULL;
    int group = args->heads / args->kv_heads, count = 0;
    for (int pass = 0; pass < 2; pass++) { /* count, then list */
        if (pass == 1)
            pieces = (struct tile_piece *)host_list_reserve(&cuda->pieces,
                                                            (size_t)count * sizeof *pieces);
        count = 0;
        for (int i = 0; i < args->n_spans; i++) {
            if (!runs_in_tiles(args, i, tensor)) continue;
            int tiles = (int)blocks_for((int64_t)args->spans[i].q_count * group, rows);
            for (int tile = tiles - 1; tile >= 0; tile--) {
                if (pass == 1) pieces[count] = {i, tile * rows};
                count++;
            }
        }
    }
    *n = count;
    return array_stage(backend, pieces, (size_t)count);
}

struct zero_command {
    void *data;
    size_t step, row, rows;
};

static void zero_run(struct backend *backend, const void *arguments) {
    const struct zero_command *command = (const struct zero_command *)arguments;
    cuda_ok(backend,
            cudaMemset2DAsync(command->data, command->step, 0, command->row, command->rows,
                              cuda_of(backend)->stream),
            "zeroing rows");
}

/* Rows that no span writes are zeros; the spans overlap in no row, so it is enough to count. */
static void rows_zero_unwritten(struct backend *backend, const struct attention_args *args) {
    int written = 0;
    for (int i = 0; i < args->n_spans; i++)
        written += args->spans[i].k_count > 0 ? args->spans[i].q_count : 0;
    if (written == args->out.rows || args->out.cols == 0) return;
    struct zero_command command = {args->out.data, (size_t)args->out.stride * sizeof(float),
                                   (size_t)args->out.cols * sizeof(float), (size_t)args->out.rows};
    work_add(backend, zero_run, &command, sizeof command);
}

/* The block tables on the device, padded: they grow as sequences do, and what is staged after them
 * in equal steps is to lie at equal places (graph.cu). */
static const int32_t *blocks_stage(struct backend *backend, const struct attention_args *args) {
    struct cuda *cuda = cuda_of(backend);
    if (args->blocks == NULL) return NULL;
    int n = count_pad(args->n_blocks);
    int32_t *padded = (int32_t *)host_list_reserve(&cuda->blocks, (size_t)n * sizeof *padded);
    memcpy(padded, args->blocks, (size_t)args->n_blocks * sizeof *padded);
    memset(padded + args->n_blocks, 0, (size_t)(n - args->n_blocks) * sizeof *padded);
    return array_stage(backend, padded, (size_t)n);
}

struct attention_shape attention_shape_of(struct backend *backend,
                                          const struct attention_args *args) {
    return {args->out,
            args->q,
            args->k,
            args->v,
            array_stage(backend, args->spans, (size_t)args->n_spans),
            blocks_stage(backend, args),
            (const float *)args->bias.data,
            args->bias.stride,
            args->sinks,
            args->heads,
            args->kv_heads,
            args->head_dim,
            args->heads / args->kv_heads,
            args->scale,
            args->softcap,
            args->mask == MASK_CAUSAL,
            args->window,
            args->bias.cols / 2,
            view_divides(&args->k, 8) && view_divides(&args->v, 8) && args->head_dim % 8 == 0};
}

void cuda_attention(struct backend *backend, const struct attention_args *args) {
    CHECK(args->head_dim <= CUDA_MAX_HEAD && args->kv_heads <= 65535);
    CHECK(args->distances.by_query.data == NULL); /* model.c refuses such models */
    struct attention_shape shape = attention_shape_of(backend, args);
    rows_zero_unwritten(backend, args);
    attention_decode(backend, args, shape);
    attention_tensor(backend, args, shape);
    attention_tiles(backend, args, shape);
}
