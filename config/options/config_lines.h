/* config/options/config_lines.h: the line of a key in JSON text, which jansson does not keep. */
#pragma once

#include <stddef.h>

/* Line (from 1) of the key `section` at the top level, or of `name` inside the object `section` when name is not NULL.
 * The text has been parsed before: it is valid JSON, an object, without duplicate keys. 0 when there is no such key. */
int config_key_line(const char *text, size_t size, const char *section, const char *name);
