/* config/options/config_table.h: the rows of the option table, shared by the parser (config.c) and the printers
 * (config_print.c). The table is the only place that knows an option's name, type, default, range and help. */
#pragma once

#include "config/options/config.h"

enum option_type { OPTION_BOOL, OPTION_INT, OPTION_DOUBLE, OPTION_STRING, OPTION_PATH, OPTION_ENUM };

struct option {
    const char *key; /* dotted: section.name */
    enum option_type type;
    size_t offset;            /* of the field in struct config: bool, int, double or char * */
    double number;            /* default of bool, int, double, enum (its index in names) */
    const char *text;         /* default of string and path */
    double min, max;          /* allowed, both included: int and double only */
    const char *const *names; /* enum only: NULL-terminated, the value is the index */
    const char *help;         /* one line, no full stop */
};

extern const struct option option_table[];
extern const int option_count;

/* NULL when there is no such option. */
const struct option *option_find(const char *key);
/* The option nearest to a misspelt key by edit distance, NULL when none is near. */
const struct option *option_nearest(const char *key);
/* Whether `section` is the part before the dot of an option; the nearest such part (NULL: none) otherwise. */
bool section_known(const char *section);
bool section_nearest(const char *section, char *name, size_t size);
/* Bytes of the key before its dot. */
size_t option_section_length(const struct option *o);
/* "integer", "true or false", ... for messages and documentation. */
const char *option_type_name(enum option_type type);
/* "0 .. 65535", "cpu, cuda" or "" when the type says it all. */
const char *option_range_text(const struct option *o, char *text, size_t size);
