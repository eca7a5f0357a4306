/* config/base/text.h: what a text begins and ends with. A text begins and ends with "", and with itself. */
#pragma once

#include <string.h>

#include "config/base/buffer.h"

static inline bool span_begins_with(struct text_span text, const char *start) {
    size_t size = strlen(start);
    return text.size >= size && memcmp(text.text, start, size) == 0;
}
static inline bool span_ends_with(struct text_span text, const char *end) {
    size_t size = strlen(end);
    return text.size >= size && memcmp(text.text + text.size - size, end, size) == 0;
}
static inline bool text_begins_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}
static inline bool text_ends_with(const char *text, const char *end) {
    return span_ends_with((struct text_span){text, strlen(text)}, end);
}
/* A blank, tab, or end of a line. */
static inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
