/* server/doors/stores/file_id.c: ids of files. An id of letters, digits, "_" and "-" stands as it
 * is, and any other in hexadecimal digits behind a full stop. */
#include <stdlib.h>
#include <string.h>

#include "server/doors/stores/stores_private.h"

static const char prefix[] = "file-";
static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

void file_append_id(struct buffer *out, const char *document) {
    bool is_plain = strspn(document, plain) == strlen(document);
    buffer_append_string(out, prefix);
    if (is_plain) buffer_append_string(out, document);
    if (!is_plain) buffer_append_string(out, ".");
    for (const char *at = document; !is_plain && *at; at++)
        buffer_printf(out, "%02x", (unsigned char)*at);
}

void file_put_id(struct json_writer *w, const char *key, const char *document) {
    struct buffer id = {0};
    file_append_id(&id, document);
    put_key_string_n(w, key, id.data, id.size);
    buffer_free(&id);
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Text of hexadecimal digits; NULL: it is none. */
static char *decode(const char *digits) {
    size_t size = strlen(digits);
    char *text = xcalloc(size / 2 + 1, 1);
    bool ok = size % 2 == 0 && size > 0;
    for (size_t i = 0; ok && i < size / 2; i++) {
        int high = digit_of(digits[2 * i]), low = digit_of(digits[2 * i + 1]);
        ok = high >= 0 && low >= 0 && high + low > 0;
        text[i] = (char)(high * 16 + low);
    }
    if (ok) return text;
    free(text);
    return NULL;
}

char *file_document(const char *id) {
    size_t size = sizeof prefix - 1;
    if (strncmp(id, prefix, size) != 0 || id[size] == '\0') return NULL;
    return id[size] == '.' ? decode(id + size + 1) : xstrdup(id + size);
}
