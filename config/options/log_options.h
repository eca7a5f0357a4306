/* config/options/log_options.h: the options of the log, which config/base writes. */
#pragma once

#include "config/options/options.h"

struct log_settings {
    int level;  /* enum log_level */
    int format; /* enum log_format */
    bool prompts;
};
extern const struct option_section log_section;
