/* retrieval/extract/text/encoding.c: bytes to UTF-8 where a byte order mark says what they are, or
 * where they can hardly be anything but UTF-16 or a Western European text. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

static uint32_t read_unit(const char *bytes, bool big_endian) {
    uint8_t first = (uint8_t)bytes[0], second = (uint8_t)bytes[1];
    return big_endian ? (uint32_t)first << 8 | second : (uint32_t)second << 8 | first;
}

static void append_character(struct buffer *buffer, uint32_t c) {
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    bytes[0] = (char)(leads[n] | c);
    buffer_append(buffer, bytes, n);
}

/* Half of a pair and half a unit become U+FFFD and are counted. */
static size_t decode_utf16(struct buffer *out, const char *bytes, size_t size, bool big_endian) {
    size_t damaged = 0, at = 0;
    while (at + 1 < size) {
        uint32_t c = read_unit(bytes + at, big_endian), low = 0;
        at += 2;
        bool is_high = c >= 0xd800 && c < 0xdc00, is_low = c >= 0xdc00 && c < 0xe000;
        if (is_high && at + 1 < size) low = read_unit(bytes + at, big_endian);
        if (is_high && low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            at += 2;
        } else if (is_high || is_low) {
            c = 0xfffd;
            damaged++;
        }
        append_character(out, c);
    }
    if (at < size) {
        append_character(out, 0xfffd);
        damaged++;
    }
    return damaged;
}

static bool has_mark(const struct buffer *buffer, const char *mark, size_t size) {
    return buffer->size >= size && memcmp(buffer->data, mark, size) == 0;
}

/* Units that are no characters become U+FFFD and are counted. */
static size_t decode_utf32(struct buffer *out, const char *bytes, size_t size, bool big_endian) {
    size_t damaged = 0;
    for (size_t at = 0; at < size; at += 4) {
        bool is_whole = size - at >= 4;
        uint32_t first = is_whole ? read_unit(bytes + at, big_endian) : UINT16_MAX;
        uint32_t second = is_whole ? read_unit(bytes + at + 2, big_endian) : UINT16_MAX;
        uint32_t c = big_endian ? first << 16 | second : second << 16 | first;
        bool is_character = c < 0xd800 || (c >= 0xe000 && c < 0x110000);
        append_character(out, is_character ? c : 0xfffd);
        damaged += !is_character;
    }
    return damaged;
}

static void replace_text(struct buffer *buffer, struct buffer *text) {
    buffer_append(text, "", 0);
    buffer_free(buffer);
    *buffer = *text;
}

/* UTF-16 without a mark. */

enum { UTF16_LITTLE, UTF16_BIG, UTF16_NEITHER };

/* Controls, halves of pairs and what stands for no character: no text has them. */
static bool is_implausible(uint32_t c) {
    bool is_control = (c < 0x20 && !(c >= '\t' && c <= '\r')) || (c >= 0x7f && c < 0xa0);
    return is_control || (c >= 0xd800 && c < 0xf900) || (c >= 0xfdd0 && c < 0xfdf0) ||
           c >= 0xfffe || c == 0xfeff;
}

/* How many of the units are characters that every text has: of ASCII, or East Asian punctuation.
 * -1: it is no text. */
static int64_t count_common(const struct buffer *buffer, bool big_endian) {
    int64_t n = 0;
    for (size_t at = 0; at + 1 < buffer->size; at += 2) {
        uint32_t c = read_unit(buffer->data + at, big_endian);
        uint32_t low = c >= 0xd800 && c < 0xdc00 && at + 3 < buffer->size
                           ? read_unit(buffer->data + at + 2, big_endian)
                           : 0;
        bool is_pair = low >= 0xdc00 && low < 0xe000;
        if (!is_pair && is_implausible(c)) return -1;
        n += c < 0x7f || (c >= 0x3000 && c <= 0x3002) || (c >= 0xff00 && c < 0xff20);
        at += is_pair ? 2 : 0;
    }
    return n;
}

