/* config/options/log_options.c: rows of the log. See log_options.h. */
#include "config/options/log_options.h"

#include "config/base/log.h"

static const struct json_choice levels[] = {{"error", LOG_LEVEL_ERROR},
                                            {"warn", LOG_LEVEL_WARN},
                                            {"info", LOG_LEVEL_INFO},
                                            {"debug", LOG_LEVEL_DEBUG},
                                            {NULL, 0}};

static const struct json_choice formats[] = {
    {"text", LOG_FORMAT_TEXT}, {"json", LOG_FORMAT_JSON}, {NULL, 0}};

static const struct option_row log_rows[] = {
    OPTION_CHOICE(struct log_settings, level, LOG_LEVEL_INFO, levels,
                  "least important messages that are written to stderr"),
    OPTION_CHOICE(struct log_settings, format, LOG_FORMAT_TEXT, formats,
                  "lines for people, or a JSON object a line"),
    OPTION_BOOL(struct log_settings, prompts, false,
                "write what clients send into the line of each request, up to 4096 bytes; else it "
                "is in no line"),
};
const struct option_section log_section = {"log", log_rows, (int)ARRAY_COUNT(log_rows)};
