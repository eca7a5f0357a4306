/* retrieval/extract/model/model_link.h: one request to a server of models that speaks as OpenAI's
 * does. */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"

struct model_call {
    const char *url;       /* of the server's API, "http://127.0.0.1:8080/v1" */
    const char *key;       /* sent as the bearer's; NULL or "": none. It is in no message */
    struct text_span body; /* JSON */
    double until;          /* time_now() when it is given up */
    const atomic_bool *cancelled, *stopped; /* true: nobody waits any more; NULL: somebody does */
};

/* Asks for a chat's completion; *answer gets the JSON of one that went well. STATUS_IO: the server
 * was not reached, or was too slow. STATUS_INVALID: it refused, and why. STATUS_CANCELLED.
 * STATUS_UNSUPPORTED in a build without libcurl. */
enum status model_link_post(const struct model_call *call, struct buffer *answer, struct error *e);
