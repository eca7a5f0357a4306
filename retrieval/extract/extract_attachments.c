/* retrieval/extract/extract_attachments.c: the attachments of a message, as files within it. See extract_mail.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/hash.h"
#include "config/base/utf8.h"
#include "retrieval/extract/extract_mail.h"
#include "retrieval/extract/extract_private.h"

enum { MAX_NAME = 200, MAX_SECTIONS = 16 };

static bool begins_with(const struct buffer *b, const char *word) {
    return b->size > 0 && strncasecmp(b->data, word, strlen(word)) == 0;
}

/* Names. */

/* "UTF-8'en'na%C3%AFve.txt" (RFC 2231): bytes as two digits behind %. */
static void decode_percents(const char *text, struct buffer *out) {
    for (; *text; text++) {
        int high = *text == '%' ? mail_read_digit(text[1]) : -1, low = high >= 0 ? mail_read_digit(text[2]) : -1;
        buffer_append(out, low >= 0 ? &(char){(char)(high << 4 | low)} : text, 1);
        if (low >= 0) text += 2;
    }
}

/* The value's bytes in the character set that stands before it. */
static void decode_extended(const struct buffer *value, struct buffer *out) {
    const char *language = value->size > 0 ? strchr(value->data, '\'') : NULL;
    const char *text = language ? strchr(language + 1, '\'') : NULL;
    char charset[MAIL_PARAMETER_SIZE] = "";
    size_t size = language ? (size_t)(language - value->data) : 0;
    if (text && size < sizeof charset) memcpy(charset, value->data, size);
    decode_percents(text ? text + 1 : value->size > 0 ? value->data : "", out);
    mail_decode_charset(charset, out);
}

/* A parameter that may be cut in sections, "filename*0*=", and have a character set, "filename*=". */
static bool find_extended(const struct buffer *header, const char *name, struct buffer *out) {
    struct buffer key = {0}, whole = {0};
    char value[MAIL_PARAMETER_SIZE];
    buffer_printf(&key, "%s*", name);
    mail_find_parameter(header, key.data, value);
    buffer_append_string(&whole, value);
    for (int i = 0; i < MAX_SECTIONS && (i == 0 || value[0]); i++) {
        buffer_clear(&key);
        buffer_printf(&key, "%s*%d*", name, i);
        mail_find_parameter(header, key.data, value);
        key.data[key.size - 1] = '\0';
        if (value[0] == '\0') mail_find_parameter(header, key.data, value);
        buffer_append_string(&whole, value);
    }
    decode_extended(&whole, out);
    buffer_free(&key);
    buffer_free(&whole);
    return out->size > 0;
}

static void find_name_in(const struct buffer *header, const char *name, struct buffer *out) {
    char value[MAIL_PARAMETER_SIZE];
    struct buffer raw = {0};
    if (header->size == 0 || find_extended(header, name, out)) return;
    mail_find_parameter(header, name, value);
    buffer_append_string(&raw, value);
    mail_decode_header(&raw, out);
    buffer_free(&raw);
}

/* The last part of a path, without what steers terminals. */
static void clean_name(struct buffer *name) {
    size_t from = 0, to = 0;
    for (size_t i = 0; i < name->size; i++)
        if (name->data[i] == '/' || name->data[i] == '\\') from = i + 1;
    for (size_t i = from; i < name->size; i++) {
        uint8_t c = (uint8_t)name->data[i];
        name->data[to] = c < 0x20 || c == 0x7f ? '_' : name->data[i];
        to++;
    }
    name->size = to;
    if (name->data) name->data[to] = '\0';
    if (to > MAX_NAME || (to > 0 && !utf8_is_valid(name->data, to))) buffer_clear(name);
}

/* Without a file's name, the type says the kind. */
static const char *suffix_of_type(const struct buffer *type) {
    static const struct {
        const char *type, *suffix;
    } suffixes[] = {{"message/rfc822", "eml"}, {"application/pdf", "pdf"},  {"application/zip", "zip"},
                    {"text/html", "html"},     {"text/csv", "csv"},         {"text/markdown", "md"},
                    {"text/plain", "txt"},     {"application/epub", "epub"}};
    for (size_t i = 0; i < ARRAY_COUNT(suffixes); i++)
        if (begins_with(type, suffixes[i].type)) return suffixes[i].suffix;
    return NULL;
}

