/* retro/budget.h: whether what is to be loaded fits into the memory there is, said before any of it is taken. */
#pragma once

#include "retro/session.h"

/* This rank's share of the folder's model, and of a pool of sessions beside it, against what its device can still give.
 * sessions(context, info, ...) tells the pool's limits once the model is known; NULL: there will be none. Rank 0 logs
 * one line with the parts where there is a pool. STATUS_NO_MEMORY names the option to lower. Loads nothing, but
 * verifies the folder as model_open does. */
typedef enum status budget_sessions(void *context, const struct model_info *info, struct session_limits *l,
                                    struct error *e);
enum status budget_check(const char *folder, struct backend *b, struct comm *c, struct model_options o,
                         budget_sessions *sessions, void *context, struct error *e);
