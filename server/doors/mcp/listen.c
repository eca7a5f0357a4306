/* server/doors/mcp/listen.c: the answers that tell a client of changes for as long as it likes:
 * subscriptions/listen, and the stream of a session. changes.h says what a change is. */
#include "server/doors/mcp/listen.h"

#include <stdlib.h>
#include <string.h>

#include "server/doors/mcp/state.h"
#include "server/doors/mcp/words.h"

enum { TOLD_AT_ONCE = 64 }; /* URIs in one turn of the library's thread */
static const double quiet_seconds = 1;

struct listen_answer {
    struct answer base; /* first */
    struct mcp *mcp;
    struct mcp_listener *listener; /* held */
    struct mcp_session *session;   /* held; NULL: a listen request's */
    char *id;                      /* of that request, as JSON; NULL: a session's */
    bool lines, begun;
    int64_t after; /* the last event that the client has; -1: it does not say */
    atomic_bool left;
    struct mcp_pending pending; /* with an id and a session */
};

/* Messages. */

static void put_subscription(struct json_writer *w, const struct listen_answer *answer) {
    if (answer->id == NULL) return;
    put_key_object(w, "_meta");
    put_key(w, "io.modelcontextprotocol/subscriptionId");
    put_raw(w, (struct text_span){answer->id, strlen(answer->id)});
    put_object_end(w);
}

static void frame(void *context, int64_t number, const char *text) {
    struct buffer *out = context;
    if (number > 0) buffer_printf(out, "id: %lld\n", (long long)number);
    buffer_printf(out, "event: message\ndata: %s\n\n", text);
}

/* With the lock. */
static void send(struct listen_answer *answer, const char *message, struct buffer *out) {
    answer->listener->said = time_now();
    if (answer->lines)
        buffer_printf(out, "%s\n", message);
    else
        frame(out, answer->session && !answer->id ? mcp_session_keep(answer->session, message) : 0,
              message);
}

static void begin_notification(struct json_writer *w, const char *method, struct buffer *out) {
    put_begin(w, out);
    put_object(w);
    put_key_string(w, "jsonrpc", "2.0");
    put_key_string(w, "method", method);
    put_key_object(w, "params");
}

static void end_notification(struct listen_answer *answer, struct json_writer *w,
                             struct buffer *message, struct buffer *out) {
    put_subscription(w, answer);
    put_object_end(w);
    put_object_end(w);
    send(answer, message->data, out);
    buffer_free(message);
}

static void tell(struct listen_answer *answer, const char *method, const char *uri,
                 struct buffer *out) {
    struct json_writer w;
    struct buffer message = {0};
    begin_notification(&w, method, &message);
    if (uri) put_key_string(&w, "uri", uri);
    end_notification(answer, &w, &message, out);
}

/* Tells the part of the wishes that is honoured. */
static void acknowledge(struct listen_answer *answer, struct buffer *out) {
    const struct mcp_listener *listener = answer->listener;
    struct json_writer w;
    struct buffer message = {0};
    begin_notification(&w, "notifications/subscriptions/acknowledged", &message);
    put_key_object(&w, "notifications");
    if (listener->wants_list) put_key_bool(&w, "resourcesListChanged", true);
    if (listener->n_watched > 0) {
        put_key_array(&w, "resourceSubscriptions");
        for (int i = 0; i < listener->n_watched; i++) put_string(&w, listener->watched[i].uri);
        put_array_end(&w);
    }
    put_object_end(&w);
    end_notification(answer, &w, &message, out);
}

static void finish(struct listen_answer *answer, struct buffer *out) {
    struct json_writer w;
    struct buffer message = {0};
    put_begin(&w, &message);
    put_object(&w);
    put_key_string(&w, "jsonrpc", "2.0");
    put_key(&w, "id");
    put_raw(&w, (struct text_span){answer->id, strlen(answer->id)});
    put_key_object(&w, "result");
    put_key_string(&w, "resultType", "complete");
    put_key_object(&w, "_meta");
    mcp_put_server(&w);
    put_key(&w, "io.modelcontextprotocol/subscriptionId");
    put_raw(&w, (struct text_span){answer->id, strlen(answer->id)});
    put_object_end(&w);
    put_object_end(&w);
    put_object_end(&w);
    send(answer, message.data, out);
    buffer_free(&message);
}

