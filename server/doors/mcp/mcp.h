/* server/doors/mcp/mcp.h: the door for clients of the Model Context Protocol, over the requests
 * that the API has: tools, resources and prompts. docs/mcp.md is for its users.
 *
 * Two protocols live at one path. A request of 2026-07-28 says all in its headers and in _meta; the
 * versions before begin with a handshake and have sessions. */
#pragma once

#include "server/api/api.h"

struct mcp;
struct mcp_session;

struct mcp_options {
    struct api *api;     /* borrowed */
    int max_listeners;   /* streams that wait for changes */
    int max_sessions;    /* of clients that shook hands */
    int session_seconds; /* without a request after which a session ends */
};
enum status mcp_open(struct mcp **out, const struct mcp_options *options, struct error *e);
/* Ends its thread; changes are not told any more. NULL: nothing. */
void mcp_stop(struct mcp *mcp);
/* No answer of it is open any more. NULL: nothing. */
void mcp_close(struct mcp *mcp);

struct mcp_counts {
    int sessions, listeners;
};
struct mcp_counts mcp_counts(struct mcp *mcp);

/* One message, over HTTP or from standard input. */
struct mcp_request {
    struct mcp *mcp;
    struct text_span text;
    const struct principal *who;
    const struct api_request *http; /* NULL: a line of standard input */
    struct mcp_session *session;    /* of standard input; NULL: the headers tell */
    struct waker waker;
};
/* Never NULL. An answer of no bytes has none for the client. Of HTTP the body is JSON or a stream
 * of events; of standard input a message, or lines as they come. */
struct answer *mcp_ask(const struct mcp_request *request);
/* Whether the message has to wait for the collection, where that is not open yet. */
bool mcp_looks_at_documents(struct text_span text);
