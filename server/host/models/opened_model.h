/* server/host/models/opened_model.h: a model, the device and the communicator it runs on, as a
 * configuration asks for them.
 *
 * With parallel.tensor or parallel.pipeline over 1 it is shared by several ranks. Rank 0 uses the
 * model as if it were alone; the others follow it (session.h). Followers are threads of this
 * process, which live in here and need no further care, or other processes: these run the same
 * program, find opened_model_follows true, and call opened_model_follow in place of everything
 * else. */
#pragma once

#include "server/host/models/budget.h"
#include "server/host/options/config.h"

struct opened_model {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct follower *followers; /* threads */
    int n_followers;
};

/* The purpose that a model is opened for; start and budget may be NULL. Every rank asks for the
 * sessions' limits, on its thread. */
struct opened_model_use {
    enum status (*start)(void *context,
                         struct error *e); /* on rank 0, before the model is looked at */
    void *context;                         /* of start */
    const struct budget_use *budget;       /* which must fit beside the model */
};

/* Fails on all ranks when it fails on one, and before anything is loaded where memory would not do.
 * The config, folder and use, which may be NULL, are borrowed until it returns. */
enum status opened_model_open(struct opened_model *model, const struct config *config,
                              const char *folder, const struct opened_model_use *use,
                              struct error *e);
/* Rank 0 lets its followers go; its session pools are closed. Safe on a zeroed *model. */
void opened_model_close(struct opened_model *model);

static inline bool opened_model_follows(const struct opened_model *model) {
    return model->comm->world->rank > 0;
}
/* Works for rank 0 until it closes its model. */
enum status opened_model_follow(struct opened_model *model, struct error *e);
/* STATUS_DEVICE when a rank is known to be gone, for rank 0 while it has no step to do. Any thread
 * may ask. */
enum status opened_model_check(const struct opened_model *model, struct error *e);
