/* config/options/log_options.c: rows of the log. See log_options.h. */
#include "config/options/log_options.h"

static const struct json_choice levels[] = {{"error", LOG_LEVEL_ERROR},
                                            {"warn", LOG_LEVEL_WARN},
                                            {"info", LOG_LEVEL_INFO},
                                            {"debug", LOG_LEVEL_DEBUG},
                                            {NULL, 0}};

static const struct option_row log_rows[] = {
    OPTION_CHOICE(struct log_settings, level, LOG_LEVEL_INFO, levels,
                  "least important messages that are written to stderr"),
};
const struct option_section log_section = {"log", log_rows, (int)ARRAY_COUNT(log_rows)};
