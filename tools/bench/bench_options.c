/* tools/bench/bench_options.c: the options of retro-bench's sub-commands, one table for all of them
 * (bench.h). */
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/usage.h"

enum kind { KIND_FLAG, KIND_COUNT, KIND_TEXT, KIND_DTYPE, KIND_MODEL };

enum { MAX_COUNT = 1 << 24 };

/* Row i is option 1 << i of enum bench_option. */
static const struct bench_row {
    const char *name, *value, *help;
    enum kind kind;
    size_t offset;
} rows[] = {
    {"--model", "SHAPE[-DTYPE]",
     "m (1.26 G parameters, the default) or s (138 M); m-int8 sets --dtype too", KIND_MODEL, 0},
    {"--dtype", "DTYPE",
     "f32, f16, bf16 (the default), int8, int4, q4_k, q5_k, q6_k or, on GPUs, fp8", KIND_DTYPE, 0},
    {"--threads", "N", "CPU threads, else as many as the process may use", KIND_COUNT,
     offsetof(struct bench_options, threads)},
    {"--sequences", "N", "sequences, texts or pictures at once", KIND_COUNT,
     offsetof(struct bench_options, sequences)},
    {"--prompt", "N", "tokens of each prompt", KIND_COUNT, offsetof(struct bench_options, prompt)},
    {"--tokens", "N", "tokens decoded after it", KIND_COUNT,
     offsetof(struct bench_options, tokens)},
    {"--rows", "N", "rows of the product, else several numbers of them", KIND_COUNT,
     offsetof(struct bench_options, rows)},
    {"--in", "N", "columns of the matrix (2048)", KIND_COUNT, offsetof(struct bench_options, n_in)},
    {"--out", "N", "rows of the matrix (2048)", KIND_COUNT, offsetof(struct bench_options, n_out)},
    {"--collection", "DIR", "made by retro-index, else random chunks and vectors", KIND_TEXT,
     offsetof(struct bench_options, collection)},
    {"--chunks", "N", "random chunks (100000)", KIND_COUNT, offsetof(struct bench_options, chunks)},
    {"--embedder", "FOLDER", "else the collection's, or the one that make deps installs", KIND_TEXT,
     offsetof(struct bench_options, embedder)},
    {"--device", "DEVICE", "cpu, or cuda:N in a build with CUDA", KIND_TEXT,
     offsetof(struct bench_options, device)},
    {"--limits", NULL, "measure the device itself first", KIND_FLAG,
     offsetof(struct bench_options, limits)},
    {"--eager", NULL, "launch every op by itself instead of steps as graphs", KIND_FLAG,
     offsetof(struct bench_options, eager)},
    {"--json", NULL, "one JSON object a line", KIND_FLAG, offsetof(struct bench_options, json)},
    {"--vectors", "N", "vectors to search among (1000000)", KIND_COUNT,
     offsetof(struct bench_options, vectors)},
    {"--dims", "N", "numbers in each (384)", KIND_COUNT, offsetof(struct bench_options, dims)},
    {"--index", "KIND", "flat (exact search) or ivf (an inverted file); index knows more kinds",
     KIND_TEXT, offsetof(struct bench_options, index)},
    {"--k", "N", "neighbours of each query (2)", KIND_COUNT, offsetof(struct bench_options, k)},
    {"--rounds", "N", "measurements, whose median counts (5)", KIND_COUNT,
     offsetof(struct bench_options, rounds)},
    {"--pixels", "N", "the side of each picture (336)", KIND_COUNT,
     offsetof(struct bench_options, pixels)},
};

