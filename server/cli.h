/* server/cli.h: the command line of retro-server: options to a configuration, and what is printed
 * instead of serving.
 */
#pragma once

#include "server/quick_start.h"

enum cli_action { CLI_SERVE, CLI_EXIT }; /* CLI_EXIT: what was asked for has been printed */

/* The config must be initialised. The file is read first, or a model and documents set options
 * (*start), then --set in order, wherever they stand. */
enum status cli_parse(int argc, char **argv, struct config *config, struct quick_start *start,
                      enum cli_action *action, struct error *e);
