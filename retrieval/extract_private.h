/* retrieval/extract_private.h: one function per kind of document behind extract.h. */
#pragma once

#include "retrieval/extract.h"

/* Bytes of valid UTF-8 at text[0, size): 1 .. 4, or 0 when no character starts there. size >= 1. */
int utf8_length(const char *text, size_t size);

/* html: valid UTF-8, or bytes in the encoding that the document declares (windows-1252 when it declares none). */
enum status extract_html(const char *path, struct text_span html, bool is_utf8, struct buffer *text,
                         struct buffer *title, struct error *e);
enum status extract_man(const char *path, size_t limit, struct buffer *text, struct buffer *title, struct error *e);