static void find_name(const struct mail_part *part, int number, struct buffer *name) {
    struct buffer disposition = {0}, type = {0};
    buffer_clear(name);
    mail_find_header(part->head, "Content-Disposition", &disposition);
    mail_find_header(part->head, "Content-Type", &type);
    find_name_in(&disposition, "filename", name);
    if (name->size == 0) find_name_in(&type, "name", name);
    clean_name(name);
    const char *suffix = suffix_of_type(&type);
    if (name->size == 0) buffer_printf(name, "attachment-%d", number);
    if (document_kind_within(name->data) == DOCUMENT_UNKNOWN && suffix) buffer_printf(name, ".%s", suffix);
    buffer_free(&disposition);
    buffer_free(&type);
}

/* Gathering. */

/* Signatures are no documents; pictures that a page shows are a part of the page. */
static bool is_attachment(const struct buffer *disposition, const struct buffer *type) {
    static const char *const never[] = {"application/pgp-signature", "application/pkcs7-signature",
                                        "application/x-pkcs7-signature"};
    char name[MAIL_PARAMETER_SIZE], extended[MAIL_PARAMETER_SIZE];
    for (size_t i = 0; i < ARRAY_COUNT(never); i++)
        if (begins_with(type, never[i])) return false;
    if (begins_with(disposition, "attachment") || begins_with(type, "message/rfc822")) return true;
    if (begins_with(type, "image/")) return false;
    mail_find_parameter(type, "name", name);
    mail_find_parameter(disposition, "filename", extended);
    return name[0] || extended[0] || (disposition->size > 0 && strcasestr(disposition->data, "filename*"));
}

void mail_add_attachment(struct mail_attachments *a, const struct mail_part *part) {
    struct buffer disposition = {0}, type = {0};
    mail_find_header(part->head, "Content-Disposition", &disposition);
    mail_find_header(part->head, "Content-Type", &type);
    if (is_attachment(&disposition, &type)) {
        a->parts = xgrow(a->parts, a->n, &a->capacity, sizeof *a->parts);
        a->parts[a->n] = *part;
        a->n++;
    }
    buffer_free(&disposition);
    buffer_free(&type);
}

void mail_attachments_free(struct mail_attachments *a) {
    free(a->parts);
    *a = (struct mail_attachments){0};
}

/* Writing. */

/* Text says its character set here, and nowhere else. */
static void decode_attachment(const struct mail_part *part, struct buffer *bytes) {
    struct buffer encoding = {0}, type = {0};
    char charset[MAIL_PARAMETER_SIZE];
    mail_find_header(part->head, "Content-Transfer-Encoding", &encoding);
    mail_find_header(part->head, "Content-Type", &type);
    mail_find_parameter(&type, "charset", charset);
    mail_decode_transfer(part->body, encoding.data, bytes);
    buffer_append(bytes, "", 0);
    if (begins_with(&type, "text/") && charset[0]) mail_decode_charset(charset, bytes);
    buffer_free(&encoding);
    buffer_free(&type);
}

static void write_attachment(const struct mail_part *attachment, const char *part, struct child_writer *w) {
    struct buffer bytes = {0};
    decode_attachment(attachment, &bytes);
    child_write_member(w, part, (struct text_span){bytes.data, bytes.size});
    buffer_free(&bytes);
}

void mail_write_attachments(const struct mail_attachments *a, const char *file, const char *part,
                            struct child_writer *w) {
    struct key_set names = {0};
    struct buffer name = {0}, whole = {0}, unknown = {0};
    struct error why;
    int n_unknown = 0;
    for (int i = 0; i < a->n; i++) {
        find_name(&a->parts[i], i + 1, &name);
        bool is_new = key_set_add(&names, hash_bytes(name.data, name.size, 0), hash_bytes(name.data, name.size, 1));
        buffer_clear(&whole);
        if (is_new)
            buffer_printf(&whole, "%s!/%s", part, name.data);
        else
            buffer_printf(&whole, "%s!/%d/%s", part, i + 1, name.data);
        if (document_kind_within(name.data) != DOCUMENT_UNKNOWN) {
            write_attachment(&a->parts[i], whole.data, w);
            continue;
        }
        if (n_unknown == 0) buffer_append_string(&unknown, name.data);
        n_unknown++;
    }
    if (n_unknown > 0) {
        error_set(&why, STATUS_UNSUPPORTED, "%s%s: %d of its attachments are of no known kind, the first is %s", file,
                  part, n_unknown, unknown.data);
        child_write_skipped(w, &why);
    }
    key_set_free(&names);
    buffer_free(&name);
    buffer_free(&whole);
    buffer_free(&unknown);
}
