/* tools/eval/eval_embed.c: retro-eval embed. Prints the vector of each text, so that an embedder
 * can be checked by eye or against another library. "-" reads standard input, one {"text": "..."} a
 * line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_value.h"
#include "config/json/json_writer.h"
#include "retro/run/encoder.h"
#include "tools/eval/eval.h"

enum { MAX_ROWS = 4096, LINE_LIMIT = 16 << 20 };

static void print_vector(const float *v, int dim) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin_spaced(&w, &line);
    put_array(&w);
    for (int i = 0; i < dim; i++) put_rounded(&w, (double)v[i], 9);
    put_array_end(&w);
    put_line(&w, stdout);
    buffer_free(&line);
}

static enum status embed_one(struct encoder *enc, struct text_span text, struct error *e) {
    int dim = encoder_dim(enc);
    float *vector = xmalloc((size_t)dim * sizeof *vector);
    enum status status = encoder_embed(enc, &text, 1, vector, e);
    if (status == STATUS_OK) print_vector(vector, dim);
    free(vector);
    return status;
}

static enum status embed_lines(struct encoder *enc, FILE *in, struct error *e) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (n = getline(&line, &capacity, in)) > 0) {
        struct json *value = NULL;
        if (n > LINE_LIMIT)
            status = error_set(e, STATUS_TOO_LARGE, "a line of %zd bytes, the limit is %d", n, LINE_LIMIT);
        else
            status = json_parse(&value, (struct text_span){line, (size_t)n}, "standard input", e);
        struct text_span text = json_text(json_member(value, "text"));
        if (status == STATUS_OK && text.text == NULL)
            status = error_set(e, STATUS_INVALID, "standard input: a line has no \"text\"");
        if (status == STATUS_OK) status = embed_one(enc, text, e);
        json_close(value);
    }
    free(line);
    return status;
}

static enum status run(const struct config *config, int argc, char **argv, struct error *e) {
    struct backend *b = NULL;
    struct encoder *enc = NULL;
    struct backend_options options = {.threads = config->model.threads};
    struct model_options model_options = model_options_of(config->retrieval.embedder_dtype);
    enum status status = backend_open(&b, config->model.device, &options, e);
    if (status == STATUS_OK) status = encoder_open(&enc, argv[0], b, &model_options, MAX_ROWS, e);
    for (int i = 1; i < argc && status == STATUS_OK; i++)
        status = strcmp(argv[i], "-") == 0 ? embed_lines(enc, stdin, e)
                                           : embed_one(enc, (struct text_span){argv[i], strlen(argv[i])}, e);
    encoder_close(enc);
    backend_close(b);
    return status;
}

int eval_embed(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    config_init(&config);
    int first = eval_parse(self, argc, argv, &(struct eval_option){0}, &config, &e);
    if (first >= 0 && argc - first < 2) error_set(&e, STATUS_INVALID, "expected FOLDER and one TEXT or more");
    bool failed =
        first != EVAL_HELPED && (first < 0 || argc - first < 2 || run(&config, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval embed: %s", e.text);
    config_free(&config);
    return failed;
}
