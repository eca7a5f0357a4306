/* config/json/json.h: the only file that includes jansson, which parses every JSON text we read (and writes none).
 * Duplicate keys are errors, NUL characters in strings are allowed. */
#pragma once

#include <jansson.h>

#include "config/json/json_value.h"

/* Parses text[0, size) into *out (release with json_decref). Errors read "name:line:column: what"; name may be a path.
 */
enum status json_load_text(json_t **out, const char *text, size_t size, const char *name, struct error *e);
/* The same for a file of at most JSON_FILE_LIMIT bytes. */
enum status json_load_path(json_t **out, const char *path, struct error *e);

/* Calls take for the record on each line of a file, in order, until one fails; empty lines are skipped. The record is
 * released afterwards. An error names file and line. */
typedef enum status json_line_taker(void *context, json_t *record, struct error *e);
enum status json_read_lines(const char *path, json_line_taker *take, void *context, struct error *e);
