/* retrieval/extract/extract_private.h: one function per kind of document behind extract.h. */
#pragma once

#include "retrieval/extract/extract.h"

/* html: valid UTF-8, or bytes in the encoding that the document declares (windows-1252 when it declares none). */
enum status extract_html(const char *path, struct text_span html, bool is_utf8, struct buffer *text,
                         struct buffer *title, struct error *e);
enum status extract_man(const char *path, size_t limit, struct buffer *text, struct buffer *title, struct error *e);
