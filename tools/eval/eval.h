/* tools/eval/eval.h: the sub-commands of retro-eval, one file each, and the command line they
 * share. A sub-command takes the arguments after its name and returns the exit status: 0 passed, 1
 * failed or could not run. */
#pragma once

#include "config/base/line.h"
#include "config/json/json_value.h"
#include "server/host/models/opened_model.h"
#include "tools/usage.h"

int eval_parity(const struct usage *self, int argc, char **argv);
int eval_embed(const struct usage *self, int argc, char **argv);
int eval_ppl(const struct usage *self, int argc, char **argv);
int eval_retrieval(const struct usage *self, int argc, char **argv);
int eval_beir(const struct usage *self, int argc, char **argv);
int eval_rerank(const struct usage *self, int argc, char **argv);
int eval_support(const struct usage *self, int argc, char **argv);
int eval_chat(const struct usage *self, int argc, char **argv);
int eval_lm(const struct usage *self, int argc, char **argv);
int eval_quotes(const struct usage *self, int argc, char **argv);
int eval_picture(const struct usage *self, int argc, char **argv);

/* An option of one sub-command, and where its value goes. */
enum eval_option_kind {
    EVAL_OPTION_TEXT,   /* const char *, borrowed from argv */
    EVAL_OPTION_COUNT,  /* int, at least 2 */
    EVAL_OPTION_SEED,   /* uint64_t */
    EVAL_OPTION_NUMBER, /* float, at least 0 */
    EVAL_OPTION_FLAG    /* bool */
};
struct eval_option {
    const char *name, *value,
        *help; /* with the dashes; value is NULL of a flag, else what follows the name */
    enum eval_option_kind kind;
    void *to;
};

/* Reads the options before the first argument that is none, in order; `options` end with a row of
 * zeros. --config FILE and --set KEY=VALUE, which every sub-command takes, go into *config; --help
 * prints them all. Returns the index of that argument, EVAL_FAILED with *e set, or EVAL_HELPED. */
enum { EVAL_FAILED = -1, EVAL_HELPED = -2 };
int eval_parse(const struct usage *self, int argc, char **argv, const struct eval_option *options,
               struct config *config, struct error *e);

/* 95 % interval of sum(numerator) / sum(denominator) over n resampled documents or records
 * (percentile bootstrap, 1000 draws). The same n and seed draw the same resamples, so that of a
 * difference is paired. */
enum { EVAL_DRAWS = 1000 };
struct estimate {
    double value, low, high; /* NAN when the denominators sum to nothing */
};
struct estimate estimate_ratio(const double *numerator, const double *denominator, int n,
                               uint64_t seed);
