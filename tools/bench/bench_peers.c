/* tools/bench/bench_peers.c: retro-bench peers: the figures that other programs' benchmarks print for a model of the
 * same shape and weight type, as JSON lines of the same names. */
#include "tools/bench/bench_model.h"

static enum status measure(struct bench_model *m, const struct bench_options *o, struct error *e) {
    static const struct {
        const char *prompt, *tokens;
        struct bench_load load;
    } tests[] = {{"pp64", NULL, {1, 64, 0}},
                 {"pp512", NULL, {1, 512, 0}},
                 {NULL, "tg64", {1, 0, 64}},
                 {"batch16.pp", "batch16.tg", {16, 16, 32}}};
    struct bench_rates rates = {0};
    enum status status = bench_generate(&rates, m, &tests[0].load, e); /* warms up */
    for (size_t i = 0; i < ARRAY_COUNT(tests) && status == STATUS_OK; i++) {
        status = bench_generate(&rates, m, &tests[i].load, e);
        if (status == STATUS_OK && tests[i].prompt != NULL) bench_print(o, tests[i].prompt, "tok/s", rates.prompt);
        if (status == STATUS_OK && tests[i].tokens != NULL) bench_print(o, tests[i].tokens, "tok/s", rates.tokens);
    }
    return status;
}

enum status bench_peers(const struct bench_options *o, struct error *e) {
    struct bench_options lines = *o;
    struct bench_source source = bench_source_of(o);
    struct bench_model m;
    lines.json = true;
    if (bench_model_open(&m, &source, e)) return e->status;
    enum status status = measure(&m, &lines, e);
    bench_model_close(&m);
    return status;
}
