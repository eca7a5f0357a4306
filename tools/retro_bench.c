/* tools/retro_bench.c: retro-bench: how fast this machine is, and how much of it the kernels use. */
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"roofline", "read bandwidth and multiplication rates of this machine, by number of threads", bench_roofline},
    {"linear", "the matrix product, against the roofline", bench_linear},
    {"decode", "tokens per second of one sequence, against the read bandwidth", bench_decode},
    {"prefill", "tokens per second of a prompt", bench_prefill},
    {"batch", "tokens per second of many sequences together", bench_batch},
    {"peers", "JSON lines under the names that other programs use, for a model of the same shape", bench_peers},
    {"embed", "texts per second of an embedder folder", bench_embed},
    {"device", "JSON lines: a GPU's ceilings, and what models of some shapes reach of them", bench_device},
};

static void print_usage(FILE *out) {
    fprintf(out, "usage: retro-bench COMMAND [OPTION...]; COMMAND --help says more\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
}

int main(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], "--help") == 0) {
        print_usage(stdout);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < ARRAY_COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    if (argc >= 2) fprintf(stderr, "retro-bench: there is no command \"%s\"\n", argv[1]);
    print_usage(stderr);
    return 2;
}
