/* retrieval/milvus/client/address.h: the name of a collection in Milvus: "milvus://HOST:PORT/NAME",
 * or "milvuss://..." for a server that speaks TLS. Without a port it is 19530. */
#pragma once

#include "config/base/buffer.h"

struct milvus_address {
    char server[300];     /* "http://host:19530", or "https://..." */
    char collection[256]; /* letters, digits and _ */
};

/* Whether a name means a collection in Milvus, right or wrong, and no folder. */
bool milvus_address_is(const char *text);
/* STATUS_INVALID says what is wrong. An address holds no password: it is shown in logs. */
enum status milvus_address_parse(struct milvus_address *out, const char *text, struct error *e);
