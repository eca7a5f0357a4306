/* tools/bench/bench_device.c: retro-bench device: a device's ceilings, and what models with random
 * weights reach of them, as JSON lines. tests/cuda/peer_torch.py prints the same figures of PyTorch
 * under the same names.
 *
 * decode.B and prefill.N are tokens per second. step.closing and step.plain are milliseconds of a
 * step of one sequence that closes a chunk (its neighbours are encoded) and of one that does not,
 * with the draw of the next token. The model's name says so where weights are not bf16; quantised
 * and fp8 ones are for decoding few sequences, and that is what is measured of them. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "tools/bench/bench_model.h"
#if HAVE_CUDA
#include "kernels/cuda/open.h"
#endif

enum {
    ROUNDS = 5,
    PROMPT = 128,
    TOKENS = 128,
    PREFILLS = 4, /* prompts, one after the other, in a round */
    MOST_ROWS = 2048,
    MOST_SEQUENCES = 64,
    COPY_BYTES = 1 << 30,
    SIDE = 8192
};

struct device_bench {
    const struct bench_options *o;
    const char *device;
    char shape[64]; /* the folder's last name, and the weights' type; "" for the device itself */
    struct bench_model model;
    struct session_pool *pool;
    struct session *sessions[MOST_SEQUENCES];
    int32_t ids[MOST_SEQUENCES]; /* the token that each sequence drew */
    int n;
    /* The input of steps: the same made-up tokens as prompt and as every neighbour. */
    int32_t tokens[MOST_ROWS];
    struct neighbor_tokens neighbors[MOST_ROWS];
};

static void report(const struct device_bench *bench, const char *name, double value,
                   const char *unit) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin_spaced(&w, &line);
    put_object(&w);
    put_key_string(&w, "by", bench->o->eager ? "retro-server eager" : "retro-server");
    put_key_string(&w, "model", bench->shape[0] ? bench->shape : NULL);
    put_key_string(&w, "name", name);
    put_key(&w, "value");
    put_rounded(&w, value, 6);
    put_key_string(&w, "unit", unit);
    put_object_end(&w);
    put_line(&w, stdout);
    fflush(stdout);
    buffer_free(&line);
}

/* The CPU has its own roofline command. */
static enum status measure_limits(const struct device_bench *bench, struct error *e) {
#if HAVE_CUDA
    struct backend *b;
    struct cuda_limits limits;
    if (backend_open(&b, bench->device, NULL, e)) return e->status;
    enum status status = strncmp(bench->device, "cuda", 4) == 0
                             ? cuda_measure(b, COPY_BYTES, SIDE, &limits, e)
                             : error_set(e, STATUS_INVALID, "--limits is for GPUs");
    backend_close(b);
    if (status == STATUS_OK) {
        report(bench, "copy", limits.copy_gbps, "GB/s");
        report(bench, "gemm", limits.gemm_tflops, "TFLOP/s");
    }
    return status;
#else
    return error_set(e, STATUS_UNSUPPORTED, "%s: --limits needs a build with CUDA", bench->device);
#endif
}

static void close_sessions(struct device_bench *bench) {
    for (int i = 0; i < bench->n; i++) session_close(bench->sessions[i]);
    bench->n = 0;
    session_pool_close(bench->pool);
    bench->pool = NULL;
}

static enum status open_sessions(struct device_bench *bench, int n, int max_tokens,
                                 struct error *e) {
    const struct model_info *info = model_info(bench->model.model);
    struct session_limits limits = {.max_sessions = n,
                                    .max_tokens = max_tokens,
                                    .max_step_rows = MOST_ROWS,
                                    .max_logit_rows = n,
                                    .max_neighbors = max_int(1, info->num_neighbors),
                                    .kv_dtype = info->cache_dtype};
    struct grid grid =
        info->chunk_length ? grid_make(GRID_START, 0, info->chunk_length) : (struct grid){1, 1};
    if (session_pool_open(&bench->pool, bench->model.model, &limits, e)) return e->status;
    for (bench->n = 0; bench->n < n; bench->n++)
        if (session_open(&bench->sessions[bench->n], bench->pool, grid, e)) return e->status;
    return backend_sync(bench->model.backend, e); /* memory is zeroed by then */
}

static void fill_tokens(struct device_bench *bench) {
    const struct model_info *info = model_info(bench->model.model);
    CHECK(info->num_neighbors * info->retrieved_length <= MOST_ROWS);
    for (int i = 0; i < MOST_ROWS; i++) {
        bench->tokens[i] = (i * 7 + 1) % info->vocab;
        bench->neighbors[i] = (struct neighbor_tokens){bench->tokens, info->num_neighbors};
    }
}

/* Sequences [first, first + n) take `rows` tokens each, made-up ones for a prompt and else what
 * they drew; each draws its next, greedily. Chunks that close have as many neighbours as the model
 * was trained with. */
static enum status step(struct device_bench *bench, int first, int n, int rows, struct error *e) {
    static const struct sample_params greedy[MOST_SEQUENCES] = {{.top_p = 1}};
    struct step_item items[MOST_SEQUENCES];
    struct tensor logits;
    float logprobs[MOST_SEQUENCES];
    const struct model_info *info = model_info(bench->model.model);
    CHECK(rows <= MOST_ROWS);
    for (int i = 0; i < n; i++)
        items[i] = (struct step_item){.session = bench->sessions[first + i],
                                      .tokens = rows == 1 ? &bench->ids[first + i] : bench->tokens,
                                      .n_tokens = rows,
                                      .neighbors = bench->neighbors,
                                      .n_logits = 1};
    if (session_step(bench->pool, items, n, &logits, e)) return e->status;
    backend_sample(bench->model.backend, &(struct sample_args){logits, greedy, info->vocab,
                                                               bench->ids + first, logprobs});
    return backend_sync(bench->model.backend, e);
}

