/* tools/retro_eval.c: retro-eval, which checks models: parity with a reference, embeddings. Dispatch and what the
 * sub-commands share. */
#include <stdio.h>
#include <string.h>

#include "tools/eval.h"

static const struct command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"parity", "[--tolerance X] [--set key=value] DIR...",
     "run the reference cases in DIR forward and incrementally, compare logits and tokens", eval_parity},
    {"embed", "[--set key=value] FOLDER TEXT...",
     "print the embedding of each TEXT, one JSON array a line (TEXT - reads them as JSON lines)", eval_embed},
    {"ppl", "--config FILE [--set key=value] [--window N] [--baseline FOLDER] [--seed N] [--curve CSV] FILE...",
     "bits per byte of documents with retrieval on, off and random, and of a plain GPT", eval_ppl},
};

static int usage(FILE *out) {
    fprintf(out, "usage: retro-eval COMMAND ...\n\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        fprintf(out, "  %-8s %s\n           %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    return out == stderr;
}

enum status opened_model_open(struct opened_model *o, const struct config *c, const char *folder, struct error *e) {
    *o = (struct opened_model){0};
    struct backend_options options = {.threads = c->model.threads};
    struct model_options model_options = model_options_of(c->model.dtype);
    enum status status = backend_open(&o->backend, c->model.device, &options, e);
    if (status == STATUS_OK) status = comm_open_single(&o->comm, e);
    if (status == STATUS_OK) status = model_open(&o->model, folder, o->backend, o->comm, &model_options, e);
    if (status) opened_model_close(o);
    return status;
}

void opened_model_close(struct opened_model *o) {
    model_close(o->model);
    comm_close(o->comm);
    backend_close(o->backend);
    *o = (struct opened_model){0};
}

int main(int argc, char **argv) {
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return usage(stdout);
    for (size_t i = 0; argc >= 2 && i < ARRAY_COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    return usage(stderr);
}
