/* server/doors/mcp/words.c: see words.h. */
#include "server/doors/mcp/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/base/base64.h"
#include "config/base/hash.h"
#include "config/base/text.h"
#include "config/base/utf8.h"

static const char documents[] = "retro://documents/", paths[] = "retro://paths/";

/* Segments. */

/* RFC 3986, 2.3. */
static bool is_unreserved(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) ||
           (c != '\0' && strchr("-._~", c));
}

/* Characters that may stand in a segment as they are: RFC 3986, 3.3. */
static bool is_segment_letter(char c) {
    return is_unreserved(c) || (c != '\0' && strchr("!$&'()*+,;=:@", c));
}

void mcp_segment_print(const char *text, struct buffer *out) {
    for (const char *at = text; *at; at++) {
        if (is_unreserved(*at))
            buffer_append(out, at, 1);
        else
            buffer_printf(out, "%%%02X", (unsigned char)*at);
    }
}

static int hex_of(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that "%XX" at text[0, size) stands for; -1: it stands for none. */
static int escaped_byte(const char *text, size_t size) {
    if (size < 3 || hex_of(text[1]) < 0 || hex_of(text[2]) < 0) return -1;
    return hex_of(text[1]) << 4 | hex_of(text[2]);
}

static bool segment_decode(struct text_span segment, struct buffer *out) {
    size_t i = 0;
    while (i < segment.size) {
        char c = segment.text[i];
        int byte = c == '%' ? escaped_byte(segment.text + i, segment.size - i) : (unsigned char)c;
        if (byte <= 0 || (c != '%' && !is_segment_letter(c))) return false;
        c = (char)byte;
        buffer_append(out, &c, 1);
        i += segment.text[i] == '%' ? 3 : 1;
    }
    return out->size > 0 && utf8_is_valid(out->data, out->size);
}

/* URIs. */

/* Digits without a leading zero, below 10^15; -1: it is no such number. */
static int64_t number_of(struct text_span text) {
    int64_t number = 0;
    if (text.size == 0 || text.size > 15 || (text.size > 1 && text.text[0] == '0')) return -1;
    for (size_t i = 0; i < text.size; i++) {
        if (!is_digit(text.text[i])) return -1;
        number = number * 10 + (text.text[i] - '0');
    }
    return number;
}

static struct text_span span_behind(struct text_span text, size_t n) {
    return (struct text_span){text.text + n, text.size - n};
}

/* Up to the character, or all; *text goes on behind it. */
static struct text_span span_until(struct text_span *text, char c) {
    const char *found = text->size ? memchr(text->text, c, text->size) : NULL;
    struct text_span part = {text->text, found ? (size_t)(found - text->text) : text->size};
    *text = span_behind(*text, part.size + (found != NULL));
    return part;
}

/* "pages/7" or "bytes/0-100". */
static bool part_parse(struct mcp_uri *uri, struct text_span text) {
    struct text_span kind = span_until(&text, '/');
    if (span_is(kind, "pages")) {
        uri->place = MCP_PAGE;
        uri->page = number_of(text);
        return uri->page > 0;
    }
    uri->place = MCP_BYTES;
    uri->start = number_of(span_until(&text, '-'));
    uri->end = number_of(text);
    return span_is(kind, "bytes") && uri->start >= 0 && uri->end >= uri->start;
}

bool mcp_uri_parse(struct mcp_uri *uri, struct text_span text) {
    *uri = (struct mcp_uri){.place = MCP_WHOLE};
    if (span_starts_with(text, paths)) {
        uri->place = MCP_PATH;
        return segment_decode(span_behind(text, sizeof paths - 1), &uri->name);
    }
    if (!span_starts_with(text, documents)) return false;
    struct text_span rest = span_behind(text, sizeof documents - 1);
    struct text_span id = span_until(&rest, '/');
    bool whole = id.text + id.size == text.text + text.size;
    return segment_decode(id, &uri->name) && (whole || part_parse(uri, rest));
}

void mcp_uri_free(struct mcp_uri *uri) { buffer_free(&uri->name); }

void mcp_uri_print(const char *id, struct buffer *out) {
    buffer_append_string(out, documents);
    mcp_segment_print(id, out);
}

void mcp_uri_print_bytes(const char *id, uint64_t start, uint64_t end, struct buffer *out) {
    mcp_uri_print(id, out);
    buffer_printf(out, "/bytes/%" PRIu64 "-%" PRIu64, start, end);
}

/* Cursors: base64 of a check sum over list and id, and the id. */

enum { SUM_DIGITS = 16 };

static void sum_print(const char *list, struct text_span last, char digits[SUM_DIGITS + 1]) {
    uint64_t seed = hash_bytes(list, strlen(list), 0);
    snprintf(digits, SUM_DIGITS + 1, "%016" PRIx64, hash_bytes(last.text, last.size, seed));
}

void mcp_cursor_print(const char *list, const char *last, struct buffer *out) {
    char digits[SUM_DIGITS + 1];
    struct buffer plain = {0};
    sum_print(list, (struct text_span){last, strlen(last)}, digits);
    buffer_printf(&plain, "%s%s", digits, last);
    base64_encode((struct text_span){plain.data, plain.size}, out);
    buffer_free(&plain);
}

bool mcp_cursor_parse(const char *list, struct text_span text, struct buffer *last) {
    char digits[SUM_DIGITS + 1];
    struct buffer plain = {0};
    bool ok = text.size > 0 && base64_decode(text, &plain) && plain.size > SUM_DIGITS;
    if (ok) {
        struct text_span id = {plain.data + SUM_DIGITS, plain.size - SUM_DIGITS};
        sum_print(list, id, digits);
        ok = memcmp(digits, plain.data, SUM_DIGITS) == 0 && memchr(id.text, '\0', id.size) == NULL;
        if (ok) buffer_append(last, id.text, id.size);
    }
    buffer_free(&plain);
    return ok;
}

/* Headers. */

bool mcp_header_decode(const char *value, struct buffer *out) {
    static const char start[] = "=?base64?", end[] = "?=";
    struct text_span text = {value, strlen(value)};
    size_t marks = sizeof start - 1 + sizeof end - 1;
    bool coded = text.size >= marks && span_starts_with(text, start) && span_ends_with(text, end);
    if (coded)
        return base64_decode((struct text_span){value + sizeof start - 1, text.size - marks}, out);
    buffer_append(out, value, text.size);
    return true;
}
