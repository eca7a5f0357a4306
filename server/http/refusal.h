/* server/http/refusal.h: a whole response that says no, in bytes. The HTTP library answers only
 * before a body or after it; a body that is too large or too slow is answered in its midst. */
#pragma once

#include "server/api/core/failure.h"

/* Appends status line, headers and body; the connection ends behind it. `id` of the request; NULL:
 * it has none. */
void refusal_write(const struct failure *failure, const char *id, struct buffer *out);
