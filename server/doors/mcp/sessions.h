/* server/doors/mcp/sessions.h: clients of the versions that shake hands, from one request to the
 * next. A session belongs to a client and never stands for its key; it ends when the client says so
 * or when it has not asked for a while. One that is not known is 404, on which clients begin anew.
 */
#pragma once

#include "server/doors/mcp/changes.h"

enum { MCP_SESSION_ID_BYTES = 33, MCP_KEPT_EVENTS = 64 };

/* An answer that a session waits for, to be given up by its id. */
struct mcp_pending {
    struct mcp_pending *next;
    const char *id; /* as JSON */
    struct answer *answer;
    bool given_up;
};

struct mcp_session;

/* Held for the caller. NULL with *fault set where there are too many. */
struct mcp_session *mcp_session_open(struct mcp *mcp, const struct principal *who,
                                     const char *version, struct mcp_fault *fault);
/* The session of that id, if it is the client's; held, and counted as used. NULL: there is none. */
struct mcp_session *mcp_session_find(struct mcp *mcp, const char *id, uint64_t client);
void mcp_session_hold(struct mcp *mcp, struct mcp_session *session);
void mcp_session_release(struct mcp *mcp, struct mcp_session *session); /* NULL: nothing */
/* Nobody finds it any more, and its stream ends. */
void mcp_session_end(struct mcp *mcp, struct mcp_session *session);

const char *mcp_session_id(const struct mcp_session *session);
/* That was shaken hands on; constant. */
const char *mcp_session_version(const struct mcp_session *session);
/* That of standard input is there before it has shaken hands. */
void mcp_session_shake(struct mcp *mcp, struct mcp_session *session);
bool mcp_session_has_shaken(struct mcp *mcp, const struct mcp_session *session);
struct mcp_listener *mcp_session_listener(struct mcp_session *session);

void mcp_session_remember(struct mcp *mcp, struct mcp_session *session,
                          struct mcp_pending *pending);
void mcp_session_forget(struct mcp *mcp, struct mcp_session *session, struct mcp_pending *pending);
/* Gives up what the session waits for under that id, if anything. */
void mcp_session_give_up(struct mcp *mcp, struct mcp_session *session, const char *id);
bool mcp_session_gave_up(struct mcp *mcp, const struct mcp_pending *pending);

/* Events of the session's stream, with the lock. The number of the next one, which keeps its text;
 * and those behind `after`, the last that the client has read: false where some are gone. */
int64_t mcp_session_keep(struct mcp_session *session, const char *text);
typedef void mcp_event_taker(void *context, int64_t number, const char *text);
bool mcp_session_replay(const struct mcp_session *session, int64_t after, mcp_event_taker *take,
                        void *context);
