/* config/json/json_raw.h: JSON text as it is spelt: walked over and copied without reading its
 * numbers, which may be of any size, and its names, which may be doubled. The text is valid JSON
 * (json_check); other text gives other bytes of it, and no more. */
#pragma once

#include "config/base/buffer.h"

/* The members of an object or the items of a list, in order. Its end lies behind the text's. */
struct json_walk {
    struct text_span text;
    size_t at;
    bool object;
};

/* From the front of a text. Of a value that has no members or items there are none. */
struct json_walk json_walk_begin(struct text_span text);
/* The next one; false: there is none. *name: the string with its quotation marks, empty in a list.
 */
bool json_walk_next(struct json_walk *walk, struct text_span *name, struct text_span *value);
/* Whether a string with its quotation marks means this text. */
bool json_token_is(struct text_span token, const char *text);
/* Appends the text with blanks as put_begin_spaced has them: on one line. */
void json_respace(struct text_span text, struct buffer *out);
