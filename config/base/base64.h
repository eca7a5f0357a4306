/* config/base/base64.h: bytes to base64 text and back, RFC 4648 section 4. */
#pragma once

#include "config/base/buffer.h"

/* Whether the character stands for six bits. */
bool base64_is_letter(char c);
/* Appends the bytes of the text; false when it is none, with part of the bytes appended. */
bool base64_decode(struct text_span text, struct buffer *out);
/* Appends the text of the bytes, with its padding. */
void base64_encode(struct text_span bytes, struct buffer *out);
