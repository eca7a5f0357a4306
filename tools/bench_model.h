/* tools/bench_model.h: a language model with random weights in the shape of a config.json, and timed work for it. */
#pragma once

#include "retro/session.h"

struct bench_model {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    enum dtype kv_dtype;
};

/* folder/config.json gives the shape; its weights are not read. On failure there is nothing to close. */
enum status bench_model_open(struct bench_model *m, const char *folder, const char *device, enum dtype dtype,
                             const struct backend_options *o, struct error *e);
void bench_model_close(struct bench_model *m);

/* `sequences` sequences from an empty cache, without neighbours: a prompt of `prompt` tokens each, then `tokens` steps
 * of one token each. */
struct bench_load {
    int sequences, prompt, tokens;
};

/* Tokens per second of all sequences together; 0 where the load has none. */
struct bench_rates {
    double prompt, tokens;
};

/* Prompts go through in steps of at most 512 rows, with the logits of the last row of each sequence. */
enum status bench_generate(struct bench_rates *rates, struct bench_model *m, const struct bench_load *load,
                           struct error *e);

/* The options of the sub-commands that take a model folder; fields that are set before are the defaults. */
struct bench_options {
    const char *folder;
    enum dtype dtype;
    int threads;
    struct bench_load load;
    bool json;
};

/* --dtype, --threads, --sequences, --prompt, --tokens, --json and FOLDER. False: not understood. */
bool bench_parse(int argc, char **argv, struct bench_options *o);
