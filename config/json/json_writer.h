/* config/json/json_writer.h: a small streaming JSON writer. jansson only parses: it drops NaN from arrays and costs up
 * to 80x heap; the names are put_..., as json_... is jansson's. Commas and nesting are kept by the writer; misuse is
 * caught by CHECK. */
#pragma once

#include "config/base/buffer.h"

struct json_writer {
    struct buffer *out;
    uint64_t comma; /* bit d: an element was written at depth d */
    int depth;
    bool after_key;
};

void put_begin(struct json_writer *w, struct buffer *out);
void put_object(struct json_writer *w);
void put_object_end(struct json_writer *w);
void put_array(struct json_writer *w);
void put_array_end(struct json_writer *w);
void put_string_n(struct json_writer *w, const char *s,
                  size_t n); /* invalid UTF-8 becomes U+FFFD; n 0: s may be NULL */
void put_int(struct json_writer *w, int64_t v);
void put_null(struct json_writer *w);
/* Shortest form that reads back as the same float; NaN is null, infinities are -9999 and 9999 (as vLLM). */
void put_float(struct json_writer *w, float v);
/* A key, whose value comes next. */
void put_key_n(struct json_writer *w, const char *key, size_t n);
/* A key and its value, or how that begins. */
void put_key_object(struct json_writer *w, const char *key);
void put_key_array(struct json_writer *w, const char *key);
void put_key_string(struct json_writer *w, const char *key, const char *s); /* s NULL: null */
void put_key_string_n(struct json_writer *w, const char *key, const char *s, size_t n);
void put_key_int(struct json_writer *w, const char *key, int64_t v);
void put_key_float(struct json_writer *w, const char *key, float v);
void put_key_null(struct json_writer *w, const char *key);
