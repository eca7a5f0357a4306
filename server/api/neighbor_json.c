/* server/api/neighbor_json.c: neighbours as JSON. See neighbor_json.h. */
#include "server/api/neighbor_json.h"

#include <math.h>

void neighbor_write(struct json_writer *w, const struct hit *hit) {
    put_key_string(w, "document", hit->path);
    put_key_string(w, "title", hit->title);
    put_key_int(w, "start", (int64_t)hit->start);
    put_key_int(w, "end", (int64_t)hit->end);
    put_key_float(w, "distance", fmaxf(0, 1 - hit->similarity));
    put_key_string_n(w, "text", hit->text.text, hit->text.size);
}

void neighbor_write_given(struct json_writer *w, struct text_span text) {
    static const char *const unknown[] = {"document", "title", "start", "end", "distance"};
    for (size_t i = 0; i < ARRAY_COUNT(unknown); i++) {
        put_key_null(w, unknown[i]);
    }
    put_key_string_n(w, "text", text.text, text.size);
}
