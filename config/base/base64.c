/* config/base/base64.c: see base64.h. */
#include "config/base/base64.h"

#include <stdint.h>
#include <string.h>

bool base64_decode(struct text_span text, struct buffer *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int8_t values[256];
    memset(values, -1, sizeof values);
    for (int i = 0; i < 64; i++) values[(uint8_t)digits[i]] = (int8_t)i;
    if (text.size % 4 != 0) return false;
    while (text.size > 0 && text.text[text.size - 1] == '=' && text.size % 4 != 2) text.size--;

    uint32_t bits = 0;
    int n_bits = 0;
    for (size_t i = 0; i < text.size; i++) {
        int8_t value = values[(uint8_t)text.text[i]];
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        char byte = (char)(bits >> n_bits);
        buffer_append(out, &byte, 1);
    }
    return true;
}
