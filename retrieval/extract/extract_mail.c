/* retrieval/extract/extract_mail.c: e-mail (RFC 5322, MIME) and mailboxes of it (mbox): subject, sender, receivers,
 * date and the text that a reader is shown. Of parts that say the same in several ways the plain one is taken, else
 * HTML. Attachments are files of their own (extract_attachments.c). */
#include <iconv.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/base64.h"
#include "config/base/utf8.h"
#include "retrieval/extract/extract_mail.h"
#include "retrieval/extract/extract_private.h"

enum { MAX_PARTS_DEEP = 8, MAX_CHARSETS = 8 };

static struct mail_part split_part(struct text_span text) {
    struct mail_part part = {.head = text};
    for (size_t at = 0; at < text.size;) {
        const char *line = text.text + at, *end = memchr(line, '\n', text.size - at);
        size_t size = end ? (size_t)(end - line) : text.size - at, next = at + size + (end != NULL);
        if (size == 0 || (size == 1 && *line == '\r')) {
            part.head.size = at;
            part.body = (struct text_span){text.text + next, text.size - next};
            break;
        }
        at = next;
    }
    return part;
}

bool mail_find_header(struct text_span head, const char *name, struct buffer *value) {
    size_t n = strlen(name), at = 0;
    bool found = false;
    buffer_clear(value);
    buffer_append(value, "", 0);
    while (at < head.size) {
        const char *line = head.text + at, *end = memchr(line, '\n', head.size - at);
        size_t size = end ? (size_t)(end - line) : head.size - at;
        bool folded = size > 0 && (*line == ' ' || *line == '\t');
        at += size + (end != NULL);
        if (found && !folded) break;
        bool begins = !folded && size > n && line[n] == ':' && strncasecmp(line, name, n) == 0;
        if (!begins && !(found && folded)) continue;
        size_t skip = begins ? n + 1 : 0;
        found = true;
        while (skip < size && (line[skip] == ' ' || line[skip] == '\t')) skip++;
        while (size > skip && line[size - 1] == '\r') size--;
        if (!begins) buffer_append(value, " ", 1);
        buffer_append(value, line + skip, size - skip);
    }
    return found;
}

void mail_find_parameter(const struct buffer *header, const char *name, char value[MAIL_PARAMETER_SIZE]) {
    size_t n = strlen(name), size = 0;
    value[0] = '\0';
    for (const char *at = strchr(header->data, ';'); at; at = strchr(at, ';')) {
        at++;
        while (*at == ' ' || *at == '\t') at++;
        if (strncasecmp(at, name, n) != 0 || at[n] != '=') continue;
        at += n + 1;
        bool quoted = *at == '"';
        at += quoted;
        while (at[size] && size < MAIL_PARAMETER_SIZE - 1 && (quoted ? at[size] != '"' : !strchr("; \t", at[size])))
            size++;
        memcpy(value, at, size);
        value[size] = '\0';
        return;
    }
}

/* Encodings of bytes in letters. */

/* Other characters between the letters are passed over, and a last group may be short (RFC 2045, 6.8). */
static void decode_base64(struct text_span text, struct buffer *out) {
    struct buffer letters = {0};
    for (size_t i = 0; i < text.size && text.text[i] != '='; i++)
        if (base64_is_letter(text.text[i])) buffer_append(&letters, text.text + i, 1);
    if (letters.size % 4 == 1) letters.size--; /* less than a byte */
    while (letters.size % 4 != 0) buffer_append(&letters, "=", 1);
    CHECK(base64_decode((struct text_span){letters.data, letters.size}, out));
    buffer_free(&letters);
}

