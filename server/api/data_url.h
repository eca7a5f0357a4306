/* server/api/data_url.h: files in data: URLs (RFC 2397), as clients send pictures. Other URLs are refused: the server
 * fetches nothing. */
#pragma once

#include "config/json/json_value.h"
#include "server/api/failure.h"

/* Whether a part is {"type": "image_url", ...}. */
bool picture_part_is(const struct json *part);
/* Appends the bytes of such a part's picture. `of` is whose it is, in messages: "message 3". */
bool picture_part_read(const struct json *part, const char *field, const char *of, struct buffer *out,
                       struct failure *f);