static enum status read_value(struct bench_options *options, const struct bench_row *row,
                              const char *text, struct error *e) {
    void *value = (char *)options + row->offset;
    long long number;
    switch (row->kind) {
        case KIND_FLAG: *(bool *)value = true; return STATUS_OK;
        case KIND_COUNT:
            if (usage_number(row->name, text, 1, MAX_COUNT, &number, e)) return e->status;
            *(int *)value = (int)number;
            return STATUS_OK;
        case KIND_TEXT: *(const char **)value = text; return STATUS_OK;
        case KIND_DTYPE:
            if (bench_dtype_parse(text, &options->dtype)) return STATUS_OK;
            if (strcmp(text, "fp8") == 0) { /* which no file has */
                options->dtype = DTYPE_FP8;
                return STATUS_OK;
            }
            return error_set(
                e, STATUS_INVALID,
                "--dtype %s: expected f32, f16, bf16, int8, int4, q4_k, q5_k, q6_k or fp8", text);
        case KIND_MODEL:
            if (bench_shape_parse(text, &options->shape, &options->dtype)) return STATUS_OK;
            return error_set(e, STATUS_INVALID,
                             "--model %s: expected a shape, m or s, and perhaps a type: f32, f16, "
                             "bf16, int8 (q8_0), "
                             "int4 (q4_1, q4_0), q4_k, q5_k or q6_k, as in m-bf16",
                             text);
    }
    return STATUS_OK;
}

/* The option of that name that one of the commands has. */
static const struct bench_row *find(const char *name, const struct bench_command *const *commands,
                                    int n) {
    unsigned all = 0;
    for (int i = 0; i < n; i++) all |= commands[i]->options;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if ((all >> i & 1) != 0 && strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static enum status check_commands(const struct bench_options *options,
                                  const struct bench_command *const *commands, int n,
                                  struct error *e) {
    if (n > 1 && options->n_folders > 0)
        return error_set(e, STATUS_INVALID, "%s: a folder is for one command; several take --model",
                         options->folders[0]);
    for (int i = 0; i < n; i++) {
        const struct bench_command *command = commands[i];
        if (options->dtype == DTYPE_FP8 && (command->options & BENCH_OPTION_DTYPE) &&
            !(command->options & BENCH_OPTION_EAGER))
            return error_set(e, STATUS_INVALID, "--dtype fp8: %s is for CPUs, which have no fp8",
                             command->name);
        if (options->n_folders < command->min_folders)
            return error_set(e, STATUS_INVALID, "%s needs a FOLDER", command->name);
        if (options->n_folders > command->max_folders)
            return error_set(e, STATUS_INVALID, "%s: %s takes %s",
                             options->folders[command->max_folders], command->name,
                             command->max_folders ? "one folder" : "options only");
    }
    return STATUS_OK;
}

enum status bench_parse(struct bench_options *options, char **arguments,
                        const struct bench_command *const *commands, int n, struct error *e) {
    *options = (struct bench_options){.dtype = DTYPE_BF16,
                                      .threads = bench_threads(),
                                      .rounds = 5,
                                      .folders = arguments,
                                      .prefix = ""};
    CHECK(bench_shape_parse("m", &options->shape, &options->dtype));
    for (; *arguments; arguments++) {
        const char *argument = *arguments;
        if (strcmp(argument, "--help") == 0) {
            options->help = true;
            return STATUS_OK;
        }
        if (argument[0] != '-') {
            options->folders[options->n_folders] = *arguments; /* never ahead of what is read */
            options->n_folders++;
            continue;
        }
        const struct bench_row *row = find(argument, commands, n);
        if (row == NULL) return error_set(e, STATUS_INVALID, "%s: unknown option", argument);
        if (row->value != NULL && *++arguments == NULL)
            return error_set(e, STATUS_INVALID, "%s needs a value: %s", argument, row->value);
        if (read_value(options, row, *arguments, e)) return e->status;
    }
    if (options->rounds > BENCH_MAX_ROUNDS)
        return error_set(e, STATUS_INVALID, "--rounds %d: at most %d", options->rounds,
                         BENCH_MAX_ROUNDS);
    return check_commands(options, commands, n, e);
}

void bench_print_usage(const struct bench_command *command, FILE *out) {
    const char *folder = command->max_folders == 0  ? ""
                         : command->min_folders     ? " FOLDER"
                         : command->max_folders > 1 ? " [FOLDER...]"
                                                    : " [FOLDER]";
    char arguments[40];
    snprintf(arguments, sizeof arguments, "[OPTION...]%s", folder);
    usage_print(out, "retro-bench", &(struct usage){command->name, arguments, command->help});
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (command->options >> i & 1) usage_option(out, rows[i].name, rows[i].value, rows[i].help);
}
