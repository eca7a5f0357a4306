/* server/doors/conformance/conformance.h: the fields of each door, read off the tables that its
 * requests are checked by. */
#pragma once

#include "config/base/buffer.h"

/* All of docs/agents-conformance.md. */
void conformance_print(struct buffer *out);
