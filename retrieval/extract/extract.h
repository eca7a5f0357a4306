/* retrieval/extract/extract.h: files to plain text, by kind: text as it is, with the headings of Markdown and
 * reStructuredText marked, HTML through libxml2, man pages through mandoc. Anything else is reported, not guessed. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/marks.h"

enum document_kind {
    DOCUMENT_UNKNOWN,
    DOCUMENT_TEXT,
    DOCUMENT_MARKDOWN,
    DOCUMENT_RST,
    DOCUMENT_HTML,
    DOCUMENT_MAN,
    DOCUMENT_KINDS
};

/* By file name: .txt and source code (text), .md, .rst, .html .htm .xhtml (HTML), .1 .. .9 with an optional .gz and a
 * man section (man). */
enum document_kind document_kind(const char *path);

/* Zero-initialise; free when done. */
struct document_text {
    struct buffer text, title;
    struct buffer marks; /* struct mark, in order */
};
void document_text_clear(struct document_text *d);
void document_text_free(struct document_text *d);

/* The text of a file, its title (HTML <title>, man NAME line, first Markdown heading, else "") and its marks into *out,
 * which is cleared first. UTF-16 with a byte order mark becomes UTF-8. Rejects with the reason: empty, binary (NUL
 * bytes), invalid UTF-8 beyond repair, larger than `limit`. */
enum status document_extract(const char *path, enum document_kind kind, size_t limit, struct document_text *out,
                             struct error *e);
/* The marks of a text that is at hand: its lines, and the headings of those kinds of text that have any. */
void document_mark(enum document_kind kind, struct text_span text, struct buffer *marks);
