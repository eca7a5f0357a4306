/* server/doors/mcp/listen.h: the stream of a session, which tells of changes. */
#pragma once

#include "server/doors/mcp/call.h"

struct mcp_stream {
    bool lines;    /* for standard output; else events of HTTP */
    int64_t after; /* the last event that the client has; -1: it does not say */
    struct waker waker;
};
/* NULL with *fault set where too many listen already. A later stream of the session ends this one.
 */
struct answer *mcp_stream_open(struct mcp *mcp, struct mcp_session *session,
                               const struct mcp_stream *stream, struct mcp_fault *fault);
