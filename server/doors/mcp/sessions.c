/* server/doors/mcp/sessions.c: see sessions.h. */
#include "server/doors/mcp/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/doors/mcp/state.h"

enum { SESSIONS_OF_CLIENT = 64 }; /* a client's oldest one ends for a newer one */

const char *mcp_session_id(const struct mcp_session *session) { return session->id; }

const char *mcp_session_version(const struct mcp_session *session) { return session->version; }

struct mcp_listener *mcp_session_listener(struct mcp_session *session) {
    return session->listener;
}

/* With the lock. */

static void session_free(struct mcp_session *session) {
    mcp_listener_drop(session->listener);
    for (int i = 0; i < MCP_KEPT_EVENTS; i++) free(session->events[i].text);
    free(session);
}

static void session_drop(struct mcp_session *session) {
    session->references--;
    if (session->references == 0) session_free(session);
}

static void session_end(struct mcp *mcp, struct mcp_session *session) {
    struct mcp_session **at = &mcp->sessions;
    if (session->ended) return;
    while (*at != session) at = &(*at)->next;
    *at = session->next;
    mcp->n_sessions--;
    session->ended = true;
    mcp_listener_end(session->listener);
    session_drop(session);
}

/* A key that was read again is another one, with rights of its own. */
static bool is_over(const struct mcp *mcp, const struct mcp_session *session, double now) {
    const struct key *key = session->listener->who.key;
    if (key && !keyring_has(mcp->options.api->keys, key)) return true;
    return session->listener->owner == NULL && session->pending == NULL &&
           now - session->used >= mcp->options.session_seconds;
}

static void end_idle(struct mcp *mcp) {
    double now = time_now();
    struct mcp_session *session = mcp->sessions;
    while (session) {
        struct mcp_session *next = session->next;
        if (is_over(mcp, session, now)) session_end(mcp, session);
        session = next;
    }
}

/* The client's session that was used longest ago, where it has `most`. */
static struct mcp_session *spare_of(struct mcp *mcp, uint64_t client, int most) {
    struct mcp_session *oldest = NULL;
    int n = 0;
    for (struct mcp_session *session = mcp->sessions; session; session = session->next) {
        if (session->client != client) continue;
        n++;
        if (oldest == NULL || session->used < oldest->used) oldest = session;
    }
    return n >= most ? oldest : NULL;
}

static bool make_room(struct mcp *mcp, uint64_t client, struct mcp_fault *fault) {
    bool full = mcp->n_sessions >= mcp->options.max_sessions;
    if (full) end_idle(mcp);
    full = mcp->n_sessions >= mcp->options.max_sessions;
    struct mcp_session *spare = spare_of(mcp, client, full ? 1 : SESSIONS_OF_CLIENT);
    if (spare) session_end(mcp, spare);
    if (mcp->n_sessions < mcp->options.max_sessions) return true;
    mcp_fault_set(fault, MCP_INTERNAL, "%d sessions are open, the limit is server.max_sessions",
                  mcp->n_sessions);
    fault->http = 503;
    fault->retry_after = 1;
    return false;
}

/* For everybody. */

struct mcp_session *mcp_session_open(struct mcp *mcp, const struct principal *who,
                                     const char *version, struct mcp_fault *fault) {
    struct mcp_session *session = xcalloc(1, sizeof *session);
    uint8_t random[(MCP_SESSION_ID_BYTES - 1) / 2];
    CHECK(getrandom(random, sizeof random, 0) == sizeof random);
    for (size_t i = 0; i < sizeof random; i++) snprintf(session->id + 2 * i, 3, "%02x", random[i]);
    session->client = who->client;
    session->version = version;
    session->references = 2; /* the list's and the caller's */
    session->used = time_now();
    session->listener = mcp_listener_open(who);
    session->listener->wants_list = true;

    pthread_mutex_lock(&mcp->lock);
    bool room = make_room(mcp, who->client, fault);
    if (room) {
        session->next = mcp->sessions;
        mcp->sessions = session;
        mcp->n_sessions++;
    } else {
        session_free(session);
    }
    pthread_mutex_unlock(&mcp->lock);
    return room ? session : NULL;
}

