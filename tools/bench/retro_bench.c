/* tools/bench/retro_bench.c: retro-bench: how fast this machine is, and how much of it the kernels
 * use. */
#include <string.h>

#include "config/base/line.h"
#include "config/base/process.h"
#include "tools/bench/bench.h"
#include "tools/usage.h"

/* Options of the commands that run a model with random weights. */
#define MODEL_OPTIONS \
    (BENCH_OPTION_MODEL | BENCH_OPTION_DTYPE | BENCH_OPTION_THREADS | BENCH_OPTION_JSON)
#define LOAD_OPTIONS \
    (MODEL_OPTIONS | BENCH_OPTION_SEQUENCES | BENCH_OPTION_PROMPT | BENCH_OPTION_TOKENS | \
     BENCH_OPTION_ROUNDS)

enum { MANY_FOLDERS = 64 };

static const struct bench_command commands[] = {
    {"roofline", "read bandwidth and multiplication rates of this machine, with 1 to N threads",
     BENCH_OPTION_THREADS | BENCH_OPTION_JSON, 0, 0, bench_roofline},
    {"linear", "the matrix product, against the roofline",
     BENCH_OPTION_ROWS | BENCH_OPTION_IN | BENCH_OPTION_OUT | BENCH_OPTION_DTYPE |
         BENCH_OPTION_THREADS | BENCH_OPTION_JSON,
     0, 0, bench_linear},
    {"decode",
     "64 tokens of one sequence, against the read bandwidth; FOLDER/config.json is a shape",
     LOAD_OPTIONS, 0, 1, bench_decode},
    {"prefill",
     "a prompt of 512 tokens, against the dot product's peak; FOLDER/config.json is a shape",
     LOAD_OPTIONS, 0, 1, bench_prefill},
    {"batch", "32 tokens each of 16 sequences, after 16 of prompt; FOLDER/config.json is a shape",
     LOAD_OPTIONS, 0, 1, bench_batch},
    {"cache",
     "16 tokens behind 8000 others, with keys and values of f16 and int8 by turns; "
     "FOLDER/config.json is a shape",
     MODEL_OPTIONS | BENCH_OPTION_PROMPT | BENCH_OPTION_TOKENS | BENCH_OPTION_ROUNDS, 0, 1,
     bench_cache},
    {"seq2seq",
     "64 tokens of one sequence that reads a source of 128 tokens; FOLDER/config.json is a T5's "
     "shape",
     LOAD_OPTIONS & ~BENCH_OPTION_MODEL, 1, 1, bench_seq2seq},
    {"tower",
     "a picture through a vision tower, and of LLaVA to the first token; FOLDER/config.json is a "
     "shape",
     BENCH_OPTION_SEQUENCES | BENCH_OPTION_PROMPT | BENCH_OPTION_PIXELS | BENCH_OPTION_DTYPE |
         BENCH_OPTION_THREADS | BENCH_OPTION_ROUNDS | BENCH_OPTION_JSON,
     1, 1, bench_tower},
    {"embed", "64 texts of 64 tokens; FOLDER is an embedder, else the one that make deps installs",
     BENCH_OPTION_SEQUENCES | BENCH_OPTION_DTYPE | BENCH_OPTION_THREADS | BENCH_OPTION_ROUNDS |
         BENCH_OPTION_JSON,
     0, 1, bench_embed},
    {"retrieval",
     "decoding with live retrieval against without, over whole chunks; FOLDER/config.json is a "
     "shape",
     MODEL_OPTIONS | BENCH_OPTION_SEQUENCES | BENCH_OPTION_TOKENS | BENCH_OPTION_COLLECTION |
         BENCH_OPTION_CHUNKS | BENCH_OPTION_EMBEDDER,
     0, 1, bench_retrieval},
    {"search", "milliseconds of a search of 1, 8 and 64 queries among random vectors",
     BENCH_OPTION_VECTORS | BENCH_OPTION_DIMS | BENCH_OPTION_INDEX | BENCH_OPTION_K |
         BENCH_OPTION_DEVICE | BENCH_OPTION_THREADS | BENCH_OPTION_JSON,
     0, 0, bench_search},
    {"index",
     "what an index of vectors like those of text costs and finds; --index as retro-index build "
     "has it",
     BENCH_OPTION_VECTORS | BENCH_OPTION_DIMS | BENCH_OPTION_INDEX | BENCH_OPTION_K |
         BENCH_OPTION_THREADS | BENCH_OPTION_JSON,
     0, 0, bench_index},
    {"quotes",
     "what answers that quote cost beside the model's steps, with the vocabulary of FOLDER's "
     "tokenizer",
     BENCH_OPTION_PROMPT | BENCH_OPTION_ROUNDS | BENCH_OPTION_JSON, 1, 1, bench_quotes},
    {"load", "from nothing to the first token of a model FOLDER",
     BENCH_OPTION_DEVICE | BENCH_OPTION_THREADS | BENCH_OPTION_JSON, 1, 1, bench_load},
    {"peers", "JSON lines under the names that other programs use, for a model of the same shape",
     BENCH_OPTION_MODEL | BENCH_OPTION_DTYPE | BENCH_OPTION_THREADS, 0, 0, bench_peers},
    {"turns", "one of those lines, or \"read\" in GB/s, for each name that standard input asks for",
     BENCH_OPTION_MODEL | BENCH_OPTION_DTYPE | BENCH_OPTION_THREADS, 0, 0, bench_turns},
    {"device",
     "JSON lines: a GPU's ceilings, and what models of some shapes (tools/shapes) reach of them",
     BENCH_OPTION_DTYPE | BENCH_OPTION_DEVICE | BENCH_OPTION_LIMITS | BENCH_OPTION_EAGER, 0,
     MANY_FOLDERS, bench_device},
};

