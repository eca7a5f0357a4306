/* config/json/json_writer.h: the one writer of JSON, which streams into a buffer. jansson only
 * parses: it drops NaN from arrays and costs up to 80x heap. Commas, blanks and nesting are kept by
 * the writer; misuse is caught by CHECK. */
#pragma once

#include <stdio.h>

#include "config/json/json_value.h"

/* A parsed value, within as many levels of our own. */
enum { JSON_WRITTEN_DEPTH = 2 * JSON_DEPTH_LIMIT };

struct json_writer {
    struct buffer *out;
    bool comma[JSON_WRITTEN_DEPTH + 1]; /* an element was written at this depth; at 0, where values
                                           are documents of their own, never */
    int depth;
    int indent; /* blanks a level of an indented document, 0: all on one line */
    int line;   /* depth from which on everything is on one line */
    bool spaced;
    bool after_key;
};

/* {"a":[1,2]} */
void put_begin(struct json_writer *w, struct buffer *out);
/* {"a": [1, 2]} */
void put_begin_spaced(struct json_writer *w, struct buffer *out);
/* A line for each member and item, `indent` blanks deeper in each container. */
void put_begin_indented(struct json_writer *w, struct buffer *out, int indent);
/* Ends the document's line and writes what has been put so far to a file; the buffer is empty
 * afterwards. */
void put_line(struct json_writer *w, FILE *file);

void put_object(struct json_writer *w);
/* An object or an array on one line of an indented document. */
void put_object_line(struct json_writer *w);
void put_array_line(struct json_writer *w);
void put_object_end(struct json_writer *w);
void put_array(struct json_writer *w);
void put_array_end(struct json_writer *w);
void put_string(struct json_writer *w, const char *s);
void put_string_n(struct json_writer *w, const char *s,
                  size_t n); /* invalid UTF-8 becomes U+FFFD; n 0: s may be NULL */
void put_int(struct json_writer *w, int64_t v);
void put_bool(struct json_writer *w, bool v);
void put_null(struct json_writer *w);
void put_json(struct json_writer *w, const struct json *value); /* a parsed value; absent is null */
void put_raw(struct json_writer *w, struct text_span value); /* one value, which is JSON already */
/* Shortest form that reads back as the same float; NaN is null, infinities are -9999 and 9999 (as
 * vLLM). */
void put_float(struct json_writer *w, float v);
/* Shortest form that reads back as the same double, with a point or an exponent: a real, not an
 * integer. Finite. */
void put_double(struct json_writer *w, double v);
/* At most `digits` significant digits; what is not finite is null. */
void put_rounded(struct json_writer *w, double v, int digits);
/* A key, whose value comes next. */
void put_key_n(struct json_writer *w, const char *key, size_t n);
void put_key(struct json_writer *w, const char *key);
/* A key and its value, or how that begins. */
void put_key_object(struct json_writer *w, const char *key);
void put_key_array(struct json_writer *w, const char *key);
void put_key_string(struct json_writer *w, const char *key, const char *s); /* s NULL: null */
void put_key_string_n(struct json_writer *w, const char *key, const char *s, size_t n);
void put_key_int(struct json_writer *w, const char *key, int64_t v);
void put_key_float(struct json_writer *w, const char *key, float v);
void put_key_bool(struct json_writer *w, const char *key, bool v);
void put_key_hex(struct json_writer *w, const char *key,
                 uint64_t v); /* as a string of 16 lower-case digits */
void put_key_null(struct json_writer *w, const char *key);
