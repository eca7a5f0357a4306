/* retro/budget.h: whether what is to be loaded fits into the memory there is, said before any of it is taken. */
#pragma once

#include "retro/session.h"

/* The pool of sessions there will be beside a model: limits(context, info, ...) tells once the model is known. */
struct budget_sessions {
    enum status (*limits)(void *context, const struct model_info *info, struct session_limits *l, struct error *e);
    void *context;
};

/* This rank's share of the folder's model, and of its sessions (NULL: none), against what its device can still give.
 * Rank 0 logs one line with the parts where there are sessions. STATUS_NO_MEMORY names the option to lower. Loads
 * nothing, but verifies the folder as model_open does. */
enum status budget_check(const char *folder, struct backend *b, struct comm *c, struct model_options o,
                         const struct budget_sessions *sessions, struct error *e);
