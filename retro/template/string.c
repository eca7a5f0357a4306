/* retro/template/string.c: strings that remember which bytes came from the request, and building them. */
#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

const struct template_string *string_of(struct template_memory *m, const char *text, size_t size, bool foreign) {
    struct template_string *s = memory_take(m, sizeof *s);
    char *copy = memory_take(m, size + 1);
    if (size > 0) memcpy(copy, text, size);
    s->text = copy;
    s->size = size;
    if (foreign && size > 0) s->marks = memset(memory_take(m, size), 1, size);
    return s;
}

const struct template_string *string_part(struct template_memory *m, const struct template_string *s, size_t from,
                                          size_t to) {
    struct template_string *part = memory_take(m, sizeof *part);
    part->text = s->text + from;
    part->marks = s->marks ? s->marks + from : NULL;
    part->size = to - from;
    return part;
}

static void builder_reserve(struct text_builder *b, size_t more) {
    size_t capacity = b->capacity ? b->capacity : 64;
    if (b->capacity - b->size >= more) return;
    while (capacity - b->size < more && capacity <= TEMPLATE_MAX_MEMORY) capacity *= 2;
    char *text = memory_take(b->m, capacity);
    if (b->size > 0) memcpy(text, b->text, b->size);
    b->text = text;
    if (b->marks) b->marks = memcpy(memory_take(b->m, capacity), b->marks, b->size);
    b->capacity = capacity;
}

void builder_bytes(struct text_builder *b, const char *text, const char *marks, size_t size) {
    if (size == 0) return;
    if (size > TEMPLATE_MAX_MEMORY) memory_take(b->m, size); /* fails */
    builder_reserve(b, size);
    memcpy(b->text + b->size, text, size);
    if (marks && b->marks == NULL) b->marks = memory_take(b->m, b->capacity);
    if (b->marks && marks) memcpy(b->marks + b->size, marks, size);
    if (b->marks && marks == NULL) memset(b->marks + b->size, 0, size);
    b->size += size;
}

void builder_words(struct text_builder *b, const char *words) { builder_bytes(b, words, NULL, strlen(words)); }

void builder_printf(struct text_builder *b, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    builder_words(b, text);
}

void builder_part(struct text_builder *b, const struct template_string *s, size_t from, size_t to) {
    builder_bytes(b, s->text + from, s->marks ? s->marks + from : NULL, to - from);
}

void builder_add(struct text_builder *b, const struct template_string *s) { builder_part(b, s, 0, s->size); }

static size_t write_character(char *bytes, int32_t c) {
    if (c < 0x80) {
        bytes[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3F));
    bytes[0] = (char)(heads[n] | c);
    return n;
}

void builder_character(struct text_builder *b, int32_t c, const struct template_string *s, size_t at) {
    static const char foreign[4] = {1, 1, 1, 1};
    char bytes[4];
    size_t n = write_character(bytes, c);
    builder_bytes(b, bytes, s && s->marks && s->marks[at] ? foreign : NULL, n);
}

const struct template_string *builder_string(const struct text_builder *b) {
    struct template_string *s = memory_take(b->m, sizeof *s);
    s->text = b->text ? b->text : "";
    s->marks = b->marks;
    s->size = b->size;
    return s;
}

const struct template_string *string_safe(struct template_memory *m, const struct template_string *s) {
    struct template_string *safe = memory_take(m, sizeof *safe);
    *safe = *s;
    safe->safe = true;
    return safe;
}

const struct template_string *string_escape(struct template_memory *m, const struct template_string *s) {
    static const char letters[] = "&<>'\"", *const words[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct text_builder b = {.m = m};
    if (s->safe) return s;
    for (size_t i = 0; i < s->size; i++) {
        const char *found = s->text[i] ? strchr(letters, s->text[i]) : NULL;
        if (found)
            builder_words(&b, words[found - letters]);
        else
            builder_part(&b, s, i, i + 1);
    }
    return string_safe(m, builder_string(&b));
}

bool string_is(const struct template_string *s, const char *words) {
    return strlen(words) == s->size && memcmp(s->text, words, s->size) == 0;
}

bool string_equal(const struct template_string *a, const struct template_string *b) {
    return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

/* By characters, which in UTF-8 is by bytes. */
int string_compare(const struct template_string *a, const struct template_string *b) {
    int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static bool is_head(char c) { return (c & 0xC0) != 0x80; }

int64_t string_length(const struct template_string *s) {
    int64_t n = 0;
    for (size_t i = 0; i < s->size; i++) n += is_head(s->text[i]);
    return n;
}

size_t string_offset(const struct template_string *s, int64_t character) {
    size_t at = 0;
    for (; character > 0 && at < s->size; character--) {
        at++;
        while (at < s->size && !is_head(s->text[at])) at++;
    }
    return at;
}

size_t string_find(const struct template_string *s, const struct template_string *what, size_t from) {
    if (from > s->size) return SIZE_MAX;
    if (what->size == 0) return from;
    const char *at = memmem(s->text + from, s->size - from, what->text, what->size);
    return at ? (size_t)(at - s->text) : SIZE_MAX;
}

bool python_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_cut(const struct template_string *set, const char *at, size_t n) {
    int32_t c;
    if (set) return memmem(set->text, set->size, at, n) != NULL;
    utf8_read(at, n, &c);
    return python_is_space(c);
}

const struct template_string *string_strip(struct template_memory *m, const struct template_string *s,
                                           const struct template_string *set, bool left, bool right) {
    size_t from = 0, to = s->size;
    while (left && from < to) {
        size_t n = (size_t)utf8_length(s->text + from, to - from);
        if (!is_cut(set, s->text + from, n)) break;
        from += n;
    }
    while (right && from < to) {
        size_t start = to - 1;
        while (start > from && !is_head(s->text[start])) start--;
        if (!is_cut(set, s->text + start, to - start)) break;
        to = start;
    }
    return string_part(m, s, from, to);
}
