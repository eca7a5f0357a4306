/* tools/index/index_color.h: lines that begin with a word in colour, on terminals alone. NO_COLOR
 * (https://no-color.org), and TERM=dumb, keep them plain. */
#pragma once

#include <stdio.h>

#include "config/base/base.h"

enum line_color {
    COLOR_NONE = 0,
    COLOR_BOLD = 1,
    COLOR_RED = 31,
    COLOR_GREEN = 32,
    COLOR_YELLOW = 33,
    COLOR_CYAN = 36
};

/* The word in colour, the formatted text, and a newline, escaped as line_print does, in one piece.
 */
void color_line(FILE *out, enum line_color color, const char *word, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "skipped: " and the reason, with the option that a limit has. */
void color_skipped(const struct error *why);
struct document_text;
/* A "note:" for the guess that was made of a document, and a "lost:" for each part of it that was
 * not read, with the document's name before it. */
void color_notes(const char *path, const char *part, const struct document_text *text);
