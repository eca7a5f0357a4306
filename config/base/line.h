/* config/base/line.h: lines for people to read. Names of files and what libraries and clients say
 * may hold anything: raw, they would steer the reader's terminal, or pass for lines of ours. */
#pragma once

#include <stdio.h>

#include "config/base/buffer.h"

/* Appends text[0, size) with control characters, those that turn the direction of letters (U+202E),
 * backslashes and bytes that are not UTF-8 as C writes them: \n, \\, \x1b. Everything else stays as
 * it is. */
void line_escape(struct buffer *buffer, const char *text, size_t size);
/* Appends text[0, size) as the inside of a JSON string; bytes that are not UTF-8 become U+FFFD. */
void line_escape_json(struct buffer *buffer, const char *text, size_t size);
/* Writes the formatted text, escaped, and a newline, in one piece. */
void line_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
