/* retrieval/milvus/client/link.h: calls of gRPC methods of one server: HTTP/2 by libcurl, TLS where
 * the address says so. One call is one attempt, within a time limit; link_call never waits longer.
 */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"

struct milvus_link;

struct link_options {
    const char *url;       /* "http://host:19530" or "https://..." */
    const char *token;     /* "user:password" or a key; NULL or "": none. It is in no message */
    const char *authority; /* file of certificates that a server's is checked against; NULL or "":
                              the system's */
};

/* Connects to nothing yet. STATUS_UNSUPPORTED in a build without libcurl. */
enum status link_open(struct milvus_link **out, const struct link_options *options,
                      struct error *e);
void link_close(struct milvus_link *milvus_link); /* NULL: nothing */

/* Bytes of an answer at most: Milvus sends no larger ones by default. */
enum { LINK_ANSWER_BYTES = 256 << 20 };

/* One attempt to call /milvus.proto.milvus.MilvusService/METHOD. */
struct link_request {
    const char *method;
    struct text_span message;
    double seconds;               /* that it may take */
    const atomic_bool *cancelled; /* true: nobody waits for it any more; NULL: somebody does */
};

/* reply is cleared, and gets the message of the answer. Any thread. STATUS_BUSY where the server
 * was not reached, was too slow, broke off, or answered as Milvus does not; *again: another attempt
 * may go well. STATUS_CANCELLED within about a second of the cancellation. */
enum status link_call(struct milvus_link *milvus_link, const struct link_request *request,
                      struct buffer *reply, bool *again, struct error *e);
