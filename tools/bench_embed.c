/* tools/bench_embed.c: retro-bench embed: texts per second of an embedder folder, in batches of 64 texts of 64 tokens,
 * from characters to vectors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/encoder.h"
#include "tools/bench.h"

enum { ROUNDS = 5, TEXTS = 64, BATCHES = 4, WORDS = 62, MAX_ROWS = 2048 };

struct embed_options {
    const char *folder;
    enum dtype dtype;
    int threads;
    bool json;
};

static const char usage_text[] =
    "usage: retro-bench embed [--dtype f32|f16|bf16] [--threads N] [--json] FOLDER\n"
    "  FOLDER holds a sentence-transformers model (config.json, model.safetensors, vocab.txt, ...).\n";

static bool parse(int argc, char **argv, struct embed_options *o) {
    *o = (struct embed_options){.dtype = DTYPE_BF16, .threads = bench_threads()};
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            o->json = true;
        else if (strcmp(argv[i], "--dtype") == 0 && value && dtype_parse(&o->dtype, argv[i + 1]))
            i++;
        else if (strcmp(argv[i], "--threads") == 0 && value && (o->threads = atoi(argv[i + 1])) > 0)
            i++;
        else if (argv[i][0] != '-' && o->folder == NULL)
            o->folder = argv[i];
        else
            return false;
    }
    return o->folder != NULL;
}

/* English words that a WordPiece vocabulary holds whole: with [CLS] and [SEP] a text has 64 tokens. */
static void write_text(struct buffer *out, unsigned *seed) {
    static const char *const words[] = {"the", "file", "is",  "open",  "and",  "a",     "process", "writes",
                                        "to",  "it",   "for", "every", "line", "after", "one",     "second"};
    for (int i = 0; i < WORDS; i++) {
        *seed = *seed * 1664525 + 1013904223;
        buffer_printf(out, "%s%s", i ? " " : "", words[*seed >> 28]);
    }
}

static enum status measure(const struct embed_options *o, struct encoder *enc, double *rate, struct error *e) {
    struct buffer written[TEXTS] = {{0}};
    struct text_span texts[TEXTS];
    unsigned seed = 1;
    for (int i = 0; i < TEXTS; i++) {
        write_text(&written[i], &seed);
        texts[i] = (struct text_span){written[i].data, written[i].size};
    }
    float *vectors = xmalloc((size_t)TEXTS * (size_t)encoder_dim(enc) * sizeof *vectors);
    double rates[ROUNDS] = {0};
    enum status status = encoder_embed(enc, texts, TEXTS, vectors, e); /* warms up */
    for (int round = 0; round < ROUNDS && status == STATUS_OK; round++) {
        double start = time_now();
        for (int i = 0; i < BATCHES && status == STATUS_OK; i++) status = encoder_embed(enc, texts, TEXTS, vectors, e);
        rates[round] = BATCHES * TEXTS / (time_now() - start);
    }
    *rate = bench_median(rates, ROUNDS);
    if (status == STATUS_OK && !o->json)
        printf("  %.1f texts/s (%.1f .. %.1f), %d tokens each, %d a batch\n", *rate, rates[0], rates[ROUNDS - 1],
               WORDS + 2, TEXTS);
    for (int i = 0; i < TEXTS; i++) buffer_free(&written[i]);
    free(vectors);
    return status;
}

int bench_embed(int argc, char **argv) {
    struct embed_options o;
    struct error e = {0};
    struct backend *b = NULL;
    struct encoder *enc = NULL;
    double rate;
    if (!parse(argc, argv, &o)) {
        fputs(usage_text, stderr);
        return 2;
    }
    struct model_options options = {.convert = true, .dtype = o.dtype};
    enum status status = backend_open(&b, "cpu", &(struct backend_options){.threads = o.threads}, &e);
    if (status == STATUS_OK && !o.json) printf("%s, %s\n", backend_describe(b), dtype_name(o.dtype));
    if (status == STATUS_OK) status = encoder_open(&enc, o.folder, b, &options, MAX_ROWS, &e);
    if (status == STATUS_OK) status = measure(&o, enc, &rate, &e);
    if (status == STATUS_OK && o.json) bench_print_json("embed", o.threads, rate, "texts/s");
    if (status) fprintf(stderr, "retro-bench embed: %s\n", e.text);
    encoder_close(enc);
    backend_close(b);
    return status != STATUS_OK;
}
