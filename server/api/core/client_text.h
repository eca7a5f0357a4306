/* server/api/core/client_text.h: what a client may read of an error. A failure of the server's own
 * files names them, which is for the operator alone; a refusal names what the client sent. */
#pragma once

#include "config/base/buffer.h"

/* Appends the error's text. Of the server's own failures (STATUS_IO, _CORRUPT, _NO_MEMORY, _DEVICE,
 * _INTERNAL, _BUSY) every path becomes "a file of the server", and the log gets the whole text. */
void client_text(const struct error *e, struct buffer *out);
