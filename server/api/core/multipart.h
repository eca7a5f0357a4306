/* server/api/core/multipart.h: bodies of multipart/form-data (RFC 7578, RFC 2046), as browsers and
 * curl send them, and nothing looser: lines end in CRLF, there is nothing before the first boundary
 * and behind the last one, each part has one Content-Disposition, and nothing is encoded. */
#pragma once

#include "config/base/buffer.h"

enum { MULTIPART_MAX_PARTS = 256 };

struct multipart_part {
    char *name;      /* of the form's field */
    char *file_name; /* NULL: it is no file */
    struct text_span body;
};

struct multipart {
    struct multipart_part parts[MULTIPART_MAX_PARTS];
    int n;
};

/* Whether a Content-Type announces one. */
bool multipart_is_announced(const char *content_type);
/* Bodies of parts point into body. Names are UTF-8 without control characters. On failure too it is
 * to be freed: STATUS_INVALID says what is wrong. */
enum status multipart_parse(struct multipart *multipart, const char *content_type,
                            struct text_span body, struct error *e);
void multipart_free(struct multipart *multipart);
