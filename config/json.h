/* config/json.h: the only file that includes jansson, which parses every JSON text we read (and writes none). Duplicate
 * keys are errors, NUL characters in strings are allowed. */
#pragma once

#include <jansson.h>

#include "config/buffer.h"

enum { JSON_FILE_LIMIT = 256 << 20 };

/* Parses text[0, size) into *out (release with json_decref). Errors read "name:line:column: what"; name may be a path.
 */
enum status json_load_text(json_t **out, const char *text, size_t size, const char *name, struct error *e);
/* The same for a file of at most JSON_FILE_LIMIT bytes. */
enum status json_load_path(json_t **out, const char *path, struct error *e);
