/* tools/bench/bench_peers.c: retro-bench peers and turns: the figures that other programs' benchmarks print for a model
 * of the same shape and weight type, as JSON lines of the same names; all of them, or each when it is asked for. */
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

static enum status measure_test(struct bench_model *m, const struct peer_test *t, const struct bench_options *o,
                                struct error *e) {
    struct bench_rates rates = {0};
    if (bench_generate(&rates, m, &t->load, e)) return e->status;
    if (t->prompt != NULL) bench_print(o, t->prompt, "tok/s", rates.prompt);
    if (t->tokens != NULL) bench_print(o, t->tokens, "tok/s", rates.tokens);
    return STATUS_OK;
}

static enum status open_warm(struct bench_model *m, const struct bench_options *o, struct error *e) {
    struct bench_source source = bench_source_of(o);
    struct bench_rates rates = {0};
    if (bench_model_open(m, &source, e)) return e->status;
    enum status status = bench_generate(&rates, m, &peer_tests[0].load, e); /* touches every page */
    if (status != STATUS_OK) bench_model_close(m);
    return status;
}

enum status bench_peers(const struct bench_options *o, struct error *e) {
    struct bench_options lines = *o;
    struct bench_model m;
    lines.json = true;
    enum status status = open_warm(&m, o, e);
    if (status != STATUS_OK) return status;
    for (size_t i = 0; i < ARRAY_COUNT(peer_tests) && status == STATUS_OK; i++)
        status = measure_test(&m, &peer_tests[i], &lines, e);
    bench_model_close(&m);
    return status;
}

static bool same_name(const char *name, const char *asked) { return name != NULL && strcmp(name, asked) == 0; }

/* One test by either of its names, or what the machine reads from memory. */
static enum status take_turn(struct bench_model *m, const char *name, const struct bench_options *o, struct error *e) {
    if (strcmp(name, "read") == 0) {
        struct roofline roof;
        if (roofline_measure(&roof, o->threads, e)) return e->status;
        bench_print(o, "read", "GB/s", roof.read_gbps);
        return STATUS_OK;
    }
    for (size_t i = 0; i < ARRAY_COUNT(peer_tests); i++) {
        const struct peer_test *t = &peer_tests[i];
        if (same_name(t->prompt, name) || same_name(t->tokens, name)) return measure_test(m, t, o, e);
    }
    return error_set(e, STATUS_INVALID,
                     "standard input: there is no figure \"%s\"; expected read, pp64, pp512, tg64, batch16.pp or "
                     "batch16.tg",
                     name);
}

enum status bench_turns(const struct bench_options *o, struct error *e) {
    struct bench_options lines = *o;
    struct bench_model m;
    char name[32];
    lines.json = true;
    enum status status = open_warm(&m, o, e);
    if (status != STATUS_OK) return status;
    bench_print(&lines, "token_bytes", "bytes", bench_cost_of(model_info(m.model)).read_bytes);
    while (status == STATUS_OK && fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        status = take_turn(&m, name, &lines, e);
    }
    bench_model_close(&m);
    return status;
}
