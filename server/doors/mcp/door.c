/* server/doors/mcp/door.c: the way in: the protocol that a message speaks is found, headers and
 * sessions are checked, notifications are taken. A request that passes becomes a call (call.h). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/api/core/traffic.h"
#include "server/doors/mcp/batch.h"
#include "server/doors/mcp/listen.h"
#include "server/doors/mcp/state.h"
#include "server/doors/mcp/words.h"

static const char meta_version[] = "io.modelcontextprotocol/protocolVersion",
                  meta_capabilities[] = "io.modelcontextprotocol/clientCapabilities";

static const char *header_of(const struct api_request *http, const char *name) {
    return http->header(http->headers, name);
}

static bool refuse(struct mcp_fault *fault, int http, int code, const char *message) {
    mcp_fault_set(fault, code, "%s", message);
    fault->http = http;
    return false;
}

/* The protocol of a message. */

static bool refuse_version(struct mcp_fault *fault, const char *requested) {
    refuse(fault, 400, MCP_NO_VERSION, "this version of the protocol is not spoken here");
    fault->requested = xstrdup(requested);
    return false;
}

static bool choose_era_of_http(struct mcp_call *call, const struct api_request *http,
                               struct mcp_fault *fault) {
    const char *header = header_of(http, "MCP-Protocol-Version");
    const struct json *meta = json_member(call->message.meta, meta_version);
    bool shakes_hands = call->message.method && strcmp(call->message.method, "initialize") == 0;
    bool is_old = header == NULL || mcp_version_known(header) != NULL;
    call->era = is_old ? MCP_OLD : MCP_MODERN;
    if (is_old && meta && !shakes_hands && !(header && json_text_is(meta, header)))
        return refuse(fault, 400, MCP_HEADERS,
                      header ? "MCP-Protocol-Version is not the version of _meta"
                             : "the header MCP-Protocol-Version is missing, and _meta has a "
                               "version");
    if (is_old || meta || strcmp(header, mcp_modern_version) == 0) return true;
    return refuse_version(fault, header);
}

static bool choose_era(struct mcp_call *call, const struct api_request *http,
                       struct mcp_fault *fault) {
    if (http) return choose_era_of_http(call, http, fault);
    bool is_modern = json_member(call->message.meta, meta_version) && !call->batched;
    call->era = is_modern ? MCP_MODERN : MCP_OLD;
    return true;
}

/* Requests of 2026-07-28. */

static bool check_meta(const struct mcp_call *call, struct mcp_fault *fault) {
    const struct json *meta = call->message.meta;
    if (!json_is_text(json_member(meta, meta_version)))
        return mcp_fault_set(fault, MCP_BAD_PARAMS, "_meta needs \"%s\", a string", meta_version);
    if (json_kind(json_member(meta, meta_capabilities)) != JSON_KIND_OBJECT)
        return mcp_fault_set(fault, MCP_BAD_PARAMS, "_meta needs \"%s\", an object",
                             meta_capabilities);
    return true;
}

/* Whether a header is there and says what the body says. */
static bool check_header(const struct api_request *http, const char *name, struct text_span body,
                         struct mcp_fault *fault) {
    const char *value = header_of(http, name);
    struct buffer decoded = {0};
    if (value == NULL) {
        mcp_fault_set(fault, MCP_HEADERS, "the header %s is missing", name);
        return false;
    }
    bool same = mcp_header_decode(value, &decoded) && decoded.size == body.size &&
                (body.size == 0 || memcmp(decoded.data, body.text, body.size) == 0);
    buffer_free(&decoded);
    return same ||
           mcp_fault_set(fault, MCP_HEADERS, "the header %s is not what the body says", name);
}

static bool check_headers(const struct mcp_call *call, const struct api_request *http,
                          struct mcp_fault *fault) {
    const struct mcp_message *message = &call->message;
    const struct mcp_method *method = mcp_method_find(message->method, MCP_MODERN);
    struct text_span name = {message->method, strlen(message->method)};
    if (!check_header(http, "MCP-Protocol-Version",
                      json_text(json_member(message->meta, meta_version)), fault) ||
        !check_header(http, "Mcp-Method", name, fault))
        return false;
    const struct json *named =
        method && method->names ? json_member(message->params, method->names) : NULL;
    if (method == NULL || method->names == NULL) return true;
    if (header_of(http, "Mcp-Name") && !json_is_text(named)) return true; /* the handler says why */
    return check_header(http, "Mcp-Name", json_text(named), fault);
}

static bool check_modern(const struct mcp_call *call, const struct api_request *http,
                         struct mcp_fault *fault) {
    if (!check_meta(call, fault)) return false;
    if (http && !check_headers(call, http, fault)) return false;
    const struct json *version = json_member(call->message.meta, meta_version);
    if (json_text_is(version, mcp_modern_version)) return true;
    const char *requested = json_word(version);
    return refuse_version(fault, requested ? requested : "");
}

