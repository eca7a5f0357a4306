/* tools/bench_decode.c: retro-bench decode, prefill and batch: tokens per second with random weights in the shape of a
 * model folder's config.json, against what this machine can read and multiply. */
#include <stdio.h>

#include "tools/bench.h"
#include "tools/bench_model.h"

enum { ROUNDS = 5 };

static const char usage_text[] =
    " [--dtype f32|f16|bf16|int8|int4] [--threads N] [--sequences N] [--prompt N] [--tokens N] [--json] FOLDER\n"
    "  FOLDER holds config.json; its weights are not read, random ones of that shape are made.\n";

/* Rates and the machine's limits, a round of each by turns: on a shared host both change within minutes. */
struct rounds {
    double prompt[ROUNDS], tokens[ROUNDS], read[ROUNDS], multiply[ROUNDS];
};

static enum status measure(struct rounds *r, struct bench_model *m, const struct bench_options *o, struct error *e) {
    struct bench_rates rates = {0};
    enum status status = bench_generate(&rates, m, &o->load, e); /* touches every page */
    for (int i = 0; i < ROUNDS && status == STATUS_OK; i++) {
        struct roofline roof = {0};
        status = roofline_measure(&roof, backend_describe(m->backend), o->threads, e);
        if (status == STATUS_OK) status = bench_generate(&rates, m, &o->load, e);
        r->read[i] = roof.read_gbps;
        r->multiply[i] = roof.gflops[bench_product_of(o->dtype)];
        r->prompt[i] = rates.prompt;
        r->tokens[i] = rates.tokens;
    }
    return status;
}

/* Two operations a weight and token: the matrices but not attention. */
static void report_prompt(struct rounds *r, const struct bench_options *o, const struct model_info *info) {
    double rate = bench_median(r->prompt, ROUNDS), peak = bench_median(r->multiply, ROUNDS);
    double weights = (double)info->decode_bytes / (double)matrix_bytes(o->dtype, QUANTISE_BLOCK) * QUANTISE_BLOCK;
    double gflops = 2e-9 * rate * weights;
    if (o->json) {
        bench_print_json("prefill", o->threads, rate, "tok/s");
        bench_print_json("prefill_gflops", o->threads, gflops, "GFLOP/s");
        bench_print_json("prefill_share_of_peak", o->threads, gflops / peak, "of the dot product's peak");
    } else {
        printf("  prompt %d x %d: %.1f tok/s (%.1f .. %.1f), %.0fe9 operations/s = %.0f %% of what %s reaches, %.0f\n",
               o->load.sequences, o->load.prompt, rate, r->prompt[0], r->prompt[ROUNDS - 1], gflops,
               100 * gflops / peak, bench_product_name(bench_product_of(o->dtype)), peak);
    }
}

static void report_tokens(struct rounds *r, const struct bench_options *o, const struct model_info *info) {
    double rate = bench_median(r->tokens, ROUNDS), read = bench_median(r->read, ROUNDS);
    double used = rate / o->load.sequences * (double)info->decode_bytes * 1e-9;
    if (o->json) {
        bench_print_json("decode", o->threads, rate, "tok/s");
        bench_print_json("decode_gbps", o->threads, used, "GB/s");
        bench_print_json("decode_share_of_read", o->threads, used / read, "of read_gbps");
    } else {
        printf("  decode %d x %d: %.1f tok/s (%.1f .. %.1f), %.1f GB/s = %.0f %% of the %.1f GB/s this machine reads\n",
               o->load.sequences, o->load.tokens, rate, r->tokens[0], r->tokens[ROUNDS - 1], used, 100 * used / read,
               read);
    }
}

static int run(int argc, char **argv, struct bench_load load) {
    struct bench_options o = {.dtype = DTYPE_BF16, .threads = bench_threads(), .load = load};
    struct bench_model m;
    struct rounds r;
    struct error e = {0};
    if (!bench_parse(argc, argv, &o)) {
        fprintf(stderr, "usage: retro-bench %s%s", argv[0], usage_text);
        return 2;
    }
    enum status status =
        bench_model_open(&m, o.folder, "cpu", o.dtype, &(struct backend_options){.threads = o.threads}, &e);
    if (status == STATUS_OK) {
        const struct model_info *info = model_info(m.model);
        if (!o.json)
            printf("%s, %s, %d x %d, %.1f MB read a token\n", backend_describe(m.backend), dtype_name(o.dtype),
                   info->n_layers, info->hidden, (double)info->decode_bytes * 1e-6);
        status = measure(&r, &m, &o, &e);
        if (status == STATUS_OK && o.load.prompt > 0) report_prompt(&r, &o, info);
        if (status == STATUS_OK && o.load.tokens > 0) report_tokens(&r, &o, info);
        bench_model_close(&m);
    }
    if (status) fprintf(stderr, "retro-bench %s: %s\n", argv[0], e.text);
    return status != STATUS_OK;
}

int bench_decode(int argc, char **argv) {
    return run(argc, argv, (struct bench_load){.sequences = 1, .prompt = 0, .tokens = 64});
}

int bench_prefill(int argc, char **argv) {
    return run(argc, argv, (struct bench_load){.sequences = 1, .prompt = 512, .tokens = 0});
}

int bench_batch(int argc, char **argv) {
    return run(argc, argv, (struct bench_load){.sequences = 16, .prompt = 16, .tokens = 32});
}
