/* server/doors/shared/event.h: events of a stream whose names their clients read: "event: NAME",
 * and an object whose "type" is the same. */
#pragma once

#include "config/json/json_writer.h"

/* Open behind "type". */
void event_begin(struct json_writer *w, struct buffer *out, const char *name);
void event_end(struct json_writer *w);
