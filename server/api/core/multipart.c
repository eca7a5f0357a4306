/* server/api/core/multipart.c: see multipart.h. */
#include "server/api/core/multipart.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/utf8.h"

enum { MAX_BOUNDARY = 70, MAX_HEADERS = 8, MAX_HEADER = 2048 };

static const char media_type[] = "multipart/form-data";

/* The rest of the body, still to be read. */
struct form_cursor {
    const char *at, *end;
};

static bool take_text(struct form_cursor *cursor, const char *text) {
    size_t size = strlen(text);
    if ((size_t)(cursor->end - cursor->at) < size || memcmp(cursor->at, text, size) != 0)
        return false;
    cursor->at += size;
    return true;
}

static bool take_word(struct form_cursor *cursor, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(cursor->end - cursor->at) < size || strncasecmp(cursor->at, word, size) != 0)
        return false;
    cursor->at += size;
    return true;
}

static void skip_spaces(struct form_cursor *cursor) {
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t')) cursor->at++;
}

/* RFC 9110's token. */
static bool is_token_byte(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') ||
           (byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte) != NULL);
}

/* A token or a quoted string, in which a backslash stands before a quote or a backslash. Browsers
 * write a quote as %22 and leave backslashes of a name as they are. */
static bool take_value(struct form_cursor *cursor, struct buffer *value) {
    buffer_clear(value);
    buffer_append(value, "", 0);
    if (!take_text(cursor, "\"")) {
        const char *begin = cursor->at;
        while (cursor->at < cursor->end && is_token_byte(*cursor->at)) cursor->at++;
        buffer_append(value, begin, (size_t)(cursor->at - begin));
        return cursor->at > begin;
    }
    while (cursor->at < cursor->end && *cursor->at != '"') {
        bool escaped = *cursor->at == '\\' && cursor->end - cursor->at > 1 &&
                       (cursor->at[1] == '"' || cursor->at[1] == '\\');
        if (escaped) cursor->at++;
        buffer_append(value, cursor->at, 1);
        cursor->at++;
    }
    return take_text(cursor, "\"");
}

/* "; name=value", with spaces around the semicolon. */
static bool take_parameter(struct form_cursor *cursor, struct buffer *name, struct buffer *value) {
    skip_spaces(cursor);
    if (!take_text(cursor, ";")) return false;
    skip_spaces(cursor);
    const char *begin = cursor->at;
    while (cursor->at < cursor->end && is_token_byte(*cursor->at)) cursor->at++;
    buffer_clear(name);
    buffer_append(name, begin, (size_t)(cursor->at - begin));
    return cursor->at > begin && take_text(cursor, "=") && take_value(cursor, value);
}

bool multipart_is_announced(const char *content_type) {
    size_t size = sizeof media_type - 1;
    return content_type && strncasecmp(content_type, media_type, size) == 0 &&
           strchr("; \t", content_type[size]) != NULL;
}

/* The boundary. */

static bool is_boundary(const struct buffer *buffer) {
    if (buffer->size < 1 || buffer->size > MAX_BOUNDARY || buffer->data[buffer->size - 1] == ' ')
        return false;
    for (size_t i = 0; i < buffer->size; i++)
        if (!is_token_byte(buffer->data[i]) && strchr("(),/:=? ", buffer->data[i]) == NULL)
            return false;
    return strlen(buffer->data) == buffer->size;
}

static enum status read_boundary(const char *content_type, struct buffer *boundary,
                                 struct error *e) {
    struct form_cursor cursor = {content_type + sizeof media_type - 1,
                                 content_type + strlen(content_type)};
    struct buffer name = {0}, value = {0};
    bool more = true;
    int n = 0;
    while (more && cursor.at < cursor.end) {
        more = take_parameter(&cursor, &name, &value);
        if (!more || strcasecmp(name.data, "boundary") != 0) continue;
        buffer_clear(boundary);
        buffer_append(boundary, value.data, value.size);
        n++;
    }
    buffer_free(&name);
    buffer_free(&value);
    if (more && n == 1 && is_boundary(boundary)) return STATUS_OK;
    return error_set(
        e, STATUS_INVALID,
        "Content-Type: expected \"multipart/form-data; boundary=...\" with one boundary");
}

/* The headers of a part. */

static bool is_name(const struct buffer *buffer) {
    if (!utf8_is_valid(buffer->data, buffer->size)) return false;
    for (size_t i = 0; i < buffer->size; i++)
        if ((unsigned char)buffer->data[i] < 0x20 || buffer->data[i] == 0x7f) return false;
    return true;
}

static enum status bad_part(int number, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "part %d of the body %s", number, what);
}

