/* config/base/utf8.c: reading UTF-8 with care. See utf8.h. */
#include "config/base/utf8.h"

int utf8_read(const char *p, size_t n, int32_t *character) {
    const uint8_t *b = (const uint8_t *)p;
    if (b[0] < 0x80) {
        *character = b[0];
        return 1;
    }
    int length = b[0] < 0xC2 ? 0 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : b[0] < 0xF5 ? 4 : 0;
    if (length == 0) {
        *character = UTF8_INVALID;
        return 1;
    }
    /* The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF. */
    uint8_t low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
    int32_t c = b[0] & (0x7F >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n) {
            *character = UTF8_INCOMPLETE;
            return i;
        }
        if (b[i] < low || b[i] > high) {
            *character = UTF8_INVALID;
            return i;
        }
        c = c << 6 | (b[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *character = c;
    return length;
}

int utf8_length(const char *p, size_t n) {
    int32_t c;
    int length = utf8_read(p, n, &c);
    return c < 0 ? 0 : length;
}

bool utf8_is_valid(const char *text, size_t size) {
    for (size_t i = 0, length; i < size; i += length) {
        length = (uint8_t)text[i] < 0x80 ? 1 : (size_t)utf8_length(text + i, size - i);
        if (length == 0) return false;
    }
    return true;
}

size_t utf8_count(const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += utf8_begins(text[i]);
    return n;
}

size_t utf8_prefix(const char *text, size_t size, size_t limit) {
    if (limit >= size) return size;
    while (limit > 0 && !utf8_begins(text[limit])) limit--;
    return limit;
}
