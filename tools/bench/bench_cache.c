/* tools/bench/bench_cache.c: retro-bench cache: tokens behind many rows, with keys and values of 16
 * and of 8 bits. The rows are zeros, since speed does not depend on them, and nobody waits for a
 * prompt. Types take turns: on a shared host rates change within minutes. */
#include <stdlib.h>

#include "tools/bench/bench_model.h"

enum { TYPES = 2 };
static const enum dtype types[TYPES] = {DTYPE_F16, DTYPE_INT8};

/* One sequence whose keys and values have one of the types. */
struct timeline {
    struct session_pool *pool;
    struct session *session;
    double rates[BENCH_MAX_ROUNDS];
};

struct cache_bench {
    const struct bench_options *options;
    struct bench_model model;
    struct timeline timelines[TYPES];
    int prompt, tokens; /* rows before; tokens of a round */
};

static enum status open_timeline(struct cache_bench *bench, struct timeline *timeline,
                                 enum dtype dtype, struct error *e) {
    int rounds = bench->options->rounds + 1;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = bench->prompt + rounds * bench->tokens,
                                    .max_step_rows = 1,
                                    .max_logit_rows = 1,
                                    .kv_dtype = dtype};
    if (session_pool_open(&timeline->pool, bench->model.model, &limits, e)) return e->status;
    return session_open(&timeline->session, timeline->pool, (struct grid){1, 1}, e);
}

static enum status put_rows(struct cache_bench *bench, struct timeline *timeline, struct error *e) {
    char *image = xcalloc(1, session_image_bytes(timeline->pool, bench->prompt));
    int32_t *ids = xcalloc((size_t)bench->prompt, sizeof *ids);
    enum status status = session_image_put(timeline->session, ids, bench->prompt, image, e);
    free(image);
    free(ids);
    return status;
}

/* Tokens a second, one a step. */
static enum status run_tokens(struct cache_bench *bench, struct timeline *timeline, double *rate,
                              struct error *e) {
    static const int32_t id = 1;
    double start = time_now();
    for (int i = 0; i < bench->tokens; i++) {
        struct tensor logits;
        struct step_item item = {
            .session = timeline->session, .tokens = &id, .n_tokens = 1, .n_logits = 1};
        if (session_step(timeline->pool, &item, 1, &logits, e)) return e->status;
    }
    *rate = bench->tokens / (time_now() - start);
    return STATUS_OK;
}

/* All that comes before the first round, which touches every page. */
static enum status begin(struct cache_bench *bench, int type, struct error *e) {
    struct timeline *timeline = &bench->timelines[type];
    double warm;
    if (open_timeline(bench, timeline, types[type], e) || put_rows(bench, timeline, e))
        return e->status;
    return run_tokens(bench, timeline, &warm, e);
}

static enum status run_rounds(struct cache_bench *bench, struct error *e) {
    int rounds = bench->options->rounds;
    double ratios[BENCH_MAX_ROUNDS];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < TYPES; i++) {
            struct timeline *timeline = &bench->timelines[(i + round) % TYPES];
            if (run_tokens(bench, timeline, &timeline->rates[round], e)) return e->status;
        }
        ratios[round] = bench->timelines[1].rates[round] / bench->timelines[0].rates[round];
    }
    for (int i = 0; i < TYPES; i++) {
        char name[40];
        snprintf(name, sizeof name, "decode_%s", dtype_name(types[i]));
        bench_print_rounds(bench->options, name, "tok/s", bench->timelines[i].rates, rounds);
    }
    bench_print_rounds(bench->options, "decode_int8_of_f16", "times as fast", ratios, rounds);
    return STATUS_OK;
}

static void close_all(struct cache_bench *bench) {
    for (int i = 0; i < TYPES; i++) {
        session_close(bench->timelines[i].session);
        session_pool_close(bench->timelines[i].pool);
    }
    bench_model_close(&bench->model);
}

static enum status measure(struct cache_bench *bench, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < TYPES && status == STATUS_OK; i++) status = begin(bench, i, e);
    if (status == STATUS_OK) status = run_rounds(bench, e);
    return status;
}

enum status bench_cache(const struct bench_options *options, struct error *e) {
    struct bench_source source = bench_source_of(options);
    struct cache_bench bench = {.options = options,
                                .prompt = options->prompt ? options->prompt : 8000,
                                .tokens = options->tokens ? options->tokens : 16};
    if (bench_model_open(&bench.model, &source, e)) return e->status;
    const struct model_info *info = model_info(bench.model.model);
    bench_print_title(options, "%s %s, %d layers of %d; behind %d rows, %d tokens a round; %s",
                      options->model_name, dtype_name(options->dtype), info->n_layers, info->hidden,
                      bench.prompt, bench.tokens, backend_describe(bench.model.backend));
    bool plain = info->chunk_length == 0 && info->writes && !info->reads_source;
    enum status status = plain && info->cache_narrows
                             ? measure(&bench, e)
                             : error_set(e, STATUS_UNSUPPORTED,
                                         "cache measures decoders without cross attention, whose "
                                         "keys and values can be int8");
    close_all(&bench);
    return status;
}