int mail_read_digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *found = c ? strchr(digits, c | (c >= 'A' ? 0x20 : 0)) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* In a header _ stands for a blank. */
static void decode_quoted(struct text_span text, bool in_header, struct buffer *out) {
    for (size_t i = 0; i < text.size; i++) {
        const char *at = text.text + i;
        size_t left = text.size - i;
        int high = left > 2 ? mail_read_digit(at[1]) : -1, low = left > 2 ? mail_read_digit(at[2]) : -1;
        if (*at == '=' && high >= 0 && low >= 0) {
            buffer_append(out, &(char){(char)(high << 4 | low)}, 1);
            i += 2;
        } else if (*at == '=' && left > 1 && (at[1] == '\n' || (at[1] == '\r' && left > 2 && at[2] == '\n'))) {
            i += at[1] == '\n' ? 1 : 2;
        } else {
            buffer_append(out, in_header && *at == '_' ? " " : at, 1);
        }
    }
}

void mail_decode_charset(const char *charset, struct buffer *b) {
    if (b->size == 0 || utf8_is_valid(b->data, b->size)) {
        bool shifts = strncasecmp(charset, "iso-2022", 8) == 0;
        if (b->size == 0 || !shifts) return;
    }
    iconv_t table = iconv_open("UTF-8", charset[0] ? charset : "WINDOWS-1252");
    if (table == (iconv_t)-1) {
        extract_repair(b);
        return;
    }
    struct buffer out = {0};
    char *from = b->data, block[4096];
    size_t left = b->size;
    while (left > 0) {
        char *to = block;
        size_t room = sizeof block, before = left;
        iconv(table, &from, &left, &to, &room);
        buffer_append(&out, block, sizeof block - room);
        if (left < before || left == 0) continue;
        buffer_append_string(&out, "\xef\xbf\xbd");
        from++;
        left--;
    }
    iconv_close(table);
    buffer_free(b);
    *b = out;
    if (!utf8_is_valid(b->data ? b->data : "", b->size)) extract_repair(b);
}

/* "=?charset?Q?text?=" at `at`; its length, 0: there is none. */
static size_t decode_word(const char *at, struct buffer *out) {
    const char *charset_end = strncmp(at, "=?", 2) == 0 ? strchr(at + 2, '?') : NULL;
    const char *text = charset_end && charset_end[1] && charset_end[2] == '?' ? charset_end + 3 : NULL;
    const char *end = text ? strstr(text, "?=") : NULL;
    struct buffer word = {0};
    char charset[64];
    if (end == NULL || (size_t)(charset_end - at - 2) >= sizeof charset) return 0;
    memcpy(charset, at + 2, (size_t)(charset_end - at - 2));
    charset[charset_end - at - 2] = '\0';
    struct text_span span = {text, (size_t)(end - text)};
    if (charset_end[1] == 'B' || charset_end[1] == 'b')
        decode_base64(span, &word);
    else
        decode_quoted(span, true, &word);
    mail_decode_charset(charset, &word);
    buffer_append(out, word.data, word.size);
    buffer_free(&word);
    return (size_t)(end + 2 - at);
}

void mail_decode_header(const struct buffer *raw, struct buffer *out) {
    size_t after_word = SIZE_MAX;
    buffer_clear(out);
    for (size_t i = 0; i < raw->size;) {
        size_t blanks_from = out->size;
        size_t n = decode_word(raw->data + i, out);
        if (n > 0 && after_word != SIZE_MAX && after_word < blanks_from) {
            memmove(out->data + after_word, out->data + blanks_from, out->size - blanks_from);
            out->size -= blanks_from - after_word;
        }
        if (n > 0) {
            after_word = out->size;
            i += n;
            continue;
        }
        if (raw->data[i] != ' ' && raw->data[i] != '\t') after_word = SIZE_MAX;
        buffer_append(out, raw->data + i, raw->data[i] ? 1 : 0);
        i++;
    }
    buffer_append(out, "", 0);
    if (!utf8_is_valid(out->data, out->size)) extract_repair(out);
}

void mail_decode_transfer(struct text_span text, const char *encoding, struct buffer *out) {
    if (strncasecmp(encoding, "base64", 6) == 0)
        decode_base64(text, out);
    else if (strncasecmp(encoding, "quoted-printable", 16) == 0)
        decode_quoted(text, false, out);
    else
        buffer_append(out, text.text, text.size);
}

/* Bodies. */

struct mail_text {
    struct text_span text; /* NULL: there is none */
    char charset[MAIL_PARAMETER_SIZE];
    char encoding[32];
};

