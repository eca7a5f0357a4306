/* retro/template/string.c: strings that remember which bytes came from the request, and building
 * them. */
#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

const struct template_string *string_of(struct template_memory *memory, const char *text,
                                        size_t size, bool foreign) {
    struct template_string *template_string = memory_take(memory, sizeof *template_string);
    char *copy = memory_take(memory, size + 1);
    if (size > 0) memcpy(copy, text, size);
    template_string->text = copy;
    template_string->size = size;
    if (foreign && size > 0) template_string->marks = memset(memory_take(memory, size), 1, size);
    return template_string;
}

const struct template_string *string_part(struct template_memory *memory,
                                          const struct template_string *string, size_t from,
                                          size_t to) {
    struct template_string *part = memory_take(memory, sizeof *part);
    part->text = string->text + from;
    part->marks = string->marks ? string->marks + from : NULL;
    part->size = to - from;
    return part;
}

static void builder_reserve(struct text_builder *builder, size_t more) {
    size_t capacity = builder->capacity ? builder->capacity : 64;
    if (builder->capacity - builder->size >= more) return;
    while (capacity - builder->size < more && capacity <= TEMPLATE_MAX_MEMORY) capacity *= 2;
    char *text = memory_take(builder->m, capacity);
    if (builder->size > 0) memcpy(text, builder->text, builder->size);
    builder->text = text;
    if (builder->marks)
        builder->marks = memcpy(memory_take(builder->m, capacity), builder->marks, builder->size);
    builder->capacity = capacity;
}

void builder_bytes(struct text_builder *builder, const char *text, const char *marks, size_t size) {
    if (size == 0) return;
    if (size > TEMPLATE_MAX_MEMORY) memory_take(builder->m, size); /* fails */
    builder_reserve(builder, size);
    memcpy(builder->text + builder->size, text, size);
    if (marks && builder->marks == NULL)
        builder->marks = memory_take(builder->m, builder->capacity);
    if (builder->marks && marks) memcpy(builder->marks + builder->size, marks, size);
    if (builder->marks && marks == NULL) memset(builder->marks + builder->size, 0, size);
    builder->size += size;
}

void builder_words(struct text_builder *builder, const char *words) {
    builder_bytes(builder, words, NULL, strlen(words));
}

void builder_printf(struct text_builder *builder, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    builder_words(builder, text);
}

void builder_part(struct text_builder *builder, const struct template_string *string, size_t from,
                  size_t to) {
    builder_bytes(builder, string->text + from, string->marks ? string->marks + from : NULL,
                  to - from);
}

void builder_add(struct text_builder *builder, const struct template_string *string) {
    builder_part(builder, string, 0, string->size);
}

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

void builder_character(struct text_builder *builder, int32_t c,
                       const struct template_string *string, size_t at) {
    static const char foreign[4] = {1, 1, 1, 1};
    char bytes[4];
    size_t n = write_character(bytes, c);
    builder_bytes(builder, bytes, string && string->marks && string->marks[at] ? foreign : NULL, n);
}

const struct template_string *builder_string(const struct text_builder *builder) {
    struct template_string *string = memory_take(builder->m, sizeof *string);
    string->text = builder->text ? builder->text : "";
    string->marks = builder->marks;
    string->size = builder->size;
    return string;
}

const struct template_string *string_safe(struct template_memory *memory,
                                          const struct template_string *string) {
    struct template_string *safe = memory_take(memory, sizeof *safe);
    *safe = *string;
    safe->safe = true;
    return safe;
}

const struct template_string *string_escape(struct template_memory *memory,
                                            const struct template_string *string) {
    static const char letters[] = "&<>'\"", *const words[] = {"&amp;", "&lt;", "&gt;", "&#39;",
                                                              "&#34;"};
    struct text_builder builder = {.m = memory};
    if (string->safe) return string;
    for (size_t i = 0; i < string->size; i++) {
        const char *found = string->text[i] ? strchr(letters, string->text[i]) : NULL;
        if (found)
            builder_words(&builder, words[found - letters]);
        else
            builder_part(&builder, string, i, i + 1);
    }
    return string_safe(memory, builder_string(&builder));
}

bool string_is(const struct template_string *string, const char *words) {
    return strlen(words) == string->size && memcmp(string->text, words, string->size) == 0;
}

bool string_equal(const struct template_string *left, const struct template_string *right) {
    return left->size == right->size && memcmp(left->text, right->text, left->size) == 0;
}

/* By characters, which in UTF-8 is by bytes. */
int string_compare(const struct template_string *left, const struct template_string *right) {
    int order =
        memcmp(left->text, right->text, left->size < right->size ? left->size : right->size);
    return order ? order : (left->size > right->size) - (left->size < right->size);
}

static bool is_head(char c) { return (c & 0xC0) != 0x80; }

int64_t string_length(const struct template_string *string) {
    int64_t n = 0;
    for (size_t i = 0; i < string->size; i++) n += is_head(string->text[i]);
    return n;
}

size_t string_offset(const struct template_string *string, int64_t character) {
    size_t at = 0;
    for (; character > 0 && at < string->size; character--) {
        at++;
        while (at < string->size && !is_head(string->text[at])) at++;
    }
    return at;
}

size_t string_find(const struct template_string *string, const struct template_string *what,
                   size_t from) {
    if (from > string->size) return SIZE_MAX;
    if (what->size == 0) return from;
    const char *at = memmem(string->text + from, string->size - from, what->text, what->size);
    return at ? (size_t)(at - string->text) : SIZE_MAX;
}

bool python_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_cut(const struct template_string *set, const char *at, size_t n) {
    int32_t c;
    if (set) return memmem(set->text, set->size, at, n) != NULL;
    utf8_read(at, n, &c);
    return python_is_space(c);
}

const struct template_string *string_strip(struct template_memory *memory,
                                           const struct template_string *string,
                                           const struct template_string *set, bool left,
                                           bool right) {
    size_t from = 0, to = string->size;
    while (left && from < to) {
        size_t n = (size_t)utf8_length(string->text + from, to - from);
        if (!is_cut(set, string->text + from, n)) break;
        from += n;
    }
    while (right && from < to) {
        size_t start = to - 1;
        while (start > from && !is_head(string->text[start])) start--;
        if (!is_cut(set, string->text + start, to - start)) break;
        to = start;
    }
    return string_part(memory, string, from, to);
}
