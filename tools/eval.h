/* tools/eval.h: the sub-commands of retro-eval, one file each. Each takes the arguments after its name and returns the
 * exit status: 0 passed, 1 failed or could not run. */
#pragma once

#include "config/config.h"
#include "retro/model.h"

int eval_parity(int argc, char **argv);
int eval_embed(int argc, char **argv);
int eval_ppl(int argc, char **argv);

/* A model with the backend and communicator it runs on, opened from a folder by the options of a configuration. */
struct opened_model {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
};
enum status opened_model_open(struct opened_model *o, const struct config *c, const char *folder, struct error *e);
void opened_model_close(struct opened_model *o);
