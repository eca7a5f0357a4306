/* tools/bench/bench_model.h: a language model, mostly one with random weights, and timed work for
 * it. */
#pragma once

#include "retro/run/session/session.h"
#include "tools/bench/bench.h"

struct bench_model {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
};

struct bench_source {
    const char *folder; /* whose config.json gives the shape; NULL: `shape` does */
    const struct bench_shape *shape;
    bool retro;  /* `shape` as a model that reads neighbours */
    bool stored; /* the folder's weights in their own types, else random ones of `dtype` */
    enum dtype dtype;
    const char *device;
    struct backend_options backend;
};
/* The model that a command line asks for: a plain one with random weights on the CPU. */
struct bench_source bench_source_of(const struct bench_options *options);

/* On failure there is nothing to close. */
enum status bench_model_open(struct bench_model *model, const struct bench_source *source,
                             struct error *e);
void bench_model_close(struct bench_model *model);

/* The cost of tokens that read no neighbours. */
struct bench_cost {
    double read_bytes;    /* of weights, by one step of one token */
    double row_weights;   /* multiplied by every row; the matrices but not attention */
    double logit_weights; /* of the output matrix: multiplied by rows whose logits are wanted */
};
struct bench_cost bench_cost_of(const struct model_info *info);

/* `sequences` sequences from an empty cache, without neighbours: a prompt of `prompt` tokens each,
 * then `tokens` steps of one token each. A model with an encoder reads a source with the first
 * tokens of the prompt. */
struct bench_load {
    int sequences, prompt, tokens;
    int source; /* tokens of each sequence's source; 0 for models without an encoder */
};

/* Tokens per second of all sequences together; 0 where the load has none. */
struct bench_rates {
    double prompt, tokens;
};

/* Prompts go through in steps of at most 512 rows, with the logits of the last row of each
 * sequence. */
enum status bench_generate(struct bench_rates *rates, struct bench_model *model,
                           const struct bench_load *load, struct error *e);
