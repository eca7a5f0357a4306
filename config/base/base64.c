/* config/base/base64.c: see base64.h. */
#include "config/base/base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool base64_is_letter(char c) { return c != '\0' && strchr(digits, c) != NULL; }

bool base64_decode(struct text_span text, struct buffer *out) {
    int8_t values[256];
    memset(values, -1, sizeof values);
    for (int i = 0; i < 64; i++) values[(uint8_t)digits[i]] = (int8_t)i;
    if (text.size % 4 != 0) return false;
    while (text.size > 0 && text.text[text.size - 1] == '=' && text.size % 4 != 2) text.size--;

    char piece[3072];
    size_t n = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.size; i++) {
        int8_t value = values[(uint8_t)text.text[i]];
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 == 0) continue;
        piece[n] = (char)(bits >> (6 - 2 * (i % 4)));
        n++;
        if (n < sizeof piece) continue;
        buffer_append(out, piece, n);
        n = 0;
    }
    buffer_append(out, piece, n);
    return true;
}

void base64_encode(struct text_span bytes, struct buffer *out) {
    const unsigned char *from = (const unsigned char *)bytes.text;
    char piece[4096];
    size_t n = 0;
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t group = (uint32_t)from[i] << 16;
        if (left > 1) group |= (uint32_t)from[i + 1] << 8;
        if (left > 2) group |= from[i + 2];
        piece[n] = digits[group >> 18];
        piece[n + 1] = digits[group >> 12 & 63];
        piece[n + 2] = left > 1 ? digits[group >> 6 & 63] : '=';
        piece[n + 3] = left > 2 ? digits[group & 63] : '=';
        n += 4;
        if (n < sizeof piece) continue;
        buffer_append(out, piece, n);
        n = 0;
    }
    buffer_append(out, piece, n);
}
