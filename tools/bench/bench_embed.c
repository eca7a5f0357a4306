/* tools/bench/bench_embed.c: retro-bench embed: texts of 64 tokens per second of an embedder
 * folder, in batches of 64, from characters to vectors. */
#include <stdlib.h>

#include "retro/run/embed/encoder.h"
#include "tools/bench/bench.h"

enum { TEXTS = 64, MAX_TEXTS = 4096, BATCHES = 4, WORDS = 62, MAX_ROWS = 256 };

/* English words that a WordPiece vocabulary holds whole: with [CLS] and [SEP] a text has 64 tokens.
 */
static void write_text(struct buffer *out, unsigned *seed) {
    static const char *const words[] = {"the",     "file",   "is",  "open",  "and", "a",
                                        "process", "writes", "to",  "it",    "for", "every",
                                        "line",    "after",  "one", "second"};
    for (int i = 0; i < WORDS; i++) {
        *seed = *seed * 1664525 + 1013904223;
        buffer_printf(out, "%s%s", i ? " " : "", words[*seed >> 28]);
    }
}

static enum status measure(const struct bench_options *options, struct encoder *enc, int n,
                           struct error *e) {
    struct buffer *written = xcalloc((size_t)n, sizeof *written);
    struct text_span *texts = xcalloc((size_t)n, sizeof *texts);
    float *vectors = xcalloc((size_t)n, (size_t)encoder_dim(enc) * sizeof *vectors);
    unsigned seed = 1;
    for (int i = 0; i < n; i++) {
        write_text(&written[i], &seed);
        texts[i] = (struct text_span){written[i].data, written[i].size};
    }
    double rates[BENCH_MAX_ROUNDS] = {0};
    struct encoder_request request = {.texts = texts, .n = n, .vectors = vectors};
    enum status status = encoder_embed(enc, &request, e); /* warms up */
    for (int round = 0; round < options->rounds && status == STATUS_OK; round++) {
        double start = time_now();
        for (int i = 0; i < BATCHES && status == STATUS_OK; i++)
            status = encoder_embed(enc, &request, e);
        rates[round] = BATCHES * n / (time_now() - start);
    }
    if (status == STATUS_OK)
        bench_print_rounds(options, "embed", "texts/s", rates, options->rounds);
    for (int i = 0; i < n; i++) buffer_free(&written[i]);
    free(written);
    free(texts);
    free(vectors);
    return status;
}

enum status bench_embed(const struct bench_options *options, struct error *e) {
    struct bench_options bench_options = *options;
    struct backend *backend = NULL;
    struct encoder *enc = NULL;
    struct encoder_options options_of_encoder = {
        .model = {.convert = true, .dtype = bench_options.dtype}, .max_rows = MAX_ROWS};
    int n = bench_options.sequences ? bench_options.sequences : TEXTS;
    if (n > MAX_TEXTS)
        return error_set(e, STATUS_INVALID, "--sequences %d: at most %d texts", n, MAX_TEXTS);
    bench_options.model_name =
        bench_options.n_folders ? bench_options.folders[0] : DEFAULT_EMBEDDER;
    enum status status = backend_open(
        &backend, "cpu", &(struct backend_options){.threads = bench_options.threads}, e);
    if (status == STATUS_OK)
        status = encoder_open(&enc, bench_options.model_name, backend, &options_of_encoder, e);
    if (status == STATUS_OK) {
        bench_print_title(&bench_options, "%s %s, texts of %d tokens, %d a batch; %s",
                          bench_options.model_name, bench_options.dtype_name, WORDS + 2, n,
                          backend_describe(backend));
        status = measure(&bench_options, enc, n, e);
    }
    encoder_close(enc);
    backend_close(backend);
    return status;
}
