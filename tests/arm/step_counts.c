/* tests/arm/step_counts.c: a prompt, and a step of one token behind it, of a model of shape m with
 * random weights: `step_counts DTYPE LAYERS PROMPT`. tests/arm/counts.py runs it under qemu, whose
 * plugin says how much each took. */
#include <stdlib.h>

#include "tools/bench/bench_model.h"

/* An instruction that does nothing and that no compiler writes (HINT #63): the plugin prints its
 * totals there. */
static void mark(void) {
#ifdef __aarch64__
    __asm__ volatile("hint #63" ::: "memory");
#endif
}

static enum status generate(struct bench_model *model, int prompt, int tokens, struct error *e) {
    struct bench_rates rates;
    const struct bench_load load = {.sequences = 1, .prompt = prompt, .tokens = tokens};
    enum status status = bench_generate(&rates, model, &load, e);
    mark();
    return status;
}

int main(int argc, char **argv) {
    struct error e;
    struct bench_source source = {.device = "cpu", .backend = {.threads = 1}};
    const struct bench_shape *shape;
    struct bench_model model;
    if (argc != 4 || !bench_shape_parse("m", &shape, &source.dtype) ||
        !bench_dtype_parse(argv[1], &source.dtype)) {
        fprintf(stderr, "usage: step_counts DTYPE LAYERS PROMPT\n");
        return 2;
    }
    struct bench_shape cut = *shape;
    cut.layers = atoi(argv[2]);
    source.shape = &cut;
    enum status status = bench_model_open(&model, &source, &e);
    if (status == STATUS_OK) {
        printf("%s\n", backend_describe(model.backend));
        mark();
        /* The prompt; then the difference between one step and two is a step. */
        status = generate(&model, atoi(argv[3]), 0, &e);
        if (status == STATUS_OK) status = generate(&model, 16, 1, &e);
        if (status == STATUS_OK) status = generate(&model, 16, 2, &e);
        bench_model_close(&model);
    }
    if (status) fprintf(stderr, "step_counts: %s\n", e.text);
    return status ? 1 : 0;
}
