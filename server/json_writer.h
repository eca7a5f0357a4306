/* server/json_writer.h: a small streaming JSON writer. jansson only parses: it drops NaN from arrays and costs up to
 * 80x heap. Commas and nesting are kept by the writer; misuse is caught by CHECK. */
#pragma once

#include "config/buffer.h"

struct json_writer {
    struct buffer *out;
    uint64_t comma; /* bit d: an element was written at depth d */
    int depth;
    bool after_key;
};

void json_begin(struct json_writer *w, struct buffer *out);
void json_object(struct json_writer *w);
void json_object_end(struct json_writer *w);
void json_array(struct json_writer *w);
void json_array_end(struct json_writer *w);
void json_key(struct json_writer *w, const char *key);
void json_string(struct json_writer *w, const char *s);
void json_string_n(struct json_writer *w, const char *s, size_t n); /* invalid UTF-8 becomes U+FFFD */
void json_int(struct json_writer *w, int64_t v);
void json_bool(struct json_writer *w, bool v);
void json_null(struct json_writer *w);
/* Shortest form that reads back as the same float; NaN is null, infinities are -9999 and 9999 (as vLLM). */
void json_float(struct json_writer *w, float v);
