/* server/json_writer.h: a small streaming JSON writer. jansson only parses: it drops NaN from arrays and costs up to
 * 80x heap; the names are put_..., as json_... is jansson's. Commas and nesting are kept by the writer; misuse is
 * caught by CHECK. */
#pragma once

#include "config/buffer.h"

struct json_writer {
    struct buffer *out;
    uint64_t comma; /* bit d: an element was written at depth d */
    int depth;
    bool after_key;
};

/* Whether s[0, n) is whole, valid UTF-8. */
bool utf8_valid(const char *s, size_t n);

void put_begin(struct json_writer *w, struct buffer *out);
void put_object(struct json_writer *w);
void put_object_end(struct json_writer *w);
void put_array(struct json_writer *w);
void put_array_end(struct json_writer *w);
void put_key(struct json_writer *w, const char *key);
void put_key_n(struct json_writer *w, const char *key, size_t n);
void put_string(struct json_writer *w, const char *s);
void put_string_n(struct json_writer *w, const char *s, size_t n); /* invalid UTF-8 becomes U+FFFD */
void put_int(struct json_writer *w, int64_t v);
void put_bool(struct json_writer *w, bool v);
void put_null(struct json_writer *w);
/* Shortest form that reads back as the same float; NaN is null, infinities are -9999 and 9999 (as vLLM). */
void put_float(struct json_writer *w, float v);
/* A key and its value. */
void put_key_string(struct json_writer *w, const char *key, const char *s);
void put_key_int(struct json_writer *w, const char *key, int64_t v);
void put_key_float(struct json_writer *w, const char *key, float v);
