/* server/api/neighbor_json.c: neighbours as JSON. See neighbor_json.h. */
#include "server/api/neighbor_json.h"

#include <math.h>

void neighbor_write(struct json_writer *w, const struct tokenizer *t, const struct chunk *c, float similarity) {
    struct buffer text = {0};
    /* Token ids are below 2^31, which was checked when the collection was opened. */
    tokenizer_decode(t, (const int32_t *)c->tokens, c->n_tokens, true, &text);
    put_key_string(w, "document", c->path);
    put_key_string(w, "title", c->title);
    put_key_int(w, "start", (int64_t)c->start);
    put_key_int(w, "end", (int64_t)c->end);
    put_key_float(w, "distance", fmaxf(0, 1 - similarity));
    put_key_string_n(w, "text", text.data, text.size);
    buffer_free(&text);
}

void neighbor_write_given(struct json_writer *w, struct text_span text) {
    static const char *const unknown[] = {"document", "title", "start", "end", "distance"};
    for (size_t i = 0; i < ARRAY_COUNT(unknown); i++) {
        put_key_null(w, unknown[i]);
    }
    put_key_string_n(w, "text", text.text, text.size);
}
