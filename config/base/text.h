/* config/base/text.h: predicates on texts and their characters. A text starts and ends with "", and
 * with itself. */
#pragma once

#include <string.h>

#include "config/base/buffer.h"

/* Spans may hold any bytes; one of no bytes may be NULL. */
static inline bool span_equals(struct text_span left, struct text_span right) {
    return left.size == right.size &&
           (left.size == 0 || memcmp(left.text, right.text, left.size) == 0);
}
static inline bool span_is(struct text_span span, const char *text) {
    return span_equals(span, (struct text_span){text, strlen(text)});
}
static inline bool span_starts_with(struct text_span span, const char *start) {
    size_t size = strlen(start);
    return span.size >= size && (size == 0 || memcmp(span.text, start, size) == 0);
}
static inline bool span_ends_with(struct text_span span, const char *end) {
    size_t size = strlen(end);
    return span.size >= size && (size == 0 || memcmp(span.text + span.size - size, end, size) == 0);
}
/* The order of bytes, a beginning first: below, at or above 0. */
static inline int span_compare(struct text_span left, struct text_span right) {
    size_t size = left.size < right.size ? left.size : right.size;
    int order = size > 0 ? memcmp(left.text, right.text, size) : 0;
    return order ? order : (left.size > right.size) - (left.size < right.size);
}

static inline bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}
static inline bool ends_with(const char *text, const char *end) {
    return span_ends_with((struct text_span){text, strlen(text)}, end);
}

static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
/* A blank, tab, or end of a line. */
static inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
