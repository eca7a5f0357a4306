/* tools/index/index_options.h: the options of retro-index, and which of its commands has which. */
#pragma once

#include "tools/index/index.h"

/* Commands, as bits: which of them have an option. */
enum {
    COMMAND_BUILD = 1 << 0,
    COMMAND_SEARCH = 1 << 1,
    COMMAND_NEIGHBORS = 1 << 2,
    COMMAND_STATS = 1 << 3,
    COMMAND_VERIFY = 1 << 4,
    COMMAND_EXTRACT = 1 << 5,
    COMMAND_LIST = 1 << 6,
    COMMAND_ADD = 1 << 7,
    COMMAND_SHOW = 1 << 8,
    COMMAND_CHANGE = 1 << 9,
    COMMAND_UPDATE = 1 << 10,
    COMMAND_COPY = 1 << 11,
    COMMAND_WATCH = 1 << 12,
    COMMAND_DELETE = 1 << 13,
    COMMAND_REREAD = 1 << 14,
    COMMAND_EMBED = 1 << 15
};

/* Reads the options of one command (a bit) and finds the words behind them; argv[0] is the
 * command's name. With --help, arguments->help is set and nothing else is to be done. */
enum status index_options_parse(struct index_arguments *arguments, unsigned command, int argc,
                                char **argv, struct error *e);
/* Prints the options of a command, for its --help. */
void index_options_print(unsigned command);
