/* retrieval/extract/mail/mail.c: e-mail (RFC 5322, MIME) and mailboxes of it (mbox): subject,
 * sender, receivers, date and the text that a reader is shown. Of parts that say the same in
 * several ways the plain one is taken, else HTML. Attachments are files of their own
 * (attachments.c). */
#include <iconv.h>
#include <string.h>
#include <strings.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/mail/attachments.h"

/* Of character sets beside UTF-8, in one file. */
enum { MAX_CHARSETS = 32 };

/* Character sets. */

void mail_decode_charset(const char *charset, struct buffer *buffer) {
    if (buffer->size == 0 || utf8_is_valid(buffer->data, buffer->size)) {
        bool shifts = strncasecmp(charset, "iso-2022", 8) == 0;
        if (buffer->size == 0 || !shifts) return;
    }
    iconv_t table = iconv_open("UTF-8", charset[0] ? charset : "WINDOWS-1252");
    if (table == (iconv_t)-1) {
        extract_repair(buffer);
        return;
    }
    struct buffer out = {0};
    char *from = buffer->data, block[4096];
    size_t left = buffer->size;
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
    buffer_free(buffer);
    *buffer = out;
    if (!utf8_is_valid(buffer->data ? buffer->data : "", buffer->size)) extract_repair(buffer);
}

/* Whether the = at `at` stands before the name of a character set: "=?koi8-r?", "charset = koi8-r",
 * "filename*=koi8-r'". */
static bool begins_charset(struct text_span mail, size_t at) {
    size_t end = at, n = strlen("charset");
    if (at + 1 < mail.size && mail.text[at + 1] == '?') return true;
    while (end > 0 && strchr("* \t\r\n", mail.text[end - 1])) end--;
    bool is_extended = at > 0 && mail.text[at - 1] == '*';
    return is_extended || (end >= n && strncasecmp(mail.text + end - n, "charset", n) == 0);
}

/* The name behind the = at `at`; "" where it is UTF-8 or none. A longer one is cut, and nobody
 * knows it. */
static void read_charset(struct text_span mail, size_t at, char name[64]) {
    size_t from = at + 1, size = 0;
    while (from < mail.size && strchr("? \t\r\n\"", mail.text[from])) from++;
    while (from + size < mail.size && size < 63 && !strchr("\"?;'* \t\r\n", mail.text[from + size]))
        size++;
    memcpy(name, mail.text + from, size);
    name[size] = '\0';
    if (strcasecmp(name, "utf-8") == 0 || strcasecmp(name, "us-ascii") == 0) name[0] = '\0';
}

/* The tables of iconv stay open, so that they are found when no file can be. */
static iconv_t open_tables[MAX_CHARSETS + 1];
static int n_open_tables;

static void close_charsets(void) {
    while (n_open_tables > 0) {
        n_open_tables--;
        iconv_close(open_tables[n_open_tables]);
    }
}

static void open_charset(const char *name) {
    iconv_t table = iconv_open("UTF-8", name);
    if (table == (iconv_t)-1) return;
    open_tables[n_open_tables] = table;
    n_open_tables++;
}

static void open_charsets(struct text_span mail) {
    struct key_set seen = {.n = 0};
    char name[64];
    const char *end = mail.text + mail.size, *at = memchr(mail.text, '=', mail.size);
    close_charsets();
    open_charset("WINDOWS-1252");
    while (at && seen.n < MAX_CHARSETS) {
        size_t place = (size_t)(at - mail.text);
        name[0] = '\0';
        if (begins_charset(mail, place)) read_charset(mail, place, name);
        if (name[0] && key_set_add(&seen, hash_bytes(name, strlen(name), 0), 0)) open_charset(name);
        at = memchr(at + 1, '=', (size_t)(end - at - 1));
    }
    key_set_free(&seen);
}

void extract_mail_prepare(const struct extract_file *file) {
    struct error missing;
    open_charsets(file->bytes);
    mail_open_library(file->name, &missing); /* extract_mail says so */
}

/* Messages. */

struct mail_text {
    struct buffer plain, html;
    bool has_plain, has_html;
    struct mail_attachments attachments;
};

/* The first plain text and the first page are the message's own, where they are not attached to it.
 */