/* Polling, with the lock. */

static void begin(struct listen_answer *answer, struct buffer *out) {
    if (answer->id)
        acknowledge(answer, out);
    else if (!answer->lines)
        buffer_append_string(out, ": listening\n\n");
    /* Where events are gone, all may have changed. */
    if (answer->session && answer->after >= 0 &&
        !mcp_session_replay(answer->session, answer->after, frame, out))
        answer->listener->list_changed = true;
    answer->begun = true;
}

static void tell_changes(struct listen_answer *answer, struct buffer *out) {
    struct mcp_listener *listener = answer->listener;
    int n = 0;
    size_t before = out->size;
    if (listener->list_changed) tell(answer, "notifications/resources/list_changed", NULL, out);
    listener->list_changed = false;
    for (int i = 0; i < listener->n_watched && n < TOLD_AT_ONCE; i++) {
        if (!listener->watched[i].updated) continue;
        listener->watched[i].updated = false;
        tell(answer, "notifications/resources/updated", listener->watched[i].uri, out);
        n++;
    }
    if (out->size > before) listener->quiet_until = time_now() + quiet_seconds;
}

static enum answer_progress go_on(struct listen_answer *answer, struct buffer *out) {
    struct mcp_listener *listener = answer->listener;
    size_t before = out->size;
    if (listener->owner != answer || atomic_load(&answer->left)) return ANSWER_COMPLETE;
    if (!answer->begun) begin(answer, out);
    tell_changes(answer, out);
    if (listener->ended && answer->id) finish(answer, out);
    if (listener->ended) return ANSWER_COMPLETE;
    if (!answer->lines && out->size == before && time_now() - listener->said >= 14) {
        buffer_append_string(out, ": still here\n\n");
        listener->said = time_now();
    }
    return out->size > before ? ANSWER_MORE : ANSWER_WAITING;
}

static enum answer_progress listen_poll(struct answer *base, struct buffer *out) {
    struct listen_answer *answer = (struct listen_answer *)base;
    pthread_mutex_lock(&answer->mcp->lock);
    enum answer_progress progress = go_on(answer, out);
    pthread_mutex_unlock(&answer->mcp->lock);
    return progress;
}

/* Without the lock, which whoever gives it up may hold. */
static void listen_cancel(struct answer *base) {
    atomic_store(&((struct listen_answer *)base)->left, true);
}

static void listen_close(struct answer *base) {
    struct listen_answer *answer = (struct listen_answer *)base;
    struct mcp *mcp = answer->mcp;
    mcp_listener_detach(mcp, answer->listener, answer);
    mcp_listener_release(mcp, answer->listener);
    if (answer->id && answer->session) mcp_session_forget(mcp, answer->session, &answer->pending);
    mcp_session_release(mcp, answer->session);
    free(answer->id);
    free(answer);
}

static struct listen_answer *make_answer(struct mcp *mcp, struct mcp_listener *listener,
                                         bool lines) {
    static const struct answer_ops ops = {listen_poll, listen_cancel, listen_close};
    struct listen_answer *answer = xcalloc(1, sizeof *answer);
    answer_init(&answer->base, &ops, "text/event-stream");
    answer_add_header(&answer->base, "X-Accel-Buffering", "no");
    answer->base.stream = true;
    answer->base.listens = true;
    answer->mcp = mcp;
    answer->listener = listener;
    answer->lines = lines;
    answer->after = -1;
    return answer;
}

/* Closes the answer where too many listen already. */
static struct answer *attach(struct listen_answer *answer, struct waker waker,
                             struct mcp_fault *fault) {
    mcp_listener_base(answer->mcp, answer->listener);
    if (mcp_listener_attach(answer->mcp, answer->listener, answer, waker, fault))
        return &answer->base;
    answer_close(&answer->base);
    return NULL;
}

