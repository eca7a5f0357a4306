/* server/cli_check.h: --check-config: what a configuration names is tried step by step, and each
 * step is told on standard error. */
#pragma once

#include "server/host/options/config.h"
#include "server/http/listen.h"

/* Of options that config_check has taken; `file` is where they come from, NULL for none. The first
 * step that fails ends the check: e says why, and the steps that were not reached are named. */
enum status cli_check(const struct config *config, const char *file, struct error *e);
/* Whether a server at this place has the keys that server.require_keys asks for. */
enum status cli_check_keys(const struct config *config, const struct http_place *place,
                           struct error *e);
