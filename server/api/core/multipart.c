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

static bool take_text(struct form_cursor *c, const char *text) {
    size_t size = strlen(text);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, text, size) != 0) return false;
    c->at += size;
    return true;
}

static bool take_word(struct form_cursor *c, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(c->end - c->at) < size || strncasecmp(c->at, word, size) != 0) return false;
    c->at += size;
    return true;
}

static void skip_spaces(struct form_cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t')) c->at++;
}

/* RFC 9110's token. */
static bool is_token_byte(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           (byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte) != NULL);
}

/* A token or a quoted string, in which a backslash stands before a quote or a backslash. Browsers write a quote as %22
 * and leave backslashes of a name as they are. */
static bool take_value(struct form_cursor *c, struct buffer *value) {
    buffer_clear(value);
    buffer_append(value, "", 0);
    if (!take_text(c, "\"")) {
        const char *begin = c->at;
        while (c->at < c->end && is_token_byte(*c->at)) c->at++;
        buffer_append(value, begin, (size_t)(c->at - begin));
        return c->at > begin;
    }
    while (c->at < c->end && *c->at != '"') {
        bool escaped = *c->at == '\\' && c->end - c->at > 1 && (c->at[1] == '"' || c->at[1] == '\\');
        if (escaped) c->at++;
        buffer_append(value, c->at, 1);
        c->at++;
    }
    return take_text(c, "\"");
}

/* "; name=value", with spaces around the semicolon. */
static bool take_parameter(struct form_cursor *c, struct buffer *name, struct buffer *value) {
    skip_spaces(c);
    if (!take_text(c, ";")) return false;
    skip_spaces(c);
    const char *begin = c->at;
    while (c->at < c->end && is_token_byte(*c->at)) c->at++;
    buffer_clear(name);
    buffer_append(name, begin, (size_t)(c->at - begin));
    return c->at > begin && take_text(c, "=") && take_value(c, value);
}

bool multipart_is_announced(const char *content_type) {
    size_t size = sizeof media_type - 1;
    return content_type && strncasecmp(content_type, media_type, size) == 0 &&
           strchr("; \t", content_type[size]) != NULL;
}

/* The boundary. */

static bool is_boundary(const struct buffer *b) {
    if (b->size < 1 || b->size > MAX_BOUNDARY || b->data[b->size - 1] == ' ') return false;
    for (size_t i = 0; i < b->size; i++)
        if (!is_token_byte(b->data[i]) && strchr("(),/:=? ", b->data[i]) == NULL) return false;
    return strlen(b->data) == b->size;
}

static enum status read_boundary(const char *content_type, struct buffer *boundary, struct error *e) {
    struct form_cursor c = {content_type + sizeof media_type - 1, content_type + strlen(content_type)};
    struct buffer name = {0}, value = {0};
    bool more = true;
    int n = 0;
    while (more && c.at < c.end) {
        more = take_parameter(&c, &name, &value);
        if (!more || strcasecmp(name.data, "boundary") != 0) continue;
        buffer_clear(boundary);
        buffer_append(boundary, value.data, value.size);
        n++;
    }
    buffer_free(&name);
    buffer_free(&value);
    if (more && n == 1 && is_boundary(boundary)) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "Content-Type: expected \"multipart/form-data; boundary=...\" with one boundary");
}

/* The headers of a part. */

static bool is_name(const struct buffer *b) {
    if (!utf8_is_valid(b->data, b->size)) return false;
    for (size_t i = 0; i < b->size; i++)
        if ((unsigned char)b->data[i] < 0x20 || b->data[i] == 0x7f) return false;
    return true;
}

static enum status bad_part(int number, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "part %d of the body %s", number, what);
}

/* form-data; name="..."; filename="...": each once. */
static enum status read_disposition(struct multipart_part *p, int number, struct form_cursor c, struct error *e) {
    struct buffer name = {0}, value = {0};
    bool fine = take_word(&c, "form-data");
    while (fine && c.at < c.end) {
        fine = take_parameter(&c, &name, &value) && is_name(&value);
        char **to = fine && strcasecmp(name.data, "name") == 0       ? &p->name
                    : fine && strcasecmp(name.data, "filename") == 0 ? &p->file_name
                                                                     : NULL;
        fine = fine && to != NULL && *to == NULL;
        if (fine) *to = xstrdup(value.data);
    }
    buffer_free(&name);
    buffer_free(&value);
    if (fine && p->name) return STATUS_OK;
    return bad_part(number, "needs one Content-Disposition: form-data; name=\"...\", with a filename for a file", e);
}

