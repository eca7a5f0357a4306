/* server/doors/mcp/changes.h: who waits for changes of the collection, and the thread that looks
 * for them.
 *
 * A client is told of what it can see alone: the documents that its key's filter allows are walked
 * over and summed up, and a sum that differs from the one before is a change. That is done when the
 * collection has another version, once for all listeners of a filter, and for a tenth of the time
 * at most, so that a burst of changes is one notification. */
#pragma once

#include "server/doors/mcp/mcp.h"
#include "server/doors/mcp/message.h"

enum { MCP_SUBSCRIPTIONS = 200 }; /* URIs of one listener */

/* A URI that is watched. */
struct mcp_watched {
    char *uri;
    uint64_t key;    /* of the document that it is of */
    uint64_t digest; /* of that document; 0: there is none */
    bool based;      /* the digest is there */
    bool updated;    /* and the client is to be told */
};

/* Guarded by mcp->lock, but for `who`. */
struct mcp_listener {
    struct mcp_listener *next; /* of those that are attached */
    int references;
    struct principal who; /* held */
    bool wants_list;
    struct mcp_watched *watched; /* [n_watched] */
    int n_watched, capacity;
    uint64_t list; /* digest of all documents that there are for it */
    bool based;    /* the digest is there */
    bool list_changed;
    int64_t version;    /* of the collection, as it was looked at last */
    const void *owner;  /* the answer that tells the client; NULL: it is not attached */
    bool ended;         /* the answer is to end */
    struct waker waker; /* of the owner */
    double said;        /* when anything was sent last */
    double quiet_until; /* after a change was told */
};

/* Not attached, with one reference. */
struct mcp_listener *mcp_listener_open(const struct principal *who);
void mcp_listener_release(struct mcp *mcp, struct mcp_listener *listener);
/* Watches a URI of ours. False with *fault set: it is none, or there are too many. */
bool mcp_listener_watch(struct mcp *mcp, struct mcp_listener *listener, const char *uri,
                        struct mcp_fault *fault);
void mcp_listener_unwatch(struct mcp *mcp, struct mcp_listener *listener, const char *uri);
/* From here on changes are told: compares with the state of now. A collection elsewhere is looked
 * at by the thread. */
void mcp_listener_base(struct mcp *mcp, struct mcp_listener *listener);
/* The owner tells the client from now on, in the place of the one before. False with *fault set:
 * too many wait already. */
bool mcp_listener_attach(struct mcp *mcp, struct mcp_listener *listener, const void *owner,
                         struct waker waker, struct mcp_fault *fault);
/* The owner goes; another one may have taken its place. */
void mcp_listener_detach(struct mcp *mcp, struct mcp_listener *listener, const void *owner);
