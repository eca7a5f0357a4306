/* tools/bench_peers.c: retro-bench peers: the figures that other programs' benchmarks print for a model of the same
 * shape and weight type, as JSON lines of the same names. Models are named SHAPE-DTYPE, "m-bf16"; where others have
 * names of their own for a type of as many bits, those do too: q8_0 is int8, q4_1 int4. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/bench_model.h"

/* 1.26 G parameters in the shape of a small Llama. */
static const char shape_m[] =
    "{\"architecture\": \"gpt\", \"num_layers\": 22, \"hidden_size\": 2048, \"num_attention_heads\": 32,\n"
    " \"ffn_hidden_size\": 5632, \"vocab_size\": 32000, \"max_position_embeddings\": 4096,\n"
    " \"position_embedding_type\": \"rope\", \"normalization\": \"RMSNorm\", \"activation\": \"swiglu\",\n"
    " \"add_bias_linear\": false, \"tie_word_embeddings\": false, \"final_norm\": true}\n";

/* 138 M parameters in the shape of a small GPT. */
static const char shape_s[] =
    "{\"architecture\": \"gpt\", \"num_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 12,\n"
    " \"ffn_hidden_size\": 3072, \"vocab_size\": 50304, \"max_position_embeddings\": 2048,\n"
    " \"position_embedding_type\": \"learned_absolute\", \"activation\": \"gelu_tanh\",\n"
    " \"tie_word_embeddings\": false, \"final_norm\": true}\n";

static const struct { const char *name, *config; } shapes[] = {{"m", shape_m}, {"s", shape_s}};

/* q4_0 has no minimum, so half a bit less a weight than int4. */
static const struct {
    const char *name;
    enum dtype dtype;
} peer_types[] = {{"q8_0", DTYPE_INT8}, {"q4_1", DTYPE_INT4}, {"q4_0", DTYPE_INT4}};

static bool parse_model(const char *name, const char **config, enum dtype *dtype) {
    const char *dash = strchr(name, '-');
    for (size_t i = 0; dash != NULL && i < ARRAY_COUNT(shapes); i++) {
        size_t length = strlen(shapes[i].name);
        if ((size_t)(dash - name) != length || strncmp(name, shapes[i].name, length) != 0) continue;
        *config = shapes[i].config;
        for (size_t t = 0; t < ARRAY_COUNT(peer_types); t++)
            if (strcmp(peer_types[t].name, dash + 1) == 0) {
                *dtype = peer_types[t].dtype;
                return true;
            }
        return dtype_parse(dtype, dash + 1);
    }
    return false;
}

/* The model is opened from a folder, so the shape is written into one for as long as that takes. */
static enum status open_shape(struct bench_model *m, const char *config, enum dtype dtype, int threads,
                              struct error *e) {
    char folder[] = "/tmp/retro-bench-XXXXXX", path[sizeof folder + sizeof "/config.json"];
    if (mkdtemp(folder) == NULL) return error_errno(e, "no folder in /tmp could be made");
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    bool written = f != NULL && fputs(config, f) >= 0;
    if (f != NULL) written = fclose(f) == 0 && written;
    enum status status =
        written ? bench_model_open(m, folder, "cpu", dtype, &(struct backend_options){.threads = threads}, e)
                : error_errno(e, "%s could not be written", path);
    unlink(path);
    rmdir(folder);
    return status;
}

static enum status measure(struct bench_model *m, int threads, struct error *e) {
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
        if (status == STATUS_OK && tests[i].prompt != NULL)
            bench_print_json(tests[i].prompt, threads, rates.prompt, "tok/s");
        if (status == STATUS_OK && tests[i].tokens != NULL)
            bench_print_json(tests[i].tokens, threads, rates.tokens, "tok/s");
    }
    return status;
}

int bench_peers(int argc, char **argv) {
    const char *config = NULL;
    enum dtype dtype = DTYPE_BF16;
    int threads = bench_threads();
    bool understood = argc % 2 == 1;
    for (int i = 1; i + 1 < argc && understood; i += 2) {
        if (strcmp(argv[i], "--model") == 0)
            understood = parse_model(argv[i + 1], &config, &dtype);
        else
            understood = strcmp(argv[i], "--threads") == 0 && (threads = atoi(argv[i + 1])) > 0;
    }
    if (!understood || config == NULL) {
        fprintf(stderr,
                "usage: retro-bench peers --model m-bf16 [--threads N]; shapes m and s, types f32, f16, bf16, int8 "
                "(q8_0), int4 (q4_1, q4_0)\n");
        return 2;
    }
    struct bench_model m;
    struct error e = {0};
    enum status status = open_shape(&m, config, dtype, threads, &e);
    if (status == STATUS_OK) {
        status = measure(&m, threads, &e);
        bench_model_close(&m);
    }
    if (status) fprintf(stderr, "retro-bench peers: %s\n", e.text);
    return status != STATUS_OK;
}
