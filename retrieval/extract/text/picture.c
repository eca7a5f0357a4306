/* retrieval/extract/text/picture.c: a picture's file as a document: its bytes stay as they are, and
 * its name is its caption. Nothing is decoded here. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/picture_document.h"

void extract_caption(struct buffer *caption, const char *name) {
    const char *slash = strrchr(name, '/'), *first = slash ? slash + 1 : name,
               *dot = strrchr(first, '.');
    size_t n = dot && dot > first ? (size_t)(dot - first) : strlen(first);
    for (size_t i = 0; i < n; i++)
        buffer_append(caption, first[i] == '_' || first[i] == '-' ? " " : &first[i], 1);
    if (!utf8_is_valid(caption->data, caption->size)) buffer_clear(caption);
    if (caption->size == 0) buffer_append_string(caption, "picture");
}

enum status extract_picture(const struct extract_file *file, struct document_text *out,
                            struct error *e) {
    extract_caption(&out->title, file->name);
    if (picture_document_write(&out->text, file->bytes,
                               (struct text_span){out->title.data, out->title.size}, e))
        return error_prefix(e, "%s", file->name);
    return STATUS_OK;
}
