/* retrieval/extract/mail/attachments.h: attachments of messages, for mail.c. */
#pragma once

#include "retrieval/extract/extract_child.h"
#include "retrieval/extract/mail/message.h"

/* Bytes of a character set to UTF-8, in place. One that nobody knows gives U+FFFD for what is not
 * UTF-8. */
void mail_decode_charset(const char *charset, struct buffer *buffer);

struct mail_attachments {
    struct mail_part *parts; /* [n] */
    int n, capacity;
};
/* A part that is not the message's own text: an attachment where it says so, has a file's name or
 * is a message. */
void mail_add_attachment(struct mail_attachments *attachments, const struct mail_part *part);
/* Each as a file within `part` of the file, by its name: "!/report.pdf". Those of no known kind are
 * told. */
void mail_write_attachments(const struct mail_attachments *attachments, const char *file,
                            const char *part, struct child_writer *writer);
void mail_attachments_free(struct mail_attachments *attachments);
