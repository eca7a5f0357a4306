/* config/base/line.c: lines for people to read. See line.h. */
#include "config/base/line.h"

#include <stdlib.h>

#include "config/base/utf8.h"

/* C0 with DEL, and C1: U+009B starts a terminal's commands as ESC [ does. Ends of lines and of
 * paragraphs, and what turns the direction of the letters behind it, show a name as another one. */
static bool is_control(int32_t c) {
    bool turns = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                 (c >= 0x2066 && c <= 0x2069);
    return c < ' ' || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || turns;
}

/* The letter behind a backslash, 0 where there is none. */
static char letter(int32_t c) {
    return c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : c == '\\' ? '\\' : 0;
}

void line_escape(struct buffer *buffer, const char *text, size_t size) {
    for (size_t i = 0, n; i < size; i += n) {
        int32_t c; /* negative where there is no character */
        n = (size_t)utf8_read(text + i, size - i, &c);
        if (letter(c))
            buffer_printf(buffer, "\\%c", letter(c));
        else if (is_control(c))
            for (size_t j = 0; j < n; j++) buffer_printf(buffer, "\\x%02x", (uint8_t)text[i + j]);
        else
            buffer_append(buffer, text + i, n);
    }
}

void line_escape_json(struct buffer *buffer, const char *text, size_t size) {
    for (size_t i = 0, n; i < size; i += n) {
        int32_t c; /* negative where there is no character */
        n = (size_t)utf8_read(text + i, size - i, &c);
        if (c < 0)
            buffer_append_string(buffer, "\\ufffd");
        else if (is_control(c))
            buffer_printf(buffer, "\\u%04x", (unsigned)c);
        else if (c == '"' || c == '\\')
            buffer_printf(buffer, "\\%c", (char)c);
        else
            buffer_append(buffer, text + i, n);
    }
}

void line_print(FILE *out, const char *format, ...) {
    struct buffer buffer = {0};
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) return;
    line_escape(&buffer, text, (size_t)n);
    buffer_append(&buffer, "\n", 1);
    fwrite(buffer.data, 1, buffer.size, out);
    buffer_free(&buffer);
    free(text);
}
