/* server/doors/mcp/state.h: the door's state, for the files of this folder that keep it. */
#pragma once

#include <pthread.h>

#include "server/doors/mcp/sessions.h"
#include "server/threads/queue.h"

struct mcp_event {
    int64_t number;
    char *text;
};

/* Guarded by mcp->lock, but for what is constant. */
struct mcp_session {
    struct mcp_session *next;
    char id[MCP_SESSION_ID_BYTES]; /* constant, as the next two are */
    uint64_t client;
    const char *version;
    int references;
    bool ended, shaken;
    double used; /* when it was found last */
    struct mcp_listener *listener;
    struct mcp_pending *pending;
    struct mcp_event events[MCP_KEPT_EVENTS]; /* a ring: event i is at i % MCP_KEPT_EVENTS */
    int64_t n_events;
};

struct mcp {
    struct mcp_options options;
    pthread_mutex_t lock;
    struct mcp_session *sessions;
    struct mcp_listener *listeners; /* that are attached */
    int n_sessions, n_listeners;
    struct bell bell;
    pthread_t thread; /* that looks for changes */
    bool running, stopped;
};

/* With the lock: ends the stream that the listener has; gives one reference back. */
void mcp_listener_end(struct mcp_listener *listener);
void mcp_listener_drop(struct mcp_listener *listener);
/* The thread. */
void *mcp_watch(void *mcp);
