/* config/json/json_words.h: the messages of the table reader, for json_table.c. Each sets the
 * reader's error, fault and field, and returns the status. */
#pragma once

#include "config/json/json_table.h"

/* The value at r->place as messages call it, quoted in the reader's style; it is in r->field until
 * the next call. */
const char *words_name(struct json_reader *r);
enum status words_range(struct json_reader *r, const struct json_field *f, const struct json *found);
enum status words_choice_type(struct json_reader *r, const struct json_field *f, const struct json *found);
enum status words_list_size(struct json_reader *r, const struct json_field *f, size_t found);
enum status words_missing(struct json_reader *r, const char *name);
enum status words_unknown(struct json_reader *r, const struct json_table *t, struct text_span name);
enum status words_not_an_object(struct json_reader *r, const struct json *found);
