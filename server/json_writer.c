/* server/json_writer.c: writes JSON straight into a buffer. See json_writer.h. */
#include "server/json_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX_DEPTH = 63 };

void put_begin(struct json_writer *w, struct buffer *out) { *w = (struct json_writer){.out = out}; }

/* The comma before a value, unless it follows a key or is the first of its container. */
static void before_value(struct json_writer *w) {
    uint64_t bit = (uint64_t)1 << w->depth;
    if (!w->after_key && (w->comma & bit)) buffer_append(w->out, ",", 1);
    w->comma |= bit;
    w->after_key = false;
}

static void container_start(struct json_writer *w, const char *bracket) {
    before_value(w);
    CHECK(w->depth < JSON_MAX_DEPTH);
    buffer_append(w->out, bracket, 1);
    w->depth++;
    w->comma &= ~((uint64_t)1 << w->depth);
}

static void container_end(struct json_writer *w, const char *bracket) {
    CHECK(w->depth > 0 && !w->after_key);
    w->depth--;
    buffer_append(w->out, bracket, 1);
}

void put_object(struct json_writer *w) { container_start(w, "{"); }
void put_object_end(struct json_writer *w) { container_end(w, "}"); }
void put_array(struct json_writer *w) { container_start(w, "["); }
void put_array_end(struct json_writer *w) { container_end(w, "]"); }

void put_key(struct json_writer *w, const char *key) { put_key_n(w, key, strlen(key)); }

void put_key_n(struct json_writer *w, const char *key, size_t n) {
    CHECK(!w->after_key);
    put_string_n(w, key, n);
    buffer_append(w->out, ":", 1);
    w->after_key = true;
}

/* Bytes of the character at s[0, n), 0 when it is not valid UTF-8 (overlong, surrogate, cut, beyond U+10FFFF). */
static size_t character_size(const unsigned char *s, size_t n) {
    size_t size = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (size > n) return 0;
    for (size_t i = 1; i < size; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0;
    if (s[0] == 0xED && s[1] > 0x9F) return 0;
    if (s[0] == 0xF0 && s[1] < 0x90) return 0;
    if (s[0] == 0xF4 && s[1] > 0x8F) return 0;
    return size;
}

bool utf8_valid(const char *s, size_t n) {
    for (size_t i = 0, size; i < n; i += size) {
        size = character_size((const unsigned char *)s + i, n - i);
        if (size == 0) return false;
    }
    return true;
}

static void escape(struct buffer *out, unsigned char c) {
    switch (c) {
        case '"': buffer_append(out, "\\\"", 2); break;
        case '\\': buffer_append(out, "\\\\", 2); break;
        case '\n': buffer_append(out, "\\n", 2); break;
        case '\r': buffer_append(out, "\\r", 2); break;
        case '\t': buffer_append(out, "\\t", 2); break;
        default: buffer_printf(out, "\\u%04x", c);
    }
}

void put_string(struct json_writer *w, const char *s) { put_string_n(w, s, strlen(s)); }

void put_string_n(struct json_writer *w, const char *s, size_t n) {
    const unsigned char *bytes = (const unsigned char *)s;
    before_value(w);
    buffer_append(w->out, "\"", 1);
    for (size_t i = 0, size; i < n; i += size) {
        size = character_size(bytes + i, n - i);
        if (size == 0) {
            buffer_append(w->out, "\xEF\xBF\xBD", 3);
            size = 1;
        } else if (bytes[i] < 0x20 || bytes[i] == '"' || bytes[i] == '\\' || bytes[i] == 0x7F) {
            escape(w->out, bytes[i]);
        } else {
            buffer_append(w->out, s + i, size);
        }
    }
    buffer_append(w->out, "\"", 1);
}

void put_int(struct json_writer *w, int64_t v) {
    before_value(w);
    buffer_printf(w->out, "%lld", (long long)v);
}

void put_bool(struct json_writer *w, bool v) {
    before_value(w);
    buffer_append_string(w->out, v ? "true" : "false");
}

void put_null(struct json_writer *w) {
    before_value(w);
    buffer_append_string(w->out, "null");
}

void put_float(struct json_writer *w, float v) {
    char text[32];
    if (isnan(v)) {
        put_null(w);
        return;
    }
    before_value(w);
    if (isinf(v)) v = v > 0 ? 9999.0f : -9999.0f;
    /* Nine digits always identify a float; most need fewer. */
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    buffer_append_string(w->out, text);
}

void put_key_string(struct json_writer *w, const char *key, const char *s) {
    put_key(w, key);
    put_string(w, s);
}

void put_key_int(struct json_writer *w, const char *key, int64_t v) {
    put_key(w, key);
    put_int(w, v);
}

void put_key_float(struct json_writer *w, const char *key, float v) {
    put_key(w, key);
    put_float(w, v);
}
