/* server/doors/shared/call_input.c: see call_input.h. */
#include "server/doors/shared/call_input.h"

void put_call_input(struct json_writer *w, const struct buffer *arguments) {
    struct text_span text = {arguments->data, arguments->size};
    if (json_check(text) == JSON_KIND_OBJECT)
        put_raw(w, text);
    else
        put_string_n(w, text.text, text.size);
}
