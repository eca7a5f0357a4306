/* retrieval/extract/mail/message.h: a message of e-mail (RFC 5322, MIME) as headers and parts, by
 * GMime. */
#pragma once

#include "config/base/buffer.h"

/* A part that holds no parts. Its strings are UTF-8, "" where the message says nothing, and live as
 * the message does.
 */
struct mail_part {
    const char *type, *subtype; /* "text", "plain", as they were written */
    const char *charset;
    const char *name; /* of a file, with folders as it came */
    bool is_attached; /* not to be shown with the message */
    void *content;
};

struct mail_message;

/* GMime is opened on the first call, which reads files of the system. STATUS_UNSUPPORTED where it
 * is missing; `file` is for the error. */
enum status mail_open_library(const char *file, struct error *e);
/* The library is open. `text` is copied. */
struct mail_message *mail_parse(struct text_span text);
void mail_free(struct mail_message *mail);
/* The first header of that name in UTF-8, its lines joined, into *value; false: there is none. */
bool mail_find_header(const struct mail_message *mail, const char *name, struct buffer *value);
/* Calls `take` for each part in order. Parts more than eight deep within parts are passed over. */
void mail_walk(struct mail_message *mail, void (*take)(void *context, const struct mail_part *part),
               void *context);
/* Appends a part's bytes, decoded for the transfer alone. A message within the message comes whole.
 */
void mail_read_part(const struct mail_part *part, struct buffer *out);
