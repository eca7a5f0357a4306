/* config/base/data_url.c: data: URLs: RFC 2397, with the forgiving base64 of the WHATWG's Infra
 * Standard. */
#include "config/base/data_url.h"

#include <string.h>
#include <strings.h>

#include "config/base/base64.h"

static const char scheme[] = "data:";

bool data_url_is(struct text_span url) {
    return url.size >= sizeof scheme - 1 && strncasecmp(url.text, scheme, sizeof scheme - 1) == 0;
}

static int digit_of_hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The next byte of the text, which it leaves behind: one character, or %xx. The text is not empty.
 */
static unsigned char percent_next(struct text_span *text) {
    int high = text->size >= 3 && text->text[0] == '%' ? digit_of_hex(text->text[1]) : -1;
    int low = high >= 0 ? digit_of_hex(text->text[2]) : -1;
    size_t taken = low >= 0 ? 3 : 1;
    unsigned char byte = low >= 0 ? (unsigned char)(high * 16 + low) : (unsigned char)text->text[0];
    text->text += taken;
    text->size -= taken;
    return byte;
}

static enum status refuse_large(size_t limit, struct error *e) {
    return error_set(e, STATUS_TOO_LARGE, "the data: URL holds more than %zu bytes", limit);
}

/* Appends the text with its %xx read, and without white space where that means nothing. */
static void text_decode(struct buffer *out, struct text_span text, bool spaces) {
    char piece[1024];
    size_t n = 0;
    while (text.size > 0) {
        unsigned char c = percent_next(&text);
        bool space = c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
        if (space && !spaces) continue;
        piece[n] = (char)c;
        n++;
        if (n < sizeof piece) continue;
        buffer_append(out, piece, n);
        n = 0;
    }
    buffer_append(out, piece, n);
}

static enum status plain_decode(struct buffer *out, struct text_span data, size_t limit,
                                struct error *e) {
    text_decode(out, data, true);
    return out->size > limit ? refuse_large(limit, e) : STATUS_OK;
}

static enum status coded_decode(struct buffer *out, struct text_span data, size_t limit,
                                struct error *e) {
    struct buffer digits = {0};
    enum status status = STATUS_OK;
    text_decode(&digits, data, false);
    size_t missing = digits.size % 4;
    if (missing > 1) buffer_append(&digits, "==", 4 - missing);

    struct text_span text = {digits.size > 0 ? digits.data : "", digits.size};
    if (digits.size / 4 * 3 > limit + 2)
        status = refuse_large(limit, e);
    else if (!base64_decode(text, out))
        status = error_set(e, STATUS_INVALID, "the data: URL's data is no base64");
    else if (out->size > limit)
        status = refuse_large(limit, e);
    buffer_free(&digits);
    return status;
}

/* Cuts the last parameter off "image/png;base64" where it is "base64". */
static bool head_takes_base64(struct text_span *head) {
    static const char word[] = "base64";
    const char *last = memrchr(head->text, ';', head->size);
    if (last == NULL) return false;
    size_t size = head->size - (size_t)(last + 1 - head->text);
    if (size != sizeof word - 1 || strncasecmp(last + 1, word, size) != 0) return false;
    head->size = (size_t)(last - head->text);
    return true;
}

static size_t span_until(struct text_span text, char c) {
    const char *found = text.size > 0 ? memchr(text.text, c, text.size) : NULL;
    return found ? (size_t)(found - text.text) : text.size;
}

enum status data_url_read(struct buffer *bytes, struct text_span *type, struct text_span url,
                          size_t limit, struct error *e) {
    buffer_clear(bytes);
    if (!data_url_is(url))
        return error_set(e, STATUS_INVALID, "the URL does not begin with \"data:\"");

    struct text_span head = {url.text + sizeof scheme - 1, url.size - (sizeof scheme - 1)}, data;
    size_t comma = span_until(head, ',');
    if (comma == head.size)
        return error_set(e, STATUS_INVALID,
                         "the data: URL has no comma between its type and its data");
    data = (struct text_span){head.text + comma + 1, head.size - comma - 1};
    data.size = span_until(data, '#');
    head.size = comma;

    bool coded = head_takes_base64(&head);
    head.size = span_until(head, ';');
    *type = head.size > 0 ? head : (struct text_span){"text/plain", 10};
    return coded ? coded_decode(bytes, data, limit, e) : plain_decode(bytes, data, limit, e);
}