/* form-data; name="..."; filename="...": each once. */
static enum status read_disposition(struct multipart_part *part, int number,
                                    struct form_cursor cursor, struct error *e) {
    struct buffer name = {0}, value = {0};
    bool fine = take_word(&cursor, "form-data");
    while (fine && cursor.at < cursor.end) {
        fine = take_parameter(&cursor, &name, &value) && is_name(&value);
        char **to = fine && strcasecmp(name.data, "name") == 0       ? &part->name
                    : fine && strcasecmp(name.data, "filename") == 0 ? &part->file_name
                                                                     : NULL;
        fine = fine && to != NULL && *to == NULL;
        if (fine) *to = xstrdup(value.data);
    }
    buffer_free(&name);
    buffer_free(&value);
    if (fine && part->name) return STATUS_OK;
    return bad_part(
        number,
        "needs one Content-Disposition: form-data; name=\"...\", with a filename for a file", e);
}

/* One header line, without its end. */
static enum status read_header(struct multipart_part *part, int number, struct form_cursor line,
                               struct error *e) {
    if (take_word(&line, "Content-Disposition:")) {
        skip_spaces(&line);
        if (part->name) return bad_part(number, "has two Content-Dispositions", e);
        return read_disposition(part, number, line, e);
    }
    if (take_word(&line, "Content-Transfer-Encoding:")) {
        skip_spaces(&line);
        bool plain =
            take_word(&line, "binary") || take_word(&line, "8bit") || take_word(&line, "7bit");
        return plain && line.at == line.end ? STATUS_OK
                                            : bad_part(number, "is encoded; send it as it is", e);
    }
    const char *begin = line.at;
    while (line.at < line.end && is_token_byte(*line.at)) line.at++;
    bool fine = line.at > begin && line.at < line.end && *line.at == ':';
    return fine ? STATUS_OK : bad_part(number, "has a line that is no header", e);
}

static enum status read_headers(struct multipart_part *part, int number, struct form_cursor *cursor,
                                struct error *e) {
    for (int i = 0; i <= MAX_HEADERS; i++) {
        size_t left = (size_t)(cursor->end - cursor->at),
               room = left < MAX_HEADER ? left : MAX_HEADER;
        const char *stop = memmem(cursor->at, room, "\r\n", 2);
        if (stop == NULL)
            return bad_part(number, "has a header that does not end, or a long one", e);
        struct form_cursor line = {cursor->at, stop};
        cursor->at = stop + 2;
        if (line.at == line.end)
            return part->name ? STATUS_OK : bad_part(number, "has no Content-Disposition", e);
        if (read_header(part, number, line, e)) return e->status;
    }
    return bad_part(number, "has too many headers", e);
}

/* Parts. */

/* One part, up to the boundary behind it; *last: that is the last one. `between` is CRLF and the
 * boundary's line. */
static enum status read_part(struct multipart_part *part, int number, struct form_cursor *cursor,
                             const struct buffer *between, struct error *e) {
    if (read_headers(part, number, cursor, e)) return e->status;
    const char *stop =
        memmem(cursor->at, (size_t)(cursor->end - cursor->at), between->data, between->size);
    if (stop == NULL) return bad_part(number, "does not end in the boundary", e);
    part->body = (struct text_span){cursor->at, (size_t)(stop - cursor->at)};
    cursor->at = stop + between->size;
    return STATUS_OK;
}

static enum status read_parts(struct multipart *multipart, struct form_cursor cursor,
                              const struct buffer *between, struct error *e) {
    if (!take_text(&cursor, between->data + 2))
        return error_set(e, STATUS_INVALID, "the body does not begin with its boundary");
    while (!take_text(&cursor, "--")) {
        if (!take_text(&cursor, "\r\n"))
            return bad_part(multipart->n, "has something behind its boundary", e);
        if (multipart->n == MULTIPART_MAX_PARTS)
            return error_set(e, STATUS_INVALID, "the body has more than %d parts",
                             MULTIPART_MAX_PARTS);
        multipart->n++;
        if (read_part(&multipart->parts[multipart->n - 1], multipart->n, &cursor, between, e))
            return e->status;
    }
    take_text(&cursor, "\r\n");
    if (cursor.at != cursor.end)
        return error_set(e, STATUS_INVALID, "the body goes on behind its last boundary");
    return multipart->n > 0 ? STATUS_OK : error_set(e, STATUS_INVALID, "the body has no parts");
}

enum status multipart_parse(struct multipart *multipart, const char *content_type,
                            struct text_span body, struct error *e) {
    struct buffer boundary = {0}, between = {0};
    multipart->n = 0;
    memset(multipart->parts, 0, sizeof multipart->parts);
    enum status status = read_boundary(content_type, &boundary, e);
    if (status == STATUS_OK) {
        buffer_printf(&between, "\r\n--%s", boundary.data);
        status = read_parts(multipart, (struct form_cursor){body.text, body.text + body.size},
                            &between, e);
    }
    buffer_free(&boundary);
    buffer_free(&between);
    return status;
}

void multipart_free(struct multipart *multipart) {
    for (int i = 0; i < multipart->n; i++) {
        free(multipart->parts[i].name);
        free(multipart->parts[i].file_name);
    }
    multipart->n = 0;
}