/* In the versions before, a request may have a session. A stale one is refused, and initialize
 * begins another. */
static bool find_session(struct mcp_call *call, const struct api_request *http,
                         struct mcp_fault *fault) {
    const char *id = http ? header_of(http, "Mcp-Session-Id") : NULL;
    bool begins = call->message.method && strcmp(call->message.method, "initialize") == 0;
    if (id == NULL || begins) return true;
    call->session = mcp_session_find(call->mcp, id, call->who.client);
    return call->session || refuse(fault, 404, MCP_NO_REQUEST,
                                   "there is no such session (any more): begin with initialize");
}

/* Kinds of messages. */

/* 202 without a body. */
static struct answer *accept_message(void) {
    struct buffer none = {0};
    return answer_text(202, JSON_TYPE, &none);
}

static void note_notification(const struct mcp_call *call) {
    const struct json *of = json_member(call->message.params, "requestId");
    struct buffer id = {0};
    struct json_writer w;
    if (strcmp(call->message.method, "notifications/cancelled") != 0) return;
    if (call->session == NULL || !(json_is_text(of) || json_is_int(of))) return;
    put_begin(&w, &id);
    put_json(&w, of);
    mcp_session_give_up(call->mcp, call->session, id.data);
    buffer_free(&id);
}

static bool find_method(struct mcp_call *call, struct mcp_fault *fault) {
    call->method = mcp_method_find(call->message.method, call->era);
    if (call->batched && call->method && call->method->open == mcp_initialize)
        return mcp_fault_set(fault, MCP_NO_REQUEST, "initialize stands alone, in no batch");
    return call->method ||
           mcp_fault_set(fault, MCP_NO_METHOD, "there is no method %.100s%s", call->message.method,
                         call->era == MCP_MODERN ? " in 2026-07-28" : "");
}

/* Takes the call. */
static struct answer *refuse_call(struct mcp_call *call, struct mcp_fault *fault) {
    struct answer *answer = mcp_fault_answer(fault, call);
    call->outcome = mcp_faulty;
    mcp_call_free(call);
    return answer;
}

/* Takes the call. */
static struct answer *take_message(struct mcp_call *call, const struct api_request *http) {
    struct mcp_fault fault = {0};
    bool ok = choose_era(call, http, &fault);
    bool is_request = call->message.kind == MCP_REQUEST;
    if (ok && call->era == MCP_MODERN && call->message.kind == MCP_RESPONSE)
        ok = refuse(&fault, 400, MCP_NO_REQUEST, "a response is not expected here");
    if (ok && call->era == MCP_OLD) ok = find_session(call, http, &fault);
    if (ok && call->era == MCP_MODERN && is_request) ok = check_modern(call, http, &fault);
    if (ok && is_request) ok = find_method(call, &fault);
    if (!ok) return refuse_call(call, &fault);
    if (is_request) return mcp_call_open(call);
    if (call->message.kind == MCP_NOTIFICATION) note_notification(call);
    mcp_call_free(call);
    return accept_message();
}

/* Where links lead that the client opens. A proxy in front may speak TLS. */
static char *address_of(const struct api *api, const struct api_request *http) {
    const char *host = http ? header_of(http, "Host") : NULL,
               *proxy = http ? header_of(http, "X-Forwarded-Proto") : NULL;
    struct buffer address = {0};
    if (host == NULL) return NULL;
    buffer_printf(&address, "%s://%s",
                  proxy && strcasecmp(proxy, "https") == 0 ? "https"
                  : api->scheme                            ? api->scheme
                                                           : "http",
                  host);
    return address.data;
}

struct answer *mcp_take(const struct mcp_request *request, const struct json *json,
                        struct json *owned) {
    struct mcp_call *call = xcalloc(1, sizeof *call);
    struct mcp_fault fault = {0};
    call->mcp = request->mcp;
    call->api = request->mcp->options.api;
    call->who = principal_hold(*request->who);
    call->era = MCP_OLD;
    call->lines = request->http == NULL;
    call->address = address_of(call->api, request->http);
    call->waker = request->waker;
    call->session = request->session;
    if (call->session) mcp_session_hold(call->mcp, call->session);
    call->batched = owned == NULL;
    bool ok = mcp_message_read(&call->message, json, &fault);
    call->message.json = owned;
    if (ok) return take_message(call, request->http);
    fault.http = 400;
    return refuse_call(call, &fault);
}

/* A batch came with 2025-03-26, and went with the version after it. */
static bool takes_batches(const struct mcp_request *request) {
    const char *header = request->http ? header_of(request->http, "MCP-Protocol-Version") : NULL;
    return request->http == NULL || header == NULL || strcmp(header, mcp_batch_version) == 0;
}

