/* tools/bench/bench_peers.c: retro-bench peers and turns: the figures that other programs'
 * benchmarks print for a model of the same shape and weight type, as JSON lines of the same names;
 * all of them, or each when it is asked for. */
#include <stdio.h>
#include <string.h>

#include "tools/bench/bench_model.h"

/* The names are NULL where the load has no prompt, or nothing after it. */
static const struct peer_test {
    const char *prompt, *tokens;
    struct bench_load load;
} peer_tests[] = {{"pp64", NULL, {.sequences = 1, .prompt = 64, .tokens = 0}},
                  {"pp512", NULL, {.sequences = 1, .prompt = 512, .tokens = 0}},
                  {NULL, "tg64", {.sequences = 1, .prompt = 0, .tokens = 64}},
                  {"batch16.pp", "batch16.tg", {.sequences = 16, .prompt = 16, .tokens = 32}}};

static enum status measure_test(struct bench_model *model, const struct peer_test *test,
                                const struct bench_options *options, struct error *e) {
    struct bench_rates rates = {0};
    if (bench_generate(&rates, model, &test->load, e)) return e->status;
    if (test->prompt != NULL) bench_print(options, test->prompt, "tok/s", rates.prompt);
    if (test->tokens != NULL) bench_print(options, test->tokens, "tok/s", rates.tokens);
    return STATUS_OK;
}

static enum status open_warm(struct bench_model *model, const struct bench_options *options,
                             struct error *e) {
    struct bench_source source = bench_source_of(options);
    struct bench_rates rates = {0};
    if (bench_model_open(model, &source, e)) return e->status;
    enum status status =
        bench_generate(&rates, model, &peer_tests[0].load, e); /* touches every page */
    if (status != STATUS_OK) bench_model_close(model);
    return status;
}

enum status bench_peers(const struct bench_options *options, struct error *e) {
    struct bench_options lines = *options;
    struct bench_model model;
    lines.json = true;
    enum status status = open_warm(&model, options, e);
    if (status != STATUS_OK) return status;
    for (size_t i = 0; i < ARRAY_COUNT(peer_tests) && status == STATUS_OK; i++)
        status = measure_test(&model, &peer_tests[i], &lines, e);
    bench_model_close(&model);
    return status;
}

static bool same_name(const char *name, const char *asked) {
    return name != NULL && strcmp(name, asked) == 0;
}

/* One test by either of its names, or what the machine reads from memory. */
static enum status take_turn(struct bench_model *model, const char *name,
                             const struct bench_options *options, struct error *e) {
    if (strcmp(name, "read") == 0) {
        struct roofline roof;
        if (roofline_measure(&roof, options->threads, e)) return e->status;
        bench_print(options, "read", "GB/s", roof.read_gbps);
        return STATUS_OK;
    }
    for (size_t i = 0; i < ARRAY_COUNT(peer_tests); i++) {
        const struct peer_test *test = &peer_tests[i];
        if (same_name(test->prompt, name) || same_name(test->tokens, name))
            return measure_test(model, test, options, e);
    }
    return error_set(e, STATUS_INVALID,
                     "standard input: there is no figure \"%s\"; expected read, pp64, pp512, tg64, "
                     "batch16.pp or "
                     "batch16.tg",
                     name);
}

enum status bench_turns(const struct bench_options *options, struct error *e) {
    struct bench_options lines = *options;
    struct bench_model model;
    char name[32];
    lines.json = true;
    enum status status = open_warm(&model, options, e);
    if (status != STATUS_OK) return status;
    bench_print(&lines, "token_bytes", "bytes", bench_cost_of(model_info(model.model)).read_bytes);
    while (status == STATUS_OK && fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        status = take_turn(&model, name, &lines, e);
    }
    bench_model_close(&model);
    return status;
}
