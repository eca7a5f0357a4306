/* server/api/core/request_log.h: the line of the log that a request has, and the names that it goes
 * by there: an id, which the client may choose, and its place in a trace (W3C Trace Context). */
#pragma once

#include "server/access/address.h"
#include "server/access/principal.h"

enum { REQUEST_ID_BYTES = 65 };

/* Zeroed: the request is of no trace. */
struct trace_context {
    char trace_id[33], parent_id[17]; /* lower-case hexadecimal digits */
    bool sampled;
};

/* A client's X-Request-Id: 1 to 64 letters, digits, '.', '_' and '-'. */
bool request_id_is_good(const char *id);
/* The header traceparent, of version 00 or later. False: it says nothing that can be relied on. */
bool trace_parse(struct trace_context *out, const char *header);

struct request_record {
    const char *id, *method, *path;
    int status;      /* that the client was told, or why it was told nothing */
    const char *why; /* "", or why it is not the one that the client was sent */
    double seconds;
    size_t bytes_in, bytes_out; /* of bodies */
    struct net_address address;
    const struct principal *principal;
    struct trace_context trace;
    struct text_span body; /* only where log.prompts asks for it */
};

/* Writes the line. */
void request_record_log(const struct request_record *record);
