/* retrieval/extract/extract_private.h: one function per kind of document behind extract.h. */
#pragma once

#include "retrieval/extract/extract.h"

/* html: valid UTF-8, or bytes in the encoding that the document declares (windows-1252 when it declares none). */
enum status extract_html(const char *path, struct text_span html, bool is_utf8, struct document_text *out,
                         struct error *e);
/* Bytes that begin with UTF-16's byte order mark become UTF-8, in place; *damaged counts the characters that were none,
 * each U+FFFD now. False: they stay as they are. */
bool extract_decode(struct buffer *b, size_t *damaged);
/* For bytes that are not UTF-8: what they may be, to be put after the error, or "". */
const char *extract_encoding_hint(const struct buffer *b);
enum status extract_man(const char *path, size_t limit, struct document_text *out, struct error *e);
