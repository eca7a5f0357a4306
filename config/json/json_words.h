/* config/json/json_words.h: the messages of the table reader, for json_table.c. Each sets the
 * reader's error, fault and field, and returns the status. */
#pragma once

#include "config/json/json_table.h"

/* The value at reader->place as messages call it, quoted in the reader's style; it is in
 * reader->field until the next call. */
const char *words_name(struct json_reader *reader);
enum status words_range(struct json_reader *reader, const struct json_field *field,
                        const struct json *found);
enum status words_choice_type(struct json_reader *reader, const struct json_field *field,
                              const struct json *found);
enum status words_list_size(struct json_reader *reader, const struct json_field *field,
                            size_t found);
enum status words_missing(struct json_reader *reader, const char *name);
enum status words_unknown(struct json_reader *reader, const struct json_table *table,
                          struct text_span name);
enum status words_not_an_object(struct json_reader *reader, const struct json *found);
