/* tools/retro_eval.c: retro-eval, which measures models: bits per byte, multiple choice, parity with a
 * reference, embeddings. Dispatch, and opening a model. */
#include <stdio.h>
#include <string.h>

#include "tools/eval.h"

static const struct command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"ppl", "--config FILE [--window N] [--baseline FOLDER] [--seed N] [--curve CSV] [--json] DOCUMENT...",
     "bits per byte of documents with retrieval on, off and random, and of a plain GPT", eval_ppl},
    {"lm", "--config FILE [--seed N] [--records JSONL] [--json] FILE.jsonl...",
     "accuracy on multiple choice records with retrieval on and off", eval_lm},
    {"parity", "[--tolerance X] FOLDER...",
     "run the reference cases in FOLDER forward and incrementally, compare logits and tokens", eval_parity},
    {"embed", "FOLDER TEXT...", "print the embedding of each TEXT, one JSON array a line (TEXT - reads JSON lines)",
     eval_embed},
};

static int usage(FILE *out) {
    fprintf(out, "usage: retro-eval COMMAND ...\n\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        fprintf(out, "  %-8s %s\n           %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    fprintf(out, "\nEvery command takes --config FILE and --set key=value before its own options, or among them.\n");
    return out == stderr;
}

int main(int argc, char **argv) {
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return usage(stdout);
    for (size_t i = 0; argc >= 2 && i < ARRAY_COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    return usage(stderr);
}
