/* config/json/json_writer.c: writes JSON straight into a buffer. See json_writer.h. */
#include "config/json/json_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

void put_begin(struct json_writer *w, struct buffer *out) {
    *w = (struct json_writer){.out = out, .line = JSON_WRITTEN_DEPTH};
}

void put_begin_spaced(struct json_writer *w, struct buffer *out) {
    put_begin(w, out);
    w->spaced = true;
}

void put_begin_indented(struct json_writer *w, struct buffer *out, int indent) {
    put_begin_spaced(w, out);
    w->indent = indent;
}

void put_line(struct json_writer *w, FILE *file) {
    CHECK(w->depth == 0 && !w->after_key);
    buffer_append(w->out, "\n", 1);
    fwrite(w->out->data, 1, w->out->size, file);
    buffer_clear(w->out);
}

/* Whether members and items at the present depth have a line each. */
static bool has_lines(const struct json_writer *w) {
    return w->indent > 0 && w->depth > 0 && w->depth < w->line;
}

static void start_line(struct json_writer *w) {
    buffer_printf(w->out, "\n%*s", w->indent * w->depth, "");
}

/* The comma before a value, unless it follows a key or is the first of its container, and the
 * blanks. */
static void before_value(struct json_writer *w) {
    bool comma = !w->after_key && w->comma[w->depth];
    if (comma) buffer_append(w->out, ",", 1);
    if (!w->after_key && has_lines(w))
        start_line(w);
    else if (comma && w->spaced)
        buffer_append(w->out, " ", 1);
    w->comma[w->depth] = w->depth > 0;
    w->after_key = false;
}

static void container_start(struct json_writer *w, const char *bracket) {
    before_value(w);
    CHECK(w->depth < JSON_WRITTEN_DEPTH);
    buffer_append(w->out, bracket, 1);
    w->depth++;
    w->comma[w->depth] = false;
}

static void container_end(struct json_writer *w, const char *bracket) {
    CHECK(w->depth > 0 && !w->after_key);
    bool lines = has_lines(w) && w->comma[w->depth];
    w->depth--;
    if (lines) start_line(w);
    if (w->depth < w->line) w->line = JSON_WRITTEN_DEPTH;
    buffer_append(w->out, bracket, 1);
}

void put_object(struct json_writer *w) { container_start(w, "{"); }
void put_object_end(struct json_writer *w) { container_end(w, "}"); }
void put_array(struct json_writer *w) { container_start(w, "["); }
void put_array_end(struct json_writer *w) { container_end(w, "]"); }

void put_object_line(struct json_writer *w) {
    put_object(w);
    w->line = min_int(w->line, w->depth);
}

void put_array_line(struct json_writer *w) {
    put_array(w);
    w->line = min_int(w->line, w->depth);
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

void put_string_n(struct json_writer *w, const char *s, size_t n) {
    before_value(w);
    buffer_append(w->out, "\"", 1);
    for (size_t i = 0, size; i < n; i += size) {
        unsigned char c = (unsigned char)s[i];
        size = (size_t)utf8_length(s + i, n - i);
        if (size == 0) {
            buffer_append(w->out, "\xEF\xBF\xBD", 3);
            size = 1;
        } else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7F) {
            escape(w->out, c);
        } else {
            buffer_append(w->out, s + i, size);
        }
    }
    buffer_append(w->out, "\"", 1);
}

void put_string(struct json_writer *w, const char *s) { put_string_n(w, s, strlen(s)); }

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

void put_raw(struct json_writer *w, struct text_span value) {
    before_value(w);
    buffer_append(w->out, value.text, value.size);
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

void put_double(struct json_writer *w, double v) {
    char text[40];
    CHECK(isfinite(v));
    before_value(w);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    buffer_printf(w->out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

void put_rounded(struct json_writer *w, double v, int digits) {
    if (!isfinite(v)) {
        put_null(w);
        return;
    }
    before_value(w);
    buffer_printf(w->out, "%.*g", digits, v);
}

static void put_list(struct json_writer *w, const struct json *list) {
    put_array(w);
    for (size_t i = 0; i < json_count(list); i++) put_json(w, json_item(list, i));
    put_array_end(w);
}

static void put_members(struct json_writer *w, const struct json *object) {
    put_object(w);
    for (struct json_entry it = {0}; json_next(object, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    put_object_end(w);
}

void put_json(struct json_writer *w, const struct json *value) {
    struct text_span text = json_text(value);
    switch (json_kind(value)) {
        case JSON_KIND_ABSENT:
        case JSON_KIND_NULL: put_null(w); break;
        case JSON_KIND_BOOL: put_bool(w, json_bool(value)); break;
        case JSON_KIND_INT: put_int(w, json_int(value)); break;
        case JSON_KIND_REAL: put_double(w, json_double(value)); break;
        case JSON_KIND_TEXT: put_string_n(w, text.text, text.size); break;
        case JSON_KIND_LIST: put_list(w, value); break;
        case JSON_KIND_OBJECT: put_members(w, value); break;
    }
}

void put_key_n(struct json_writer *w, const char *key, size_t n) {
    CHECK(!w->after_key);
    put_string_n(w, key, n);
    buffer_append_string(w->out, w->spaced ? ": " : ":");
    w->after_key = true;
}

void put_key(struct json_writer *w, const char *key) { put_key_n(w, key, strlen(key)); }

void put_key_object(struct json_writer *w, const char *key) {
    put_key(w, key);
    put_object(w);
}

void put_key_array(struct json_writer *w, const char *key) {
    put_key(w, key);
    put_array(w);
}

void put_key_string(struct json_writer *w, const char *key, const char *s) {
    if (s)
        put_key_string_n(w, key, s, strlen(s));
    else
        put_key_null(w, key);
}

void put_key_string_n(struct json_writer *w, const char *key, const char *s, size_t n) {
    put_key(w, key);
    put_string_n(w, s, n);
}

void put_key_int(struct json_writer *w, const char *key, int64_t v) {
    put_key(w, key);
    put_int(w, v);
}

void put_key_float(struct json_writer *w, const char *key, float v) {
    put_key(w, key);
    put_float(w, v);
}

void put_key_bool(struct json_writer *w, const char *key, bool v) {
    put_key(w, key);
    put_bool(w, v);
}

void put_key_hex(struct json_writer *w, const char *key, uint64_t v) {
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)v);
    put_key_string(w, key, digits);
}

void put_key_null(struct json_writer *w, const char *key) {
    put_key(w, key);
    put_null(w);
}
