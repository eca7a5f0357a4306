/* retrieval/extract/extract.h: files to plain text, by kind: .txt .md .rst as they are, HTML through libxml2, man pages
 * through mandoc. Anything else is reported, not guessed. */
#pragma once

#include "config/base/buffer.h"

enum document_kind { DOCUMENT_UNKNOWN, DOCUMENT_TEXT, DOCUMENT_HTML, DOCUMENT_MAN };

/* By file name: .txt .md .rst (text), .html .htm .xhtml (HTML), .1 .. .9 with an optional .gz and a man section (man).
 */
enum document_kind document_kind(const char *path);

/* The text of a file into *text, its title (HTML <title>, man NAME line, first Markdown heading, else "") into *title;
 * both cleared first. UTF-16 with a byte order mark becomes UTF-8. Rejects with the reason: empty, binary (NUL bytes),
 * invalid UTF-8 beyond repair, larger than `limit`. */
enum status document_extract(const char *path, enum document_kind kind, size_t limit, struct buffer *text,
                             struct buffer *title, struct error *e);
