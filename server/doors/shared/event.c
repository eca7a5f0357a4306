/* server/doors/shared/event.c: see event.h. */
#include "server/doors/shared/event.h"

void event_begin(struct json_writer *w, struct buffer *out, const char *name) {
    buffer_printf(out, "event: %s\ndata: ", name);
    put_begin(w, out);
    put_object(w);
    put_key_string(w, "type", name);
}

void event_end(struct json_writer *w) {
    put_object_end(w);
    buffer_append_string(w->out, "\n\n");
}
