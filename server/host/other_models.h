/* server/host/other_models.h: the models of model.others before any is opened: whether they can be,
 * and what they will take. */
#pragma once

#include "server/host/models/budget.h"
#include "server/host/options/config.h"

/* The name of a model in the API: the given one, or its folder's. Owned by the caller. */
char *served_name(const char *name, const char *path);
/* Whether a request can tell the models apart by their names, [n]. */
enum status other_models_check_names(char *const *names, int n, struct error *e);
/* The names that options give the models, and each folder, as --check-config reads the first
 * model's. The error names the entry. */
enum status other_models_check(const struct config *config, struct backend *backend,
                               struct error *e);
/* Adds all of them as one part, with the sessions of decoders, whose limits `sessions` tells;
 * nothing where there are none. */
enum status other_models_measure(const struct config *config, struct backend *backend,
                                 const struct budget_use *sessions, struct budget_parts *parts,
                                 struct error *e);
