/* retrieval/picture_document.h: pictures among documents. The text of such a document begins with a
 * data: URL of the picture's file and an empty line; its caption follows. So a picture is stored,
 * logged, copied and compacted as any text is. Its chunks are those of the caption, and the first
 * of them has the picture's vector. */
#pragma once

#include "config/base/buffer.h"

struct picture_document {
    struct text_span url, caption; /* parts of the text */
};

/* Whether a document with this text is a picture. */
bool picture_document_read(struct picture_document *out, struct text_span text);
/* The text of one. STATUS_UNSUPPORTED where the bytes are of no kind of picture that is read. */
enum status picture_document_write(struct buffer *text, struct text_span file,
                                   struct text_span caption, struct error *e);
/* The media type of a picture's file, by its first bytes: one of four; NULL: none of these. */
const char *picture_media_type(struct text_span file);
/* The bytes of its file, at the end of *file. STATUS_INVALID where the URL is damaged. */
enum status picture_document_file(const struct picture_document *document, struct buffer *file,
                                  struct error *e);
