/* config/base/data_url.c: data: URLs: RFC 2397, with the forgiving base64 of the WHATWG's Infra Standard. */
#include "config/base/data_url.h"

#include <string.h>
#include <strings.h>

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

static int digit_of_base64(unsigned char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

/* The next byte of the text, which it leaves behind: one character, or %xx. The text is not empty. */
static unsigned char percent_next(struct text_span *text) {
    int high = text->size >= 3 && text->text[0] == '%' ? digit_of_hex(text->text[1]) : -1;
    int low = high >= 0 ? digit_of_hex(text->text[2]) : -1;
    size_t taken = low >= 0 ? 3 : 1;
    unsigned char byte = low >= 0 ? (unsigned char)(high * 16 + low) : (unsigned char)text->text[0];
    text->text += taken;
    text->size -= taken;
    return byte;
}

/* Bytes on their way into a buffer, in pieces. */
struct data_pieces {
    struct buffer *to;
    size_t limit, n;
    char piece[1024];
};

static void pieces_flush(struct data_pieces *p) {
    buffer_append(p->to, p->piece, p->n);
    p->n = 0;
}

static enum status pieces_put(struct data_pieces *p, unsigned byte, struct error *e) {
    if (p->to->size + p->n >= p->limit)
        return error_set(e, STATUS_TOO_LARGE, "the data: URL holds more than %zu bytes", p->limit);
    p->piece[p->n] = (char)byte;
    p->n++;
    if (p->n == sizeof p->piece) pieces_flush(p);
    return STATUS_OK;
}

static enum status text_decode(struct data_pieces *p, struct text_span text, struct error *e) {
    enum status status = STATUS_OK;
    while (status == STATUS_OK && text.size > 0) status = pieces_put(p, percent_next(&text), e);
    return status;
}

static bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r' && c != '\v'); }

static enum status base64_decode(struct data_pieces *p, struct text_span text, struct error *e) {
    size_t whole = text.size, digits = 0, padding = 0;
    unsigned bits = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && text.size > 0) {
        size_t at = whole - text.size;
        unsigned char c = percent_next(&text);
        int digit = digit_of_base64(c);
        if (is_space(c)) continue;
        if (c == '=' && padding < 2) {
            padding++;
            continue;
        }
        if (digit < 0 || padding > 0)
            return error_set(e, STATUS_INVALID, "the data: URL is no base64 at character %zu of its data", at);
        bits = bits << 6 | (unsigned)digit;
        digits++;
        if (digits % 4 != 1) status = pieces_put(p, bits >> (6 - 2 * ((digits - 1) % 4)) & 0xFF, e);
    }
    if (status) return status;
    if (digits % 4 == 1 || (padding > 0 && (digits + padding) % 4 != 0))
        return error_set(e, STATUS_INVALID, "the data: URL's base64 is cut off");
    return STATUS_OK;
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

enum status data_url_read(struct buffer *bytes, struct text_span *type, struct text_span url, size_t limit,
                          struct error *e) {
    struct data_pieces pieces = {.to = bytes, .limit = limit};
    buffer_clear(bytes);
    if (!data_url_is(url)) return error_set(e, STATUS_INVALID, "the URL does not begin with \"data:\"");

    struct text_span head = {url.text + sizeof scheme - 1, url.size - (sizeof scheme - 1)}, data;
    size_t comma = span_until(head, ',');
    if (comma == head.size)
        return error_set(e, STATUS_INVALID, "the data: URL has no comma between its type and its data");
    data = (struct text_span){head.text + comma + 1, head.size - comma - 1};
    data.size = span_until(data, '#');
    head.size = comma;

    bool base64 = head_takes_base64(&head);
    head.size = span_until(head, ';');
    *type = head.size > 0 ? head : (struct text_span){"text/plain", 10};
    enum status status = base64 ? base64_decode(&pieces, data, e) : text_decode(&pieces, data, e);
    pieces_flush(&pieces);
    return status;
}
