/* retrieval/extract/extract_mail.h: parts of messages (RFC 2045), for extract_mail.c and extract_attachments.c. */
#pragma once

#include "config/base/key_set.h"
#include "retrieval/extract/extract_child.h"

/* A part of a message: its headers, and what is behind the empty line. */
struct mail_part {
    struct text_span head, body;
};

enum { MAIL_PARAMETER_SIZE = 128 };

/* The first header of that name, its lines joined; "" and false: there is none. */
bool mail_find_header(struct text_span head, const char *name, struct buffer *value);
/* The value of name=... or name="..." in a header; "" without. A longer one is cut. */
void mail_find_parameter(const struct buffer *header, const char *name, char value[MAIL_PARAMETER_SIZE]);
/* Words of other alphabets to UTF-8. Blanks between two of them are no blanks. */
void mail_decode_header(const struct buffer *raw, struct buffer *out);
/* Appends a body's bytes; `encoding` is its Content-Transfer-Encoding. */
void mail_decode_transfer(struct text_span text, const char *encoding, struct buffer *out);
/* Bytes of a character set to UTF-8, in place. One that nobody knows gives U+FFFD for what is not UTF-8. */
void mail_decode_charset(const char *charset, struct buffer *b);
/* A digit of base 16; -1: none. */
int mail_read_digit(char c);

/* Attachments of a message. */

struct mail_attachments {
    struct mail_part *parts; /* [n] */
    int n, capacity;
};
/* A part that is not the message's own text: an attachment where it says so, has a file's name or is a message. */
void mail_add_attachment(struct mail_attachments *a, const struct mail_part *part);
/* Each as a file within `part` of the file, by its name: "!/report.pdf". Those of no known kind are told. */
void mail_write_attachments(const struct mail_attachments *a, const char *file, const char *part,
                            struct child_writer *w);
void mail_attachments_free(struct mail_attachments *a);