/* Whether most bytes are characters of ASCII by themselves: a NUL among them is no half of one. */
static bool is_ascii_with_nuls(const struct buffer *buffer) {
    size_t n = 0;
    for (size_t i = 0; i < buffer->size; i++) {
        uint8_t c = (uint8_t)buffer->data[i];
        n += (c >= 0x20 && c < 0x7f) || (c >= '\t' && c <= '\r');
    }
    return n > buffer->size / 4 * 3;
}

/* Only bytes that are no text in any other encoding are asked about: they hold a NUL. Read in the
 * wrong order, a text has characters that no text has, or none of the common ones. */
static int guess_utf16(const struct buffer *buffer) {
    if (buffer->size < 2 || buffer->size % 2 != 0 ||
        memchr(buffer->data, '\0', buffer->size) == NULL)
        return UTF16_NEITHER;
    if (is_ascii_with_nuls(buffer)) return UTF16_NEITHER;
    int64_t little = count_common(buffer, false), big = count_common(buffer, true);
    int64_t common = little > big ? little : big, units = (int64_t)(buffer->size / 2);
    if (little == big || common * 32 < units) return UTF16_NEITHER;
    return little > big ? UTF16_LITTLE : UTF16_BIG;
}

bool extract_decode(struct buffer *buffer, size_t *damaged, enum extract_note *note) {
    struct buffer text = {0};
    *damaged = 0;
    *note = NOTE_NONE;
    if (has_mark(buffer, "\xff\xfe\0\0", 4) || has_mark(buffer, "\0\0\xfe\xff", 4)) {
        *damaged = decode_utf32(&text, buffer->data + 4, buffer->size - 4, buffer->data[0] == '\0');
    } else if (has_mark(buffer, "\xff\xfe", 2) || has_mark(buffer, "\xfe\xff", 2)) {
        *damaged =
            decode_utf16(&text, buffer->data + 2, buffer->size - 2, buffer->data[0] == '\xfe');
    } else {
        int order = guess_utf16(buffer);
        if (order == UTF16_NEITHER) return false;
        *note = order == UTF16_BIG ? NOTE_UTF16_BIG : NOTE_UTF16_LITTLE;
        *damaged = decode_utf16(&text, buffer->data, buffer->size, order == UTF16_BIG);
    }
    replace_text(buffer, &text);
    return true;
}

/* Windows-1252 where it differs from Latin-1; 0: no character. */
static const uint16_t western[32] = {
    0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

const char *const extract_notes[NOTE_COUNT] = {
    [NOTE_WESTERN] = "not UTF-8, read as Windows-1252 (Latin-1)",
    [NOTE_UTF16_LITTLE] = "no byte order mark, read as UTF-16, little endian",
    [NOTE_UTF16_BIG] = "no byte order mark, read as UTF-16, big endian",
    [NOTE_REPAIRED] = "characters are damaged; each became U+FFFD",
};

/* One letter in four has an accent at most; texts in other alphabets consist of such bytes. */
static bool looks_western(const struct buffer *buffer) {
    size_t letters = 0, others = 0;
    for (size_t i = 0; i < buffer->size; i++) {
        uint8_t c = (uint8_t)buffer->data[i];
        bool is_control = c < 0x20 && !strchr("\t\n\v\f\r", c);
        if (is_control || c == 0x7f || (c >= 0x80 && c < 0xa0 && western[c - 0x80] == 0))
            return false;
        letters += (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        others += c >= 0x80;
    }
    return others > 0 && others <= letters / 3;
}

bool extract_decode_western(struct buffer *buffer) {
    struct buffer text = {0};
    if (!looks_western(buffer)) return false;
    for (size_t i = 0; i < buffer->size; i++) {
        uint8_t c = (uint8_t)buffer->data[i];
        append_character(&text, c >= 0x80 && c < 0xa0 ? western[c - 0x80] : c);
    }
    replace_text(buffer, &text);
    return true;
}
