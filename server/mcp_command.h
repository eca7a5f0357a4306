/* server/mcp_command.h: retro-server mcp: the documents of a configuration for one client, over
 * standard input and output. No model that writes is loaded, and no port is opened. */
#pragma once

#include "server/host/options/config.h"

/* Returns when the input has ended or a signal came. `stop` can be read once one has. */
enum status mcp_command(const struct config *config, int stop, struct error *e);