struct mail_body {
    struct mail_text plain, html; /* the parts that are shown */
    struct mail_attachments attachments;
};

/* The first plain text and the first page are the message's own, where they are not attached to it. */
static bool choose_text(struct mail_body *body, const struct mail_part *part, const struct buffer *type) {
    struct buffer value = {0};
    bool is_html = strncasecmp(type->data, "text/html", 9) == 0;
    bool is_plain = type->size == 0 || strncasecmp(type->data, "text/plain", 10) == 0;
    bool is_attached =
        mail_find_header(part->head, "Content-Disposition", &value) && strncasecmp(value.data, "attachment", 10) == 0;
    struct mail_text *chosen = is_html ? &body->html : &body->plain;
    bool takes = (is_html || is_plain) && !is_attached && chosen->text.text == NULL;
    if (takes) {
        chosen->text = part->body;
        mail_find_parameter(type, "charset", chosen->charset);
        mail_find_header(part->head, "Content-Transfer-Encoding", &value);
        strncpy(chosen->encoding, value.data, sizeof chosen->encoding - 1);
    }
    buffer_free(&value);
    return takes;
}

static void read_part(struct mail_body *body, struct text_span text, int depth);

/* The parts between lines "--boundary". The end of the line before one belongs to it. */
static void read_parts(struct mail_body *body, struct text_span text, const char *boundary, int depth) {
    size_t n = strlen(boundary), from = SIZE_MAX;
    for (size_t at = 0; at < text.size;) {
        const char *line = text.text + at, *end = memchr(line, '\n', text.size - at);
        size_t size = end ? (size_t)(end - line) : text.size - at;
        bool is_boundary = size >= n + 2 && memcmp(line, "--", 2) == 0 && memcmp(line + 2, boundary, n) == 0;
        if (is_boundary && from != SIZE_MAX)
            read_part(body, (struct text_span){text.text + from, at - from}, depth + 1);
        at += size + (end != NULL);
        if (is_boundary) from = at;
        if (is_boundary && size >= n + 4 && memcmp(line + 2 + n, "--", 2) == 0) return;
    }
    if (from != SIZE_MAX) read_part(body, (struct text_span){text.text + from, text.size - from}, depth + 1);
}

static void read_part(struct mail_body *body, struct text_span text, int depth) {
    struct mail_part part = split_part(text);
    struct buffer type = {0};
    char boundary[MAIL_PARAMETER_SIZE];
    if (depth > MAX_PARTS_DEEP) return;
    mail_find_header(part.head, "Content-Type", &type);
    mail_find_parameter(&type, "boundary", boundary);
    if (strncasecmp(type.data, "multipart/", 10) == 0 && boundary[0])
        read_parts(body, part.body, boundary, depth);
    else if (part.body.text && !choose_text(body, &part, &type))
        mail_add_attachment(&body->attachments, &part);
    buffer_free(&type);
}

static void decode_body(const struct mail_text *part, struct buffer *out) {
    mail_decode_transfer(part->text, part->encoding, out);
    mail_decode_charset(part->charset, out);
}

static void write_body(const struct mail_body *body, struct document_text *out) {
    struct buffer text = {0};
    struct document_text page = {0};
    struct error unreadable;
    if (body->plain.text.text) {
        decode_body(&body->plain, &text);
    } else if (body->html.text.text) {
        decode_body(&body->html, &text);
        bool is_page = text.size > 0 && memchr(text.data, '\0', text.size) == NULL;
        if (is_page && extract_html("page", (struct text_span){text.data, text.size}, true, &page, &unreadable))
            document_text_clear(&page);
        buffer_clear(&text);
        buffer_append(&text, page.text.data, page.text.size);
    }
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] && text.data[i] != '\r') buffer_append(&out->text, text.data + i, 1);
    buffer_free(&text);
    document_text_free(&page);
}