/* One header line, without its end. */
static enum status read_header(struct multipart_part *p, int number, struct form_cursor line, struct error *e) {
    if (take_word(&line, "Content-Disposition:")) {
        skip_spaces(&line);
        if (p->name) return bad_part(number, "has two Content-Dispositions", e);
        return read_disposition(p, number, line, e);
    }
    if (take_word(&line, "Content-Transfer-Encoding:")) {
        skip_spaces(&line);
        bool plain = take_word(&line, "binary") || take_word(&line, "8bit") || take_word(&line, "7bit");
        return plain && line.at == line.end ? STATUS_OK : bad_part(number, "is encoded; send it as it is", e);
    }
    const char *begin = line.at;
    while (line.at < line.end && is_token_byte(*line.at)) line.at++;
    bool fine = line.at > begin && line.at < line.end && *line.at == ':';
    return fine ? STATUS_OK : bad_part(number, "has a line that is no header", e);
}

static enum status read_headers(struct multipart_part *p, int number, struct form_cursor *c, struct error *e) {
    for (int i = 0; i <= MAX_HEADERS; i++) {
        size_t left = (size_t)(c->end - c->at), room = left < MAX_HEADER ? left : MAX_HEADER;
        const char *stop = memmem(c->at, room, "\r\n", 2);
        if (stop == NULL) return bad_part(number, "has a header that does not end, or a long one", e);
        struct form_cursor line = {c->at, stop};
        c->at = stop + 2;
        if (line.at == line.end) return p->name ? STATUS_OK : bad_part(number, "has no Content-Disposition", e);
        if (read_header(p, number, line, e)) return e->status;
    }
    return bad_part(number, "has too many headers", e);
}

/* Parts. */

/* One part, up to the boundary behind it; *last: that is the last one. `between` is CRLF and the boundary's line. */
static enum status read_part(struct multipart_part *p, int number, struct form_cursor *c, const struct buffer *between,
                             struct error *e) {
    if (read_headers(p, number, c, e)) return e->status;
    const char *stop = memmem(c->at, (size_t)(c->end - c->at), between->data, between->size);
    if (stop == NULL) return bad_part(number, "does not end in the boundary", e);
    p->body = (struct text_span){c->at, (size_t)(stop - c->at)};
    c->at = stop + between->size;
    return STATUS_OK;
}

static enum status read_parts(struct multipart *m, struct form_cursor c, const struct buffer *between,
                              struct error *e) {
    if (!take_text(&c, between->data + 2))
        return error_set(e, STATUS_INVALID, "the body does not begin with its boundary");
    while (!take_text(&c, "--")) {
        if (!take_text(&c, "\r\n")) return bad_part(m->n, "has something behind its boundary", e);
        if (m->n == MULTIPART_MAX_PARTS)
            return error_set(e, STATUS_INVALID, "the body has more than %d parts", MULTIPART_MAX_PARTS);
        m->n++;
        if (read_part(&m->parts[m->n - 1], m->n, &c, between, e)) return e->status;
    }
    take_text(&c, "\r\n");
    if (c.at != c.end) return error_set(e, STATUS_INVALID, "the body goes on behind its last boundary");
    return m->n > 0 ? STATUS_OK : error_set(e, STATUS_INVALID, "the body has no parts");
}

enum status multipart_parse(struct multipart *m, const char *content_type, struct text_span body, struct error *e) {
    struct buffer boundary = {0}, between = {0};
    m->n = 0;
    memset(m->parts, 0, sizeof m->parts);
    enum status status = read_boundary(content_type, &boundary, e);
    if (status == STATUS_OK) {
        buffer_printf(&between, "\r\n--%s", boundary.data);
        status = read_parts(m, (struct form_cursor){body.text, body.text + body.size}, &between, e);
    }
    buffer_free(&boundary);
    buffer_free(&between);
    return status;
}

void multipart_free(struct multipart *m) {
    for (int i = 0; i < m->n; i++) {
        free(m->parts[i].name);
        free(m->parts[i].file_name);
    }
    m->n = 0;
}