static void print_usage(FILE *out) {
    fprintf(out,
            "usage: retro-bench COMMAND... [OPTION...]; COMMAND --help says more\n"
            "retro-bench: how fast a machine computes models and searches collections\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        usage_command(out, &(struct usage){.name = commands[i].name, .help = commands[i].help}, 13);
}

static const struct bench_command *find(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static enum status run(const struct bench_command *command, struct bench_options options,
                       struct error *e) {
    bool shaped = (command->options & BENCH_OPTION_MODEL) != 0,
         typed = (command->options & BENCH_OPTION_DTYPE) != 0;
    options.model_name = options.n_folders > 0 ? options.folders[0]
                         : shaped              ? options.shape->name
                                               : NULL;
    options.dtype_name = typed ? dtype_name(options.dtype) : NULL;
    return command->run(&options, e);
}

int main(int argc, char **argv) {
    const struct bench_command *asked[ARRAY_COUNT(commands)];
    struct bench_options options;
    struct error e = {0};
    int n = 0;
    bus_errors_explain();
    while (n + 1 < argc && n < (int)ARRAY_COUNT(commands) && (asked[n] = find(argv[n + 1])) != NULL)
        n++;
    bool help = n == 0 && argc >= 2 && strcmp(argv[1], "--help") == 0;
    if (n == 0) {
        if (!help && argc >= 2)
            line_print(stderr, "retro-bench: there is no command \"%s\"", argv[1]);
        print_usage(help ? stdout : stderr);
        return process_end(help ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    bool wrong = bench_parse(&options, argv + n + 1, asked, n, &e) != STATUS_OK;
    if (wrong) line_print(stderr, "retro-bench: %s", e.text);
    for (int i = 0; i < n && (wrong || options.help); i++)
        bench_print_usage(asked[i], wrong ? stderr : stdout);
    if (wrong || options.help) return process_end(wrong ? EXIT_FAILURE : EXIT_SUCCESS);
    for (int i = 0; i < n; i++) {
        if (run(asked[i], options, &e) == STATUS_OK) continue;
        line_print(stderr, "retro-bench %s: %s", asked[i]->name, e.text);
        return process_end(1);
    }
    return process_end(0);
}