static enum status prompts(struct device_bench *bench, int prompt, struct error *e) {
    int together = max_int(1, MOST_ROWS / prompt);
    enum status status = STATUS_OK;
    for (int first = 0; first < bench->n && status == STATUS_OK; first += together)
        status = step(bench, first, min_int(together, bench->n - first), prompt, e);
    return status;
}

static enum status decode_round(struct device_bench *bench, int sequences, double *rate,
                                struct error *e) {
    enum status status = open_sessions(bench, sequences, PROMPT + TOKENS, e);
    if (status == STATUS_OK) status = prompts(bench, PROMPT, e);
    double start = time_now();
    for (int i = 0; i < TOKENS && status == STATUS_OK; i++)
        status = step(bench, 0, sequences, 1, e);
    *rate = sequences * TOKENS / (time_now() - start);
    return status;
}

static enum status prefill_round(struct device_bench *bench, int prompt, double *rate,
                                 struct error *e) {
    enum status status = open_sessions(bench, PREFILLS, prompt, e);
    double start = time_now();
    for (int i = 0; i < PREFILLS && status == STATUS_OK; i++) status = step(bench, i, 1, prompt, e);
    *rate = PREFILLS * prompt / (time_now() - start);
    return status;
}

/* `round` takes a number of sequences or a length. Each round runs on fresh sequences, so that
 * every one of them does the same work; the first two warm up: then steps are graphs. */
static enum status measure_load(struct device_bench *device_bench, const char *kind, int size,
                                enum status (*round)(struct device_bench *device_bench, int size,
                                                     double *rate, struct error *e),
                                struct error *e) {
    enum { WARM = 2 };
    double rates[WARM + ROUNDS];
    char name[40];
    enum status status = STATUS_OK;
    for (int i = 0; i < WARM + ROUNDS && status == STATUS_OK; i++) {
        status = round(device_bench, size, &rates[i], e);
        close_sessions(device_bench);
    }
    if (status) return status;
    snprintf(name, sizeof name, "%s.%d", kind, size);
    report(device_bench, name, bench_median(rates + WARM, ROUNDS), "tok/s");
    return STATUS_OK;
}

/* One sequence, eight chunks: the middle of the steps of each kind. */
static enum status measure_closing(struct device_bench *bench, struct error *e) {
    enum { CHUNKS = 8, MOST_CHUNK = 256 };
    int m = model_info(bench->model.model)->chunk_length, n[2] = {0, 0};
    double seconds[2][CHUNKS * MOST_CHUNK];
    CHECK(m <= MOST_CHUNK);
    enum status status = open_sessions(bench, 1, (CHUNKS + 1) * m, e);
    if (status == STATUS_OK) status = prompts(bench, m, e);
    for (int i = 0; i < CHUNKS * m && status == STATUS_OK; i++) {
        int closes = session_closes(bench->sessions[0], 1);
        double start = time_now();
        status = step(bench, 0, 1, 1, e);
        seconds[closes][n[closes]++] = time_now() - start;
    }
    close_sessions(bench);
    if (status) return status;
    report(bench, "step.plain", 1e3 * bench_median(seconds[0], n[0]), "ms");
    report(bench, "step.closing", 1e3 * bench_median(seconds[1], n[1]), "ms");
    return STATUS_OK;
}

static enum status measure_shape(struct device_bench *bench, const char *folder, struct error *e) {
    static const int batches[] = {1, 8, MOST_SEQUENCES}, lengths[] = {512, MOST_ROWS};
    enum dtype dtype = bench->o->dtype;
    bool few = dtype_quantised(dtype) || dtype == DTYPE_FP8;
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    snprintf(bench->shape, sizeof bench->shape, "%.48s%s%s", name, dtype == DTYPE_BF16 ? "" : "-",
             dtype == DTYPE_BF16 ? "" : dtype_name(dtype));
    struct bench_source source = bench_source_of(bench->o);
    source.folder = folder;
    source.device = bench->device;
    source.backend.eager = bench->o->eager;
    double start = time_now();
    enum status status = bench_model_open(&bench->model, &source, e);
    if (status) return status;
    const struct model_info *info = model_info(bench->model.model);
    report(bench, "load", time_now() - start, "s");
    report(bench, "row_weights", bench_cost_of(info).row_weights, "");
    report(bench, "decode_bytes", (double)info->decode_bytes, "B");
    fill_tokens(bench);
    for (size_t i = 0; i < (few ? 2 : ARRAY_COUNT(batches)) && status == STATUS_OK; i++)
        status = measure_load(bench, "decode", batches[i], decode_round, e);
    for (size_t i = 0; i < (few ? 0 : ARRAY_COUNT(lengths)) && status == STATUS_OK; i++)
        status = measure_load(bench, "prefill", lengths[i], prefill_round, e);
    if (status == STATUS_OK && info->chunk_length) status = measure_closing(bench, e);
    bench_model_close(&bench->model);
    return status;
}

/* Without a shape there are only the limits to measure. */
enum status bench_device(const struct bench_options *options, struct error *e) {
    struct device_bench *bench = xcalloc(1, sizeof *bench);
    bench->o = options;
    bench->device = options->device ? options->device : "cuda";
    enum status status =
        options->limits || options->n_folders == 0 ? measure_limits(bench, e) : STATUS_OK;
    for (int i = 0; i < options->n_folders && status == STATUS_OK; i++)
        status = measure_shape(bench, options->folders[i], e);
    free(bench);
    return status;
}
