/* config/base/data_url.h: the bytes of a data: URL (RFC 2397): "data:image/png;base64,iVBO...". */
#pragma once

#include "config/base/buffer.h"

/* Whether the text begins with "data:", in letters of any case. */
bool data_url_is(struct text_span url);
/* *bytes is cleared first; *type becomes the media type without its parameters, a part of `url`, or
 * "text/plain" where there is none. Base64 is read as browsers read it: white space is ignored, and
 * the padding may be missing. STATUS_INVALID for a text that is no data: URL, STATUS_TOO_LARGE for
 * more than `limit` bytes. Errors do not show the data, and *bytes may then hold a part of it. */
enum status data_url_read(struct buffer *bytes, struct text_span *type, struct text_span url,
                          size_t limit, struct error *e);
