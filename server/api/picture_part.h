/* server/api/picture_part.h: pictures as clients send them: {"type": "image_url", "image_url": {"url": "data:..."}}.
 * URLs other than data: are refused: the server fetches nothing. */
#pragma once

#include "config/json/json_value.h"
#include "server/api/failure.h"

/* Whether a part is {"type": "image_url", ...}. */
bool picture_part_is(const struct json *part);
/* The bytes of such a part's picture; *out is cleared first. `of` is whose it is, in messages: "message 3". */
bool picture_part_read(const struct json *part, const char *field, const char *of, struct buffer *out,
                       struct failure *f);
