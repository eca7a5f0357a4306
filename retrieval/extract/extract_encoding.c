/* retrieval/extract/extract_encoding.c: bytes to UTF-8 where a byte order mark says what they are, or where they can
 * hardly be anything but a Western European text; hints where nothing says it. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

static uint32_t read_unit(const char *bytes, bool big_endian) {
    uint8_t first = (uint8_t)bytes[0], second = (uint8_t)bytes[1];
    return big_endian ? (uint32_t)first << 8 | second : (uint32_t)second << 8 | first;
}

static void append_character(struct buffer *b, uint32_t c) {
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    bytes[0] = (char)(leads[n] | c);
    buffer_append(b, bytes, n);
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

static bool starts_with(const struct buffer *b, const char *mark, size_t size) {
    return b->size >= size && memcmp(b->data, mark, size) == 0;
}

bool extract_decode(struct buffer *b, size_t *damaged) {
    bool little = starts_with(b, "\xff\xfe", 2), big = starts_with(b, "\xfe\xff", 2);
    *damaged = 0;
    /* UTF-32 begins in the same way. */
    if ((!little && !big) || starts_with(b, "\xff\xfe\0\0", 4)) return false;
    struct buffer text = {0};
    *damaged = decode_utf16(&text, b->data + 2, b->size - 2, big);
    buffer_append(&text, "", 0);
    buffer_free(b);
    *b = text;
    return true;
}

/* Windows-1252 where it differs from Latin-1; 0: no character. */
static const uint16_t western[32] = {0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                     0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017d, 0,
                                     0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                     0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

const char extract_western_note[] = "not UTF-8, read as Windows-1252 (Latin-1)";

/* One letter in four has an accent at most; texts in other alphabets consist of such bytes. */
static bool looks_western(const struct buffer *b) {
    size_t letters = 0, others = 0;
    for (size_t i = 0; i < b->size; i++) {
        uint8_t c = (uint8_t)b->data[i];
        bool is_control = c < 0x20 && !strchr("\t\n\v\f\r", c);
        if (is_control || c == 0x7f || (c >= 0x80 && c < 0xa0 && western[c - 0x80] == 0)) return false;
        letters += (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        others += c >= 0x80;
    }
    return others > 0 && others <= letters / 3;
}

bool extract_decode_western(struct buffer *b) {
    struct buffer text = {0};
    if (!looks_western(b)) return false;
    for (size_t i = 0; i < b->size; i++) {
        uint8_t c = (uint8_t)b->data[i];
        append_character(&text, c >= 0x80 && c < 0xa0 ? western[c - 0x80] : c);
    }
    buffer_free(b);
    *b = text;
    return true;
}

/* Latin letters in UTF-16 have a NUL in every second byte. */
const char *extract_encoding_hint(const struct buffer *b) {
    size_t nuls[2] = {0, 0}, n = b->size < 4096 ? b->size : 4096;
    for (size_t i = 0; i < n; i++) nuls[i % 2] += b->data[i] == '\0';
    if (starts_with(b, "\xff\xfe\0\0", 4) || starts_with(b, "\0\0\xfe\xff", 4))
        return "; it is UTF-32: iconv -f UTF-32 -t UTF-8";
    if (nuls[1] > n / 4 && nuls[0] <= n / 16) return "; it looks like UTF-16: iconv -f UTF-16LE -t UTF-8";
    if (nuls[0] > n / 4 && nuls[1] <= n / 16) return "; it looks like UTF-16: iconv -f UTF-16BE -t UTF-8";
    return nuls[0] + nuls[1] ? "" : "; if it is Latin-1: iconv -f ISO-8859-1 -t UTF-8 (or WINDOWS-1252)";
}
