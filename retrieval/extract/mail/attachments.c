/* retrieval/extract/mail/attachments.c: the attachments of a message, as files within it. See
 * attachments.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/mail/attachments.h"

enum { MAX_NAME = 200 };

static bool is_type(const struct mail_part *part, const char *type, const char *subtype) {
    return strcasecmp(part->type, type) == 0 &&
           (subtype == NULL || strcasecmp(part->subtype, subtype) == 0);
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
static void find_name(const struct mail_part *part, int number, struct buffer *name) {
    struct buffer type = {0};
    buffer_clear(name);
    buffer_append_string(name, part->name);
    clean_name(name);
    if (name->size == 0) buffer_printf(name, "attachment-%d", number);
    if (document_kind_within(name->data) != DOCUMENT_UNKNOWN) return;
    buffer_printf(&type, "%s/%s", part->type, part->subtype);
    document_add_suffix(name, type.data);
    buffer_free(&type);
}

/* Signatures are no documents; pictures that a page shows are a part of the page. */
static bool is_attachment(const struct mail_part *part) {
    static const char *const signatures[] = {"pgp-signature", "pkcs7-signature",
                                             "x-pkcs7-signature"};
    for (size_t i = 0; i < ARRAY_COUNT(signatures); i++)
        if (is_type(part, "application", signatures[i])) return false;
    if (part->is_attached || is_type(part, "message", "rfc822")) return true;
    return part->name[0] && !is_type(part, "image", NULL);
}

void mail_add_attachment(struct mail_attachments *attachments, const struct mail_part *part) {
    if (!is_attachment(part)) return;
    attachments->parts = xgrow(attachments->parts, attachments->n, &attachments->capacity,
                               sizeof *attachments->parts);
    attachments->parts[attachments->n] = *part;
    attachments->n++;
}

void mail_attachments_free(struct mail_attachments *attachments) {
    free(attachments->parts);
    *attachments = (struct mail_attachments){0};
}

/* Text says its character set here, and nowhere else. */
static void write_attachment(const struct mail_part *attachment, const char *part,
                             struct child_writer *writer) {
    struct buffer bytes = {0};
    mail_read_part(attachment, &bytes);
    buffer_append(&bytes, "", 0);
    if (is_type(attachment, "text", NULL) && attachment->charset[0])
        mail_decode_charset(attachment->charset, &bytes);
    child_write_member(writer, part, (struct text_span){bytes.data, bytes.size});
    buffer_free(&bytes);
}

void mail_write_attachments(const struct mail_attachments *attachments, const char *file,
                            const char *part, struct child_writer *writer) {
    struct key_set names = {0};
    struct buffer name = {0}, whole = {0}, unknown = {0};
    struct error why;
    int n_unknown = 0;
    for (int i = 0; i < attachments->n; i++) {
        find_name(&attachments->parts[i], i + 1, &name);
        bool is_new = key_set_add(&names, hash_bytes(name.data, name.size, 0),
                                  hash_bytes(name.data, name.size, 1));
        buffer_clear(&whole);
        if (is_new)
            buffer_printf(&whole, "%s!/%s", part, name.data);
        else
            buffer_printf(&whole, "%s!/%d/%s", part, i + 1, name.data);
        if (document_kind_within(name.data) != DOCUMENT_UNKNOWN) {
            write_attachment(&attachments->parts[i], whole.data, writer);
            continue;
        }
        if (n_unknown == 0) buffer_append_string(&unknown, name.data);
        n_unknown++;
    }
    if (n_unknown > 0) {
        error_set(&why, STATUS_UNSUPPORTED,
                  "%s%s: %d of its attachments are of no known kind, the first is %s", file, part,
                  n_unknown, unknown.data);
        child_write_skipped(writer, &why);
    }
    key_set_free(&names);
    buffer_free(&name);
    buffer_free(&whole);
    buffer_free(&unknown);
}
