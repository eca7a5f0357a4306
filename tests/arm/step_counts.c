/* tests/arm/step_counts.c: a prompt, and a step of one token behind it, of a model of shape m with
 * random weights: `step_counts DTYPE LAYERS PROMPT`; or vectors of the lines of a file:
 * `step_counts embed FOLDER FILE`. tests/arm/counts.py runs it under qemu, whose plugin says how
 * much each took. */
#include <stdlib.h>
#include <string.h>

#include "retro/run/embed/encoder.h"
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

static int count_steps(const char *dtype, int layers, int prompt) {
    struct error e;
    struct bench_source source = {.device = "cpu", .backend = {.threads = 1}};
    const struct bench_shape *shape;
    struct bench_model model;
    if (!bench_shape_parse("m", &shape, &source.dtype) ||
        !bench_dtype_parse(dtype, &source.dtype)) {
        fprintf(stderr, "step_counts: %s is no type of weights\n", dtype);
        return 2;
    }
    struct bench_shape cut = *shape;
    cut.layers = layers;
    source.shape = &cut;
    enum status status = bench_model_open(&model, &source, &e);
    if (status == STATUS_OK) {
        printf("%s\n", backend_describe(model.backend));
        mark();
        /* The prompt; then the difference between one step and two is a step. */
        status = generate(&model, prompt, 0, &e);
        if (status == STATUS_OK) status = generate(&model, 16, 1, &e);
        if (status == STATUS_OK) status = generate(&model, 16, 2, &e);
        bench_model_close(&model);
    }
    if (status) fprintf(stderr, "step_counts: %s\n", e.text);
    return status ? 1 : 0;
}

enum { MOST_TEXTS = 64, MOST_ROWS = 256 };

static enum status embed_lines(struct encoder *encoder, FILE *file, struct error *e) {
    static char lines[MOST_TEXTS][4096];
    struct text_span texts[MOST_TEXTS];
    struct encoder_request request = {.texts = texts};
    while (request.n < MOST_TEXTS && fgets(lines[request.n], sizeof lines[0], file) != NULL) {
        const char *line = lines[request.n];
        texts[request.n++] = (struct text_span){line, strcspn(line, "\n")};
    }
    request.vectors = xcalloc((size_t)request.n, (size_t)encoder_dim(encoder) * sizeof(float));
    mark();
    enum status status = encoder_embed(encoder, &request, e);
    mark();
    free(request.vectors);
    return status;
}

static int count_vectors(const char *folder, const char *path) {
    struct error e;
    const struct encoder_options options = {.model = {.convert = true, .dtype = DTYPE_F32},
                                            .max_rows = MOST_ROWS};
    struct backend *backend = NULL;
    struct encoder *encoder = NULL;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return 2;
    }
    enum status status = backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, &e);
    if (status == STATUS_OK) status = encoder_open(&encoder, folder, backend, &options, &e);
    if (status == STATUS_OK) status = embed_lines(encoder, file, &e);
    if (status) fprintf(stderr, "step_counts: %s\n", e.text);
    encoder_close(encoder);
    backend_close(backend);
    fclose(file);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: step_counts DTYPE LAYERS PROMPT | step_counts embed FOLDER FILE\n");
        return 2;
    }
    if (strcmp(argv[1], "embed") == 0) return count_vectors(argv[2], argv[3]);
    return count_steps(argv[1], atoi(argv[2]), atoi(argv[3]));
}