struct answer *mcp_ask(const struct mcp_request *request) {
    struct mcp_fault fault = {0};
    struct json *json = mcp_body_parse(request->text, &fault);
    if (json == NULL) {
        traffic_note_mcp(request->mcp->options.api->traffic, mcp_unknown, "", mcp_faulty);
        return mcp_fault_answer(&fault, NULL);
    }
    if (json_is_list(json) && takes_batches(request)) return mcp_batch_open(request, json);
    return mcp_take(request, json, json);
}

/* Routes. */

struct answer *mcp_post(struct api *api, const struct api_request *request, struct waker waker,
                        struct failure *failure) {
    (void)failure;
    return mcp_ask(&(struct mcp_request){.mcp = api->mcp,
                                         .text = {request->body, request->size},
                                         .who = &request->principal,
                                         .http = request,
                                         .waker = waker});
}

/* Clients take 405 for "there is no stream", and ask again and again after anything else. */
static struct answer *no_stream(const char *why) {
    struct failure failure;
    failure_set(&failure, 405, "method_not_allowed", NULL, "%s", why);
    struct answer *answer = answer_failure(&failure);
    answer_add_header(answer, "Allow", "POST, OPTIONS");
    return answer;
}

/* The session of a GET or DELETE; else NULL with *answer set. */
static struct mcp_session *session_of(struct api *api, const struct api_request *request,
                                      struct answer **answer) {
    struct failure failure;
    const char *version = header_of(request, "MCP-Protocol-Version"),
               *id = header_of(request, "Mcp-Session-Id");
    bool is_old = version == NULL || mcp_version_known(version);
    if (!is_old || id == NULL || strcmp(request->method, "HEAD") == 0) {
        *answer = no_stream(
            "POST messages here; sessions of versions before 2026-07-28 alone have "
            "more, by the Mcp-Session-Id that initialize gave");
        return NULL;
    }
    struct mcp_session *session = mcp_session_find(api->mcp, id, request->principal.client);
    if (session) return session;
    failure_set(&failure, 404, "not_found", NULL,
                "there is no such session (any more): begin with initialize");
    *answer = answer_failure(&failure);
    return NULL;
}

static int64_t last_event_of(const struct api_request *request) {
    const char *text = header_of(request, "Last-Event-ID");
    size_t size = text ? strlen(text) : 0;
    if (size == 0 || size > 15 || strspn(text, "0123456789") != size) return -1;
    return strtoll(text, NULL, 10);
}

struct answer *mcp_get(struct api *api, const struct api_request *request, struct waker waker,
                       struct failure *failure) {
    struct mcp_fault fault = {0};
    struct answer *answer = NULL;
    (void)failure;
    struct mcp_session *session = session_of(api, request, &answer);
    if (session == NULL) return answer;
    struct mcp_stream stream = {.after = last_event_of(request), .waker = waker};
    answer = mcp_stream_open(api->mcp, session, &stream, &fault);
    mcp_session_release(api->mcp, session);
    if (answer) return answer;
    answer = no_stream(fault.message);
    mcp_fault_free(&fault);
    return answer;
}

struct answer *mcp_delete(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    struct buffer none = {0};
    struct answer *answer = NULL;
    (void)waker, (void)failure;
    struct mcp_session *session = session_of(api, request, &answer);
    if (session == NULL) return answer;
    mcp_session_end(api->mcp, session);
    mcp_session_release(api->mcp, session);
    return answer_text(204, JSON_TYPE, &none);
}

/* The door. */

enum status mcp_open(struct mcp **out, const struct mcp_options *options, struct error *e) {
    struct mcp *mcp = xcalloc(1, sizeof *mcp);
    mcp->options = *options;
    pthread_mutex_init(&mcp->lock, NULL);
    bell_open(&mcp->bell);
    mcp->running = pthread_create(&mcp->thread, NULL, mcp_watch, mcp) == 0;
    if (!mcp->running) {
        mcp_close(mcp);
        return error_set(e, STATUS_NO_MEMORY, "the thread that looks for changes does not start");
    }
    *out = mcp;
    return STATUS_OK;
}

void mcp_close(struct mcp *mcp) {
    if (mcp == NULL) return;
    mcp_stop(mcp);
    while (mcp->sessions) mcp_session_end(mcp, mcp->sessions);
    bell_close(&mcp->bell);
    pthread_mutex_destroy(&mcp->lock);
    free(mcp);
}

void mcp_stop(struct mcp *mcp) {
    if (mcp == NULL || !mcp->running) return;
    pthread_mutex_lock(&mcp->lock);
    mcp->stopped = true;
    pthread_mutex_unlock(&mcp->lock);
    bell_ring(&mcp->bell);
    pthread_join(mcp->thread, NULL);
    mcp->running = false;
}

struct mcp_counts mcp_counts(struct mcp *mcp) {
    pthread_mutex_lock(&mcp->lock);
    struct mcp_counts counts = {mcp->n_sessions, mcp->n_listeners};
    pthread_mutex_unlock(&mcp->lock);
    return counts;
}
