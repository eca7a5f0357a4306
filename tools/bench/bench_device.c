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

static void report(const struct device_bench *t, const char *name, double value, const char *unit) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin_spaced(&w, &line);
    put_object(&w);
    put_key_string(&w, "by", t->o->eager ? "retro-server eager" : "retro-server");
    put_key_string(&w, "model", t->shape[0] ? t->shape : NULL);
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
static enum status measure_limits(const struct device_bench *t, struct error *e) {
#if HAVE_CUDA
    struct backend *b;
    struct cuda_limits limits;
    if (backend_open(&b, t->device, NULL, e)) return e->status;
    enum status status = strncmp(t->device, "cuda", 4) == 0 ? cuda_measure(b, COPY_BYTES, SIDE, &limits, e)
                                                            : error_set(e, STATUS_INVALID, "--limits is for GPUs");
    backend_close(b);
    if (status == STATUS_OK) {
        report(t, "copy", limits.copy_gbps, "GB/s");
        report(t, "gemm", limits.gemm_tflops, "TFLOP/s");
    }
    return status;
#else
    return error_set(e, STATUS_UNSUPPORTED, "%s: --limits needs a build with CUDA", t->device);
#endif
}

static void close_sessions(struct device_bench *t) {
    for (int i = 0; i < t->n; i++) session_close(t->sessions[i]);
    t->n = 0;
    session_pool_close(t->pool);
    t->pool = NULL;
}

static enum status open_sessions(struct device_bench *t, int n, int max_tokens, struct error *e) {
    const struct model_info *info = model_info(t->model.model);
    struct session_limits limits = {.max_sessions = n,
                                    .max_tokens = max_tokens,
                                    .max_step_rows = MOST_ROWS,
                                    .max_logit_rows = n,
                                    .max_neighbors = max_int(1, info->num_neighbors),
                                    .kv_dtype = info->cache_dtype};
    struct grid grid = info->chunk_length ? grid_make(GRID_START, 0, info->chunk_length) : (struct grid){1, 1};
    if (session_pool_open(&t->pool, t->model.model, &limits, e)) return e->status;
    for (t->n = 0; t->n < n; t->n++)
        if (session_open(&t->sessions[t->n], t->pool, grid, e)) return e->status;
    return backend_sync(t->model.backend, e); /* memory is zeroed by then */
}

static void fill_tokens(struct device_bench *t) {
    const struct model_info *info = model_info(t->model.model);
    CHECK(info->num_neighbors * info->retrieved_length <= MOST_ROWS);
    for (int i = 0; i < MOST_ROWS; i++) {
        t->tokens[i] = (i * 7 + 1) % info->vocab;
        t->neighbors[i] = (struct neighbor_tokens){t->tokens, info->num_neighbors};
    }
}

/* Sequences [first, first + n) take `rows` tokens each, made-up ones for a prompt and else what
 * they drew; each draws its next, greedily. Chunks that close have as many neighbours as the model
 * was trained with. */
static enum status step(struct device_bench *t, int first, int n, int rows, struct error *e) {
    static const struct sample_params greedy[MOST_SEQUENCES] = {{.top_p = 1}};
    struct step_item items[MOST_SEQUENCES];
    struct tensor logits;
    float logprobs[MOST_SEQUENCES];
    const struct model_info *info = model_info(t->model.model);
    CHECK(rows <= MOST_ROWS);
    for (int i = 0; i < n; i++)
        items[i] = (struct step_item){.session = t->sessions[first + i],
                                      .tokens = rows == 1 ? &t->ids[first + i] : t->tokens,
                                      .n_tokens = rows,
                                      .neighbors = t->neighbors,
                                      .n_logits = 1};
    if (session_step(t->pool, items, n, &logits, e)) return e->status;
    backend_sample(t->model.backend, &(struct sample_args){logits, greedy, info->vocab, t->ids + first, logprobs});
    return backend_sync(t->model.backend, e);
}

static enum status prompts(struct device_bench *t, int prompt, struct error *e) {
    int together = max_int(1, MOST_ROWS / prompt);
    enum status status = STATUS_OK;
    for (int first = 0; first < t->n && status == STATUS_OK; first += together)
        status = step(t, first, min_int(together, t->n - first), prompt, e);
    return status;
}

static enum status decode_round(struct device_bench *t, int sequences, double *rate, struct error *e) {
    enum status status = open_sessions(t, sequences, PROMPT + TOKENS, e);
    if (status == STATUS_OK) status = prompts(t, PROMPT, e);
    double start = time_now();
    for (int i = 0; i < TOKENS && status == STATUS_OK; i++) status = step(t, 0, sequences, 1, e);
    *rate = sequences * TOKENS / (time_now() - start);
    return status;
}

