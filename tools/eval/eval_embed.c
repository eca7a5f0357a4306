/* tools/eval/eval_embed.c: retro-eval embed. Prints the vector of each text, or its sparse weights,
 * so that an embedder can be checked by eye or against another library. "-" reads standard input,
 * one {"text": "..."} a line, and embeds some lines at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_value.h"
#include "config/json/json_writer.h"
#include "server/host/documents/embedder_model.h"
#include "tools/eval/eval.h"

enum { BATCH_TEXTS = 32, LINE_LIMIT = 16 << 20 };

struct embed_options {
    bool query, document, sparse;
};

/* Texts that are embedded at once, and their copies. */
struct embed_batch {
    const struct embedder *embedder;
    enum embed_role role;
    bool sparse;                         /* sparse weights are printed, no vectors */
    struct text_span texts[BATCH_TEXTS]; /* owned */
    int n;
};

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

/* As FlagEmbedding's lexical_weights: {"id": weight}. */
static void print_sparse(struct sparse_row row) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin_spaced(&w, &line);
    put_object(&w);
    for (int64_t i = 0; i < row.n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", row.list[i].id);
        put_key(&w, id);
        put_rounded(&w, (double)row.list[i].weight, 9);
    }
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&line);
}

static void forget_texts(struct embed_batch *batch) {
    for (int i = 0; i < batch->n; i++) free((char *)(uintptr_t)batch->texts[i].text);
    batch->n = 0;
}

static enum status embed_batch(struct embed_batch *batch, struct error *e) {
    size_t dim = (size_t)batch->embedder->dim;
    float *vectors = xmalloc((size_t)BATCH_TEXTS * dim * sizeof *vectors);
    struct sparse_rows rows = {0};
    struct embed_request request = {.texts = batch->texts,
                                    .n = batch->n,
                                    .role = batch->role,
                                    .raw = true,
                                    .vectors = vectors,
                                    .sparse = batch->sparse ? &rows : NULL};
    enum status status = batch->n ? embedder_embed(batch->embedder, &request, e) : STATUS_OK;
    for (int i = 0; i < batch->n && status == STATUS_OK; i++) {
        if (batch->sparse)
            print_sparse(sparse_rows_row(&rows, i));
        else
            print_vector(vectors + (size_t)i * dim, (int)dim);
    }
    sparse_rows_free(&rows);
    forget_texts(batch);
    free(vectors);
    return status;
}

static enum status add_text(struct embed_batch *batch, struct text_span text, struct error *e) {
    batch->texts[batch->n] = (struct text_span){xstrndup(text.text, text.size), text.size};
    batch->n++;
    return batch->n == BATCH_TEXTS ? embed_batch(batch, e) : STATUS_OK;
}

static enum status add_lines(struct embed_batch *batch, FILE *in, struct error *e) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (n = getline(&line, &capacity, in)) > 0) {
        struct json *value = NULL;
        if (n > LINE_LIMIT)
            status = error_set(e, STATUS_TOO_LARGE, "a line of %zd bytes, the limit is %d", n,
                               LINE_LIMIT);
        else
            status = json_parse(&value, (struct text_span){line, (size_t)n}, "standard input", e);
        struct text_span text = json_text(json_member(value, "text"));
        if (status == STATUS_OK && text.text == NULL)
            status = error_set(e, STATUS_INVALID, "standard input: a line has no \"text\"");
        if (status == STATUS_OK) status = add_text(batch, text, e);
        json_close(value);
    }
    free(line);
    return status;
}

static enum status embed_all(const struct config *config, const struct embed_options *options,
                             int argc, char **argv, struct error *e) {
    struct embedder embedder = {0};
    struct embed_batch batch = {.embedder = &embedder,
                                .sparse = options->sparse,
                                .role = options->query      ? EMBED_QUERY
                                        : options->document ? EMBED_DOCUMENT
                                                            : EMBED_PLAIN};
    enum status status = embedder_model_open(&embedder, argv[0], config, e);
    if (status == STATUS_OK && options->sparse && !embedder.sparse)
        status = error_set(e, STATUS_UNSUPPORTED,
                           "%s has no sparse weights: its folder has no sparse_linear.safetensors",
                           argv[0]);
    for (int i = 1; i < argc && status == STATUS_OK; i++)
        status = strcmp(argv[i], "-") == 0
                     ? add_lines(&batch, stdin, e)
                     : add_text(&batch, (struct text_span){argv[i], strlen(argv[i])}, e);
    if (status == STATUS_OK) status = embed_batch(&batch, e);
    forget_texts(&batch);
    embedder_model_close(&embedder);
    return status;
}

int eval_embed(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct embed_options embed_options = {0};
    const struct eval_option options[] = {
        {"--query", NULL, "put the query prompt before each text", EVAL_OPTION_FLAG,
         &embed_options.query},
        {"--document", NULL, "put the document prompt before each text", EVAL_OPTION_FLAG,
         &embed_options.document},
        {"--sparse", NULL, "print the sparse weights of token ids, which bge-m3 has, no vectors",
         EVAL_OPTION_FLAG, &embed_options.sparse},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    if (first >= 0 && argc - first < 2)
        error_set(&e, STATUS_INVALID, "expected FOLDER and one TEXT or more");
    bool failed = first != EVAL_HELPED &&
                  (first < 0 || argc - first < 2 ||
                   embed_all(&config, &embed_options, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval embed: %s", e.text);
    config_free(&config);
    return failed;
}
