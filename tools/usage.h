/* tools/usage.h: what the command lines of the tools share: numbers, and what is printed when
 * --help follows a command's name: how it is called, what it does, its options. To standard output,
 * with exit code 0. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/base/base.h"

/* The value of the option `name`. */
static inline enum status usage_number(const char *name, const char *text, long long min,
                                       long long max, long long *number, struct error *e) {
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    if (*end == '\0' && end != text && errno == 0 && *number >= min && *number <= max)
        return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s %s: expected a whole number, %lld .. %lld", name, text,
                     min, max);
}

/* A command of a tool, as --help shows it. */
struct usage {
    const char *name, *arguments, *help; /* "search", "[OPTION...] DIR TEXT", one or more lines */
};

enum { USAGE_COLUMN = 26 };

/* Lines after the first begin in this column. */
static inline void usage_lines(FILE *out, const char *text, int column) {
    for (; *text; text++) {
        putc(*text, out);
        if (*text == '\n') fprintf(out, "%*s", column, "");
    }
    putc('\n', out);
}

static inline void usage_print(FILE *out, const char *program, const struct usage *usage) {
    fprintf(out, "usage: %s %s %s\n  ", program, usage->name, usage->arguments);
    usage_lines(out, usage->help, 2);
}

/* `value` is what follows the option's name; NULL for a flag. */
static inline void usage_option(FILE *out, const char *name, const char *value, const char *help) {
    char text[40];
    snprintf(text, sizeof text, "%s%s%s", name, value ? " " : "", value ? value : "");
    fprintf(out, "  %-*s ", USAGE_COLUMN - 3, text);
    usage_lines(out, help, USAGE_COLUMN);
}

/* All commands of a tool, a line or so each. */
static inline void usage_command(FILE *out, const struct usage *usage, int column) {
    fprintf(out, "  %-*s ", column - 3, usage->name);
    usage_lines(out, usage->help, column);
}