/* The streams of sessions. */

struct answer *mcp_stream_open(struct mcp *mcp, struct mcp_session *session,
                               const struct mcp_stream *stream, struct mcp_fault *fault) {
    struct mcp_listener *listener = mcp_session_listener(session);
    pthread_mutex_lock(&mcp->lock);
    listener->references++;
    session->references++;
    pthread_mutex_unlock(&mcp->lock);
    struct listen_answer *answer = make_answer(mcp, listener, stream->lines);
    answer->session = session;
    answer->after = stream->after;
    return attach(answer, stream->waker, fault);
}

static const char *read_uri(const struct mcp_call *call, struct mcp_fault *fault) {
    if (call->session) return mcp_read_text(call->message.params, "uri", fault);
    mcp_fault_set(
        fault, MCP_NO_REQUEST,
        "there is no session to subscribe in: send Mcp-Session-Id, which initialize gave");
    return NULL;
}

struct answer *mcp_subscribe(struct mcp_call *call, struct mcp_fault *fault) {
    struct failure failure;
    const char *uri = read_uri(call, fault);
    if (uri == NULL) return NULL;
    if (documents_model(call->api, &call->who, DOCUMENTS_READ, &failure) == NULL) {
        mcp_fault_from(fault, &failure);
        return NULL;
    }
    struct mcp_listener *listener = mcp_session_listener(call->session);
    if (mcp_listener_watch(call->mcp, listener, uri, fault)) mcp_listener_base(call->mcp, listener);
    return NULL;
}

struct answer *mcp_unsubscribe(struct mcp_call *call, struct mcp_fault *fault) {
    const char *uri = read_uri(call, fault);
    if (uri) mcp_listener_unwatch(call->mcp, mcp_session_listener(call->session), uri);
    return NULL;
}

/* subscriptions/listen. */

/* URIs that are not ours are not honoured, and missing in what is acknowledged. */
static bool read_wishes(const struct mcp_call *call, struct mcp_listener *listener,
                        struct mcp_fault *fault) {
    const struct json *wishes = json_member(call->message.params, "notifications"),
                      *uris = json_member(wishes, "resourceSubscriptions");
    if (json_kind(wishes) != JSON_KIND_OBJECT)
        return mcp_fault_set(fault, MCP_BAD_PARAMS, "notifications must be an object");
    if (!json_is_absent(uris) && !json_is_list(uris))
        return mcp_fault_set(fault, MCP_BAD_PARAMS, "resourceSubscriptions must be a list of URIs");
    bool reads =
        documents_right(call->api, &call->who) >= DOCUMENTS_READ && call->api->models[0].collection;
    listener->wants_list = reads && json_bool(json_member(wishes, "resourcesListChanged"));
    for (size_t i = 0; i < json_count(uris) && reads; i++) {
        const char *uri = json_word(json_item(uris, i));
        if (uri == NULL)
            return mcp_fault_set(fault, MCP_BAD_PARAMS, "resourceSubscriptions[%zu] must be a URI",
                                 i);
        if (!mcp_listener_watch(call->mcp, listener, uri, fault)) mcp_fault_free(fault);
    }
    return true;
}

struct answer *mcp_listen(struct mcp_call *call, struct mcp_fault *fault) {
    struct mcp_listener *listener = mcp_listener_open(&call->who);
    if (!read_wishes(call, listener, fault)) {
        mcp_listener_release(call->mcp, listener);
        return NULL;
    }
    struct listen_answer *answer = make_answer(call->mcp, listener, call->lines);
    answer->id = xstrdup(call->message.id.data);
    answer->session = call->session;
    call->session = NULL;
    answer->pending = (struct mcp_pending){.id = answer->id, .answer = &answer->base};
    if (answer->session) mcp_session_remember(call->mcp, answer->session, &answer->pending);
    return attach(answer, call->waker, fault);
}