static enum status prefill_round(struct device_bench *t, int prompt, double *rate, struct error *e) {
    enum status status = open_sessions(t, PREFILLS, prompt, e);
    double start = time_now();
    for (int i = 0; i < PREFILLS && status == STATUS_OK; i++) status = step(t, i, 1, prompt, e);
    *rate = PREFILLS * prompt / (time_now() - start);
    return status;
}

/* `round` takes a number of sequences or a length. Each round runs on fresh sequences, so that
 * every one of them does the same work; the first two warm up: then steps are graphs. */
static enum status measure_load(struct device_bench *t, const char *kind, int size,
                                enum status (*round)(struct device_bench *t, int size, double *rate, struct error *e),
                                struct error *e) {
    enum { WARM = 2 };
    double rates[WARM + ROUNDS];
    char name[40];
    enum status status = STATUS_OK;
    for (int i = 0; i < WARM + ROUNDS && status == STATUS_OK; i++) {
        status = round(t, size, &rates[i], e);
        close_sessions(t);
    }
    if (status) return status;
    snprintf(name, sizeof name, "%s.%d", kind, size);
    report(t, name, bench_median(rates + WARM, ROUNDS), "tok/s");
    return STATUS_OK;
}

/* One sequence, eight chunks: the middle of the steps of each kind. */
static enum status measure_closing(struct device_bench *t, struct error *e) {
    enum { CHUNKS = 8, MOST_CHUNK = 256 };
    int m = model_info(t->model.model)->chunk_length, n[2] = {0, 0};
    double seconds[2][CHUNKS * MOST_CHUNK];
    CHECK(m <= MOST_CHUNK);
    enum status status = open_sessions(t, 1, (CHUNKS + 1) * m, e);
    if (status == STATUS_OK) status = prompts(t, m, e);
    for (int i = 0; i < CHUNKS * m && status == STATUS_OK; i++) {
        int closes = session_closes(t->sessions[0], 1);
        double start = time_now();
        status = step(t, 0, 1, 1, e);
        seconds[closes][n[closes]++] = time_now() - start;
    }
    close_sessions(t);
    if (status) return status;
    report(t, "step.plain", 1e3 * bench_median(seconds[0], n[0]), "ms");
    report(t, "step.closing", 1e3 * bench_median(seconds[1], n[1]), "ms");
    return STATUS_OK;
}

static enum status measure_shape(struct device_bench *t, const char *folder, struct error *e) {
    static const int batches[] = {1, 8, MOST_SEQUENCES}, lengths[] = {512, MOST_ROWS};
    enum dtype dtype = t->o->dtype;
    bool few = dtype_quantised(dtype) || dtype == DTYPE_FP8;
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    snprintf(t->shape, sizeof t->shape, "%.48s%s%s", name, dtype == DTYPE_BF16 ? "" : "-",
             dtype == DTYPE_BF16 ? "" : dtype_name(dtype));
    struct bench_source source = bench_source_of(t->o);
    source.folder = folder;
    source.device = t->device;
    source.backend.eager = t->o->eager;
    double start = time_now();
    enum status status = bench_model_open(&t->model, &source, e);
    if (status) return status;
    const struct model_info *info = model_info(t->model.model);
    report(t, "load", time_now() - start, "s");
    report(t, "row_weights", bench_cost_of(info).row_weights, "");
    report(t, "decode_bytes", (double)info->decode_bytes, "B");
    fill_tokens(t);
    for (size_t i = 0; i < (few ? 2 : ARRAY_COUNT(batches)) && status == STATUS_OK; i++)
        status = measure_load(t, "decode", batches[i], decode_round, e);
    for (size_t i = 0; i < (few ? 0 : ARRAY_COUNT(lengths)) && status == STATUS_OK; i++)
        status = measure_load(t, "prefill", lengths[i], prefill_round, e);
    if (status == STATUS_OK && info->chunk_length) status = measure_closing(t, e);
    bench_model_close(&t->model);
    return status;
}

/* Without a shape there are only the limits to measure. */
enum status bench_device(const struct bench_options *o, struct error *e) {
    struct device_bench *t = xcalloc(1, sizeof *t);
    t->o = o;
    t->device = o->device ? o->device : "cuda";
    enum status status = o->limits || o->n_folders == 0 ? measure_limits(t, e) : STATUS_OK;
    for (int i = 0; i < o->n_folders && status == STATUS_OK; i++) status = measure_shape(t, o->folders[i], e);
    free(t);
    return status;
}
