/* retrieval/picture_document.c: see picture_document.h. */
#include "retrieval/picture_document.h"

#include <string.h>

#include "config/base/base64.h"
#include "config/base/data_url.h"

static const char url_begin[] = "data:image/", caption_begin[] = "\n\n";
/* A document's text is shorter. */
static const size_t MOST_BYTES = (size_t)1 << 31;

bool picture_document_read(struct picture_document *out, struct text_span text) {
    size_t begin = sizeof url_begin - 1;
    if (text.size < begin || memcmp(text.text, url_begin, begin) != 0) return false;
    const char *end = memmem(text.text, text.size, caption_begin, sizeof caption_begin - 1);
    if (end == NULL) return false;
    out->url = (struct text_span){text.text, (size_t)(end - text.text)};
    const char *caption = end + sizeof caption_begin - 1;
    out->caption = (struct text_span){caption, (size_t)(text.text + text.size - caption)};
    return true;
}

const char *picture_media_type(struct text_span file) {
    static const struct {
        const char *type, *bytes;
        size_t at, n;
    } kinds[] = {{"image/png", "\x89PNG\r\n\x1a\n", 0, 8},
                 {"image/jpeg", "\xff\xd8\xff", 0, 3},
                 {"image/gif", "GIF8", 0, 4},
                 {"image/webp", "WEBP", 8, 4}};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (file.size >= kinds[i].at + kinds[i].n &&
            memcmp(file.text + kinds[i].at, kinds[i].bytes, kinds[i].n) == 0)
            return kinds[i].type;
    return NULL;
}

enum status picture_document_write(struct buffer *text, struct text_span file,
                                   struct text_span caption, struct error *e) {
    const char *type = picture_media_type(file);
    if (type == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "no JPEG, PNG, WebP or GIF, as its first bytes tell");
    buffer_printf(text, "data:%s;base64,", type);
    base64_encode(file, text);
    buffer_append_string(text, caption_begin);
    buffer_append(text, caption.text, caption.size);
    return STATUS_OK;
}

enum status picture_document_file(const struct picture_document *document, struct buffer *file,
                                  struct error *e) {
    struct text_span type;
    return data_url_read(file, &type, document->url, MOST_BYTES, e);
}