static void read_message(struct text_span text, struct document_text *out, struct mail_body *body) {
    static const char *const shown[] = {"Subject", "From", "To", "Date"};
    struct buffer raw = {0}, value = {0};
    struct mail_part part = split_part(text);
    for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
        if (!mail_find_header(part.head, shown[i], &raw)) continue;
        mail_decode_header(&raw, &value);
        if (value.size > 0) buffer_printf(&out->text, "%s: %s\n", shown[i], value.data);
        if (i == 0) buffer_append(&out->title, value.data, strlen(value.data));
    }
    read_part(body, text, 0);
    if (out->text.size > 0) buffer_append(&out->text, "\n", 1);
    write_body(body, out);
    buffer_append(&out->title, "", 0);
    buffer_free(&raw);
    buffer_free(&value);
}

/* The document of a message, where it has text, then its attachments. */
static bool write_message(const struct extract_file *f, struct text_span text, const char *part,
                          struct child_writer *w) {
    struct document_text d = {0};
    struct mail_body body = {.plain = {.charset = ""}};
    struct error blank;
    read_message(text, &d, &body);
    bool has_text = extract_check_blank(f->name, &d.text, &blank) == STATUS_OK;
    if (has_text) child_write_document(w, part, &d);
    mail_write_attachments(&body.attachments, f->name, part, w);
    bool has_more = body.attachments.n > 0;
    mail_attachments_free(&body.attachments);
    document_text_free(&d);
    return has_text || has_more;
}

/* Messages of a mailbox begin with a line "From " behind an empty one; their parts are called by that line. */
static void read_mailbox(const struct extract_file *f, struct child_writer *w) {
    struct buffer part = {0};
    struct text_span text = f->bytes;
    size_t from = SIZE_MAX, from_line = 0, line_number = 0;
    bool after_blank = true;
    for (size_t at = 0; at <= text.size;) {
        const char *line = text.text + at, *end = memchr(line, '\n', text.size - at);
        size_t size = end ? (size_t)(end - line) : text.size - at, next = at + size + 1;
        bool begins = after_blank && size >= 5 && memcmp(line, "From ", 5) == 0, ends = at + size >= text.size;
        line_number++;
        if ((begins || ends) && from != SIZE_MAX) {
            buffer_clear(&part);
            buffer_printf(&part, "#%zu", from_line);
            struct text_span message = {text.text + from, (ends && !begins ? text.size : at) - from};
            write_message(f, message, part.data, w);
        }
        if (begins) {
            from = next < text.size ? next : text.size;
            from_line = line_number;
        }
        after_blank = size == 0 || (size == 1 && *line == '\r');
        at = next;
    }
    buffer_free(&part);
}

enum status extract_mail(const struct extract_file *f, struct child_writer *w, struct error *e) {
    if (f->kind == DOCUMENT_MBOX) {
        read_mailbox(f, w);
        return STATUS_OK;
    }
    if (write_message(f, f->bytes, "", w)) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s: empty: no text in it", f->name);
}

/* The tables stay open, so that they are found when no file can be. */
void extract_mail_prepare(struct text_span mail) {
    static const char *const introductions[] = {"charset=", "=?"};
    int n_opened = 0;
    for (size_t i = 0; i < ARRAY_COUNT(introductions); i++) {
        size_t n = strlen(introductions[i]);
        for (size_t at = 0; at + n < mail.size && n_opened < MAX_CHARSETS; at++) {
            const char *found = memmem(mail.text + at, mail.size - at, introductions[i], n);
            if (found == NULL) break;
            at = (size_t)(found - mail.text) + n;
            size_t size = 0;
            char charset[64];
            at += at < mail.size && mail.text[at] == '"';
            while (at + size < mail.size && size < sizeof charset - 1 && !strchr("\"?; \t\r\n", mail.text[at + size]))
                size++;
            memcpy(charset, mail.text + at, size);
            charset[size] = '\0';
            bool known = strcasecmp(charset, "utf-8") == 0 || strcasecmp(charset, "us-ascii") == 0;
            if (!known && iconv_open("UTF-8", charset) != (iconv_t)-1) n_opened++;
        }
    }
    iconv_open("UTF-8", "WINDOWS-1252");
}
