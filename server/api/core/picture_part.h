/* server/api/core/picture_part.h: pictures as clients send them: {"type": "image_url", "image_url":
 * {"url": "data:..."}}, or with the URL of a host that option server.image_urls lists. */
#pragma once

#include "config/json/json_value.h"
#include "server/access/hosts.h"
#include "server/api/core/failure.h"

/* Whether a part is {"type": "image_url", ...}. */
bool picture_part_is(const struct json *part);

/* The place of a part in its request. */
struct picture_place {
    const char *field, *of;         /* of the request; and in messages: "message 3" */
    const struct host_rules *hosts; /* that pictures may be fetched from; NULL: from none */
};
/* One of the two. */
struct picture_source {
    struct buffer bytes; /* of the file */
    char *web;           /* the URL that it is to be fetched from; NULL: the bytes are there */
};
/* Reads the picture that such a part names; the source's are the caller's. */
bool picture_part_read(const struct json *part, const struct picture_place *place,
                       struct picture_source *out, struct failure *failure);
