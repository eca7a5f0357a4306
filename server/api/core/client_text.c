/* server/api/core/client_text.c: errors without the server's paths. See client_text.h. */
#include "server/api/core/client_text.h"

#include <string.h>

static bool is_of_the_server(enum status status) {
    switch (status) {
        case STATUS_IO:
        case STATUS_CORRUPT:
        case STATUS_NO_MEMORY:
        case STATUS_DEVICE:
        case STATUS_INTERNAL:
        case STATUS_BUSY: return true;
        case STATUS_OK:
        case STATUS_INVALID:
        case STATUS_NOT_FOUND:
        case STATUS_TOO_LARGE:
        case STATUS_CANCELLED:
        case STATUS_UNSUPPORTED: return false;
    }
    return true;
}

/* Bytes up to the end of the text, or the mark behind which a sentence goes on. Folders may have
 * spaces in their names, so a space alone ends no path. */
static size_t clause_size(const char *text) {
    size_t size = 0;
    while (text[size] != '\0' && !(strchr(":;,", text[size]) && strchr(" ", text[size + 1])))
        size++;
    return size;
}

/* Bytes of the path that begins here, 0 where none does. `first`: a clause begins here; the system
 * is asked for files by the names in the configuration, which may be relative. */
static size_t path_size(const char *text, bool first) {
    size_t word = strcspn(text, " "), clause = clause_size(text);
    if (text[0] == '/') return clause;
    const char *slash = memchr(text, '/', word < clause ? word : clause);
    bool url = slash && slash > text && slash[-1] == ':';
    return first && slash && !url ? clause : 0;
}

/* Appends the text with its paths hidden. False: it has none. */
static bool hide_paths(const char *text, struct buffer *out) {
    bool hidden = false, begins = true, first = true; /* a word, a clause */
    while (*text != '\0') {
        size_t size = begins ? path_size(text, first) : 0;
        if (size > 0) {
            buffer_append_string(out, "a file of the server");
            hidden = true;
            text += size;
            begins = false;
            continue;
        }
        begins = strchr(" \"'(=", *text) != NULL;
        first = *text == ' ' && out->size > 0 && out->data[out->size - 1] == ':';
        buffer_append(out, text, 1);
        text++;
    }
    return hidden;
}

void client_text(const struct error *e, struct buffer *out) {
    struct buffer text = {0};
    if (!is_of_the_server(e->status) || !hide_paths(e->text, &text)) {
        buffer_append_string(out, e->text);
    } else {
        log_error("%s", e->text);
        buffer_append(out, text.data, text.size);
        buffer_append_string(out, "; the log of the server names the file");
    }
    buffer_free(&text);
}
