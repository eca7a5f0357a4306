/* tools/bench/bench_decode.c: retro-bench decode, prefill and batch: tokens per second of a model
 * with random weights, against what this machine can read and multiply. */
#include "tools/bench/bench_model.h"

/* Rates and the machine's limits, a round of each by turns: on a shared host both change within
 * minutes. */
struct rounds {
    double prompt[BENCH_MAX_ROUNDS], tokens[BENCH_MAX_ROUNDS], read[BENCH_MAX_ROUNDS],
        multiply[BENCH_MAX_ROUNDS];
};

static enum status measure(struct rounds *rounds, struct bench_model *model,
                           const struct bench_options *options, const struct bench_load *load,
                           struct error *e) {
    struct bench_rates rates = {0};
    enum status status = bench_generate(&rates, model, load, e); /* touches every page */
    for (int i = 0; i < options->rounds && status == STATUS_OK; i++) {
        struct roofline roof = {0};
        status = roofline_measure(&roof, options->threads, e);
        if (status == STATUS_OK) status = bench_generate(&rates, model, load, e);
        rounds->read[i] = roof.read_gbps;
        rounds->multiply[i] = roof.gflops[bench_product_of(options->dtype)];
        rounds->prompt[i] = rates.prompt;
        rounds->tokens[i] = rates.tokens;
    }
    return status;
}

/* Two operations a weight and token; the output matrix is multiplied by each prompt's last row
 * only. */
static void report_prompt(struct rounds *rounds, const struct bench_options *options,
                          const struct bench_cost *cost, int prompt) {
    double rate = bench_print_rounds(options, "prefill", "tok/s", rounds->prompt, options->rounds);
    double gflops = 2e-9 * rate * (cost->row_weights + cost->logit_weights / prompt);
    bench_print(options, "prefill_gflops", "GFLOP/s", gflops);
    bench_print(options, "prefill_share_of_peak", "of the dot product's peak",
                gflops / bench_median(rounds->multiply, options->rounds));
}

static void report_tokens(struct rounds *rounds, const struct bench_options *options,
                          const struct bench_cost *cost, int sequences) {
    double rate = bench_print_rounds(options, "decode", "tok/s", rounds->tokens, options->rounds);
    double gbps = 1e-9 * rate / sequences * cost->read_bytes;
    bench_print(options, "decode_gbps", "GB/s", gbps);
    bench_print(options, "decode_share_of_read", "of read_gbps",
                gbps / bench_median(rounds->read, options->rounds));
}

static enum status run(const struct bench_options *options, struct bench_load load,
                       struct error *e) {
    struct bench_source source = bench_source_of(options);
    struct bench_model model;
    struct rounds rounds;
    if (options->sequences) load.sequences = options->sequences;
    if (options->prompt) load.prompt = options->prompt;
    if (options->tokens) load.tokens = options->tokens;
    if (bench_model_open(&model, &source, e)) return e->status;
    const struct model_info *info = model_info(model.model);
    struct bench_cost cost = bench_cost_of(info);
    bench_print_title(
        options,
        "%s %s, %d layers of %d, %.1f MB read a token; %d x %d of prompt, %d x %d decoded; %s",
        options->model_name, dtype_name(options->dtype), info->n_layers, info->hidden,
        1e-6 * cost.read_bytes, load.sequences, load.prompt, load.sequences, load.tokens,
        backend_describe(model.backend));
    enum status status = measure(&rounds, &model, options, &load, e);
    if (status == STATUS_OK && load.prompt > 0) report_prompt(&rounds, options, &cost, load.prompt);
    if (status == STATUS_OK && load.tokens > 0)
        report_tokens(&rounds, options, &cost, load.sequences);
    bench_model_close(&model);
    return status;
}

enum status bench_decode(const struct bench_options *options, struct error *e) {
    return run(options, (struct bench_load){.sequences = 1, .prompt = 0, .tokens = 64}, e);
}

enum status bench_prefill(const struct bench_options *options, struct error *e) {
    return run(options, (struct bench_load){.sequences = 1, .prompt = 512, .tokens = 0}, e);
}

enum status bench_batch(const struct bench_options *options, struct error *e) {
    struct bench_options named = *options;
    named.prefix = "batch.";
    return run(&named, (struct bench_load){.sequences = 16, .prompt = 16, .tokens = 32}, e);
}