static void take_part(void *context, const struct mail_part *part) {
    struct mail_text *own = context;
    bool is_text = strcasecmp(part->type, "text") == 0 && !part->is_attached;
    bool is_plain = is_text && !own->has_plain && strcasecmp(part->subtype, "plain") == 0;
    bool is_html = is_text && !own->has_html && strcasecmp(part->subtype, "html") == 0;
    struct buffer *text = is_plain ? &own->plain : &own->html;
    own->has_plain |= is_plain;
    own->has_html |= is_html;
    if (!is_plain && !is_html) {
        mail_add_attachment(&own->attachments, part);
        return;
    }
    mail_read_part(part, text);
    mail_decode_charset(part->charset, text);
}

static void read_page(const struct buffer *html, struct buffer *text) {
    struct document_text page = {0};
    struct error unreadable;
    bool is_page = html->size > 0 && memchr(html->data, '\0', html->size) == NULL;
    if (is_page && extract_html("page", (struct text_span){html->data, html->size}, true, &page,
                                &unreadable) == STATUS_OK)
        buffer_append(text, page.text.data, page.text.size);
    document_text_free(&page);
}

static void write_headers(const struct mail_message *message, struct document_text *out) {
    static const char *const shown[] = {"Subject", "From", "To", "Date"};
    struct buffer value = {0};
    for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
        if (!mail_find_header(message, shown[i], &value)) continue;
        if (value.size > 0) buffer_printf(&out->text, "%s: %s\n", shown[i], value.data);
        if (i == 0) buffer_append(&out->title, value.data, value.size);
    }
    if (out->text.size > 0) buffer_append(&out->text, "\n", 1);
    buffer_append(&out->title, "", 0);
    buffer_free(&value);
}

static void write_text(struct mail_text *own, struct document_text *out) {
    if (!own->has_plain) read_page(&own->html, &own->plain);
    for (size_t i = 0; i < own->plain.size; i++)
        if (own->plain.data[i] && own->plain.data[i] != '\r')
            buffer_append(&out->text, own->plain.data + i, 1);
}

/* The document of a message, where it has text, then its attachments. */
static bool write_message(const struct extract_file *file, struct text_span text, const char *part,
                          struct child_writer *writer) {
    struct document_text document_text = {0};
    struct mail_text own = {.has_plain = false};
    struct error blank;
    struct mail_message *message = mail_parse(text);
    write_headers(message, &document_text);
    mail_walk(message, take_part, &own);
    write_text(&own, &document_text);
    bool has_text = extract_check_blank(file->name, &document_text.text, &blank) == STATUS_OK;
    if (has_text) child_write_document(writer, part, &document_text);
    mail_write_attachments(&own.attachments, file->name, part, writer);
    bool has_more = own.attachments.n > 0;
    mail_attachments_free(&own.attachments);
    mail_free(message);
    buffer_free(&own.plain);
    buffer_free(&own.html);
    document_text_free(&document_text);
    return has_text || has_more;
}

/* Messages of a mailbox begin with a line "From " behind an empty one; their parts are called by
 * that line. */
static void read_mailbox(const struct extract_file *file, struct child_writer *writer) {
    struct buffer part = {0};
    struct text_span text = file->bytes;
    size_t from = SIZE_MAX, from_line = 0, line_number = 0;
    bool after_blank = true;
    for (size_t at = 0; at <= text.size;) {
        const char *line = text.text + at, *end = memchr(line, '\n', text.size - at);
        size_t size = end ? (size_t)(end - line) : text.size - at, next = at + size + 1;
        bool begins = after_blank && size >= 5 && memcmp(line, "From ", 5) == 0,
             ends = at + size >= text.size;
        line_number++;
        if ((begins || ends) && from != SIZE_MAX) {
            buffer_clear(&part);
            buffer_printf(&part, "#%zu", from_line);
            struct text_span message = {text.text + from,
                                        (ends && !begins ? text.size : at) - from};
            write_message(file, message, part.data, writer);
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

enum status extract_mail(const struct extract_file *file, struct child_writer *writer,
                         struct error *e) {
    if (mail_open_library(file->name, e)) return e->status;
    if (file->kind == DOCUMENT_MBOX) {
        read_mailbox(file, writer);
        return STATUS_OK;
    }
    if (write_message(file, file->bytes, "", writer)) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s: empty: no text in it", file->name);
}
