/* tools/bench/bench_decode.c: retro-bench decode, prefill and batch: tokens per second of a model with random weights,
 * against what this machine can read and multiply. */
#include "tools/bench/bench_model.h"

/* Rates and the machine's limits, a round of each by turns: on a shared host both change within minutes. */
struct rounds {
    double prompt[BENCH_MAX_ROUNDS], tokens[BENCH_MAX_ROUNDS], read[BENCH_MAX_ROUNDS], multiply[BENCH_MAX_ROUNDS];
};

static enum status measure(struct rounds *r, struct bench_model *m, const struct bench_options *o,
                           const struct bench_load *load, struct error *e) {
    struct bench_rates rates = {0};
    enum status status = bench_generate(&rates, m, load, e); /* touches every page */
    for (int i = 0; i < o->rounds && status == STATUS_OK; i++) {
        struct roofline roof = {0};
        status = roofline_measure(&roof, o->threads, e);
        if (status == STATUS_OK) status = bench_generate(&rates, m, load, e);
        r->read[i] = roof.read_gbps;
        r->multiply[i] = roof.gflops[bench_product_of(o->dtype)];
        r->prompt[i] = rates.prompt;
        r->tokens[i] = rates.tokens;
    }
    return status;
}

/* Two operations a weight and token; the output matrix is multiplied by each prompt's last row only. */
static void report_prompt(struct rounds *r, const struct bench_options *o, const struct bench_cost *cost, int prompt) {
    double rate = bench_print_rounds(o, "prefill", "tok/s", r->prompt, o->rounds);
    double gflops = 2e-9 * rate * (cost->row_weights + cost->logit_weights / prompt);
    bench_print(o, "prefill_gflops", "GFLOP/s", gflops);
    bench_print(o, "prefill_share_of_peak", "of the dot product's peak", gflops / bench_median(r->multiply, o->rounds));
}

static void report_tokens(struct rounds *r, const struct bench_options *o, const struct bench_cost *cost,
                          int sequences) {
    double rate = bench_print_rounds(o, "decode", "tok/s", r->tokens, o->rounds);
    double gbps = 1e-9 * rate / sequences * cost->read_bytes;
    bench_print(o, "decode_gbps", "GB/s", gbps);
    bench_print(o, "decode_share_of_read", "of read_gbps", gbps / bench_median(r->read, o->rounds));
}

static enum status run(const struct bench_options *o, struct bench_load load, struct error *e) {
    struct bench_source source = bench_source_of(o);
    struct bench_model m;
    struct rounds r;
    if (o->sequences) load.sequences = o->sequences;
    if (o->prompt) load.prompt = o->prompt;
    if (o->tokens) load.tokens = o->tokens;
    if (bench_model_open(&m, &source, e)) return e->status;
    const struct model_info *info = model_info(m.model);
    struct bench_cost cost = bench_cost_of(info);
    bench_print_title(o, "%s %s, %d layers of %d, %.1f MB read a token; %d x %d of prompt, %d x %d decoded; %s",
                      o->model_name, dtype_name(o->dtype), info->n_layers, info->hidden, 1e-6 * cost.read_bytes,
                      load.sequences, load.prompt, load.sequences, load.tokens, backend_describe(m.backend));
    enum status status = measure(&r, &m, o, &load, e);
    if (status == STATUS_OK && load.prompt > 0) report_prompt(&r, o, &cost, load.prompt);
    if (status == STATUS_OK && load.tokens > 0) report_tokens(&r, o, &cost, load.sequences);
    bench_model_close(&m);
    return status;
}

enum status bench_decode(const struct bench_options *o, struct error *e) {
    return run(o, (struct bench_load){.sequences = 1, .prompt = 0, .tokens = 64}, e);
}

enum status bench_prefill(const struct bench_options *o, struct error *e) {
    return run(o, (struct bench_load){.sequences = 1, .prompt = 512, .tokens = 0}, e);
}

enum status bench_batch(const struct bench_options *o, struct error *e) {
    struct bench_options named = *o;
    named.prefix = "batch.";
    return run(&named, (struct bench_load){.sequences = 16, .prompt = 16, .tokens = 32}, e);
}
