/* config/json/json_place.h: where in a document a value is: the keys and items on the way to it. */
#pragma once

#include "config/base/buffer.h"

/* One step of the way, on the stack of the function that takes it. */
struct json_place {
    const struct json_place *above; /* NULL: the document itself */
    const char *name;               /* of a member, or NULL */
    size_t item;                    /* of a list, when name is NULL */
};

/* Appends "retrieval.k" or "layers[3].kind". */
void json_place_print(const struct json_place *place, struct buffer *out);
/* The line (from 1) where the member or item begins in the document's text, which the parser does
 * not keep. 0 when the text has no such place. */
int json_place_line(const struct json_place *place, struct text_span text);