struct mcp_session *mcp_session_find(struct mcp *mcp, const char *id, uint64_t client) {
    pthread_mutex_lock(&mcp->lock);
    struct mcp_session *session = mcp->sessions;
    while (session && (strcmp(session->id, id) != 0 || session->client != client))
        session = session->next;
    if (session && is_over(mcp, session, time_now())) {
        session_end(mcp, session);
        session = NULL;
    }
    if (session) {
        session->references++;
        session->used = time_now();
    }
    pthread_mutex_unlock(&mcp->lock);
    return session;
}

void mcp_session_hold(struct mcp *mcp, struct mcp_session *session) {
    pthread_mutex_lock(&mcp->lock);
    session->references++;
    pthread_mutex_unlock(&mcp->lock);
}

void mcp_session_release(struct mcp *mcp, struct mcp_session *session) {
    if (session == NULL) return;
    pthread_mutex_lock(&mcp->lock);
    session_drop(session);
    pthread_mutex_unlock(&mcp->lock);
}

void mcp_session_end(struct mcp *mcp, struct mcp_session *session) {
    pthread_mutex_lock(&mcp->lock);
    session_end(mcp, session);
    pthread_mutex_unlock(&mcp->lock);
}

void mcp_session_shake(struct mcp *mcp, struct mcp_session *session) {
    pthread_mutex_lock(&mcp->lock);
    session->shaken = true;
    pthread_mutex_unlock(&mcp->lock);
}

bool mcp_session_has_shaken(struct mcp *mcp, const struct mcp_session *session) {
    pthread_mutex_lock(&mcp->lock);
    bool shaken = session->shaken;
    pthread_mutex_unlock(&mcp->lock);
    return shaken;
}

/* Answers that a session waits for. */

void mcp_session_remember(struct mcp *mcp, struct mcp_session *session,
                          struct mcp_pending *pending) {
    pthread_mutex_lock(&mcp->lock);
    pending->next = session->pending;
    session->pending = pending;
    pthread_mutex_unlock(&mcp->lock);
}

void mcp_session_forget(struct mcp *mcp, struct mcp_session *session, struct mcp_pending *pending) {
    pthread_mutex_lock(&mcp->lock);
    struct mcp_pending **at = &session->pending;
    while (*at != pending) at = &(*at)->next;
    *at = pending->next;
    session->used = time_now();
    pthread_mutex_unlock(&mcp->lock);
}

void mcp_session_give_up(struct mcp *mcp, struct mcp_session *session, const char *id) {
    pthread_mutex_lock(&mcp->lock);
    struct mcp_pending *pending = session->pending;
    while (pending && strcmp(pending->id, id) != 0) pending = pending->next;
    if (pending) {
        pending->given_up = true;
        pending->answer->ops->cancel(pending->answer);
    }
    pthread_mutex_unlock(&mcp->lock);
}

bool mcp_session_gave_up(struct mcp *mcp, const struct mcp_pending *pending) {
    pthread_mutex_lock(&mcp->lock);
    bool given_up = pending->given_up;
    pthread_mutex_unlock(&mcp->lock);
    return given_up;
}

/* Events. */

int64_t mcp_session_keep(struct mcp_session *session, const char *text) {
    session->n_events++;
    struct mcp_event *event = &session->events[session->n_events % MCP_KEPT_EVENTS];
    free(event->text);
    *event = (struct mcp_event){session->n_events, xstrdup(text)};
    return event->number;
}

bool mcp_session_replay(const struct mcp_session *session, int64_t after, mcp_event_taker *take,
                        void *context) {
    int64_t first = session->n_events - MCP_KEPT_EVENTS + 1;
    bool all = after >= first - 1 && after <= session->n_events;
    if (first < 1) first = 1;
    for (int64_t i = after + 1 > first ? after + 1 : first; i <= session->n_events; i++)
        take(context, i, session->events[i % MCP_KEPT_EVENTS].text);
    return all;
}
