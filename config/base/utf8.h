/* config/base/utf8.h: what is a character of UTF-8 and what is not: no overlong forms, no
 * surrogates, nothing beyond U+10FFFF.
 */
#pragma once

#include "config/base/base.h"

enum { UTF8_INVALID = -1, UTF8_INCOMPLETE = -2 };

/* Reads one character of p[0, n), n > 0, and returns how many bytes it takes. Bytes that cannot be
 * a character give UTF8_INVALID and the length of the maximal subpart (Unicode 3.9, as Python's
 * errors="replace"); a character that n cuts off gives UTF8_INCOMPLETE and all the bytes left. */
int utf8_read(const char *p, size_t n, int32_t *character);
/* Bytes of the character at p[0, n), n > 0: 1 to 4, or 0 when there is none. */
int utf8_length(const char *p, size_t n);
bool utf8_is_valid(const char *text, size_t size);
/* Whether a byte of a valid text begins a character: those behind the first are 10xxxxxx. */
static inline bool utf8_begins(char byte) { return ((uint8_t)byte & 0xC0) != 0x80; }
/* Characters of a valid text. */
size_t utf8_count(const char *text, size_t size);
/* The most bytes of a valid text[0, size), at most `limit`, that do not end within a character. */
size_t utf8_prefix(const char *text, size_t size, size_t limit);
