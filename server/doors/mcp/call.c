/* server/doors/mcp/call.c: see call.h. */
#include "server/doors/mcp/call.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/core/traffic.h"
#include "server/doors/mcp/words.h"

const char mcp_answered[] = "ok", mcp_tool_failed[] = "tool_error", mcp_faulty[] = "fault",
           mcp_unknown[] = "other";

#define METHOD(verb, in, handler, ...) \
    { .name = (verb), .eras = (in), .open = handler, __VA_ARGS__ }
static const struct mcp_method methods[] = {
    METHOD("initialize", MCP_OLD, mcp_initialize),
    METHOD("ping", MCP_OLD, mcp_nothing),
    METHOD("logging/setLevel", MCP_OLD, mcp_nothing),
    METHOD("server/discover", MCP_MODERN, mcp_discover, .scope = "public", .seconds = 60),
    METHOD("tools/list", MCP_BOTH, mcp_tools_list, .scope = "private", .seconds = 60),
    METHOD("tools/call", MCP_BOTH, mcp_tools_call, .looks = true, .names = "name"),
    METHOD("resources/list", MCP_BOTH, mcp_resources_list, .scope = "private", .looks = true),
    METHOD("resources/templates/list", MCP_BOTH, mcp_templates_list, .scope = "public",
           .seconds = 60),
    METHOD("resources/read", MCP_BOTH, mcp_resources_read, .scope = "private", .looks = true,
           .names = "uri"),
    METHOD("resources/subscribe", MCP_OLD, mcp_subscribe, .looks = true),
    METHOD("resources/unsubscribe", MCP_OLD, mcp_unsubscribe, .looks = true),
    METHOD("prompts/list", MCP_BOTH, mcp_prompts_list, .scope = "public", .seconds = 60),
    METHOD("prompts/get", MCP_BOTH, mcp_prompts_get, .looks = true, .names = "name"),
    METHOD("completion/complete", MCP_BOTH, mcp_complete, .looks = true),
    METHOD("subscriptions/listen", MCP_MODERN, mcp_listen, .looks = true, .streams = true),
};

const struct mcp_method *mcp_method_find(const char *name, enum mcp_era era) {
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++)
        if (strcmp(methods[i].name, name) == 0 && (methods[i].eras & (int)era)) return &methods[i];
    return NULL;
}

bool mcp_looks_at_documents(struct text_span text) {
    struct mcp_fault fault = {0};
    struct mcp_message message = {0};
    struct json *json = mcp_body_parse(text, &fault);
    const struct mcp_method *method = NULL;
    if (json && mcp_message_read(&message, json, &fault) && message.kind == MCP_REQUEST) {
        method = mcp_method_find(message.method, MCP_MODERN);
        if (method == NULL) method = mcp_method_find(message.method, MCP_OLD);
    }
    bool looks = method && method->looks;
    mcp_fault_free(&fault);
    mcp_message_free(&message);
    json_close(json);
    return looks;
}

/* Faults. */

/* 2026-07-28 has a status for each code; the versions before answer requests with 200. */
static int status_of(const struct mcp_fault *fault, enum mcp_era era) {
    if (fault->http) return fault->http;
    if (era == MCP_OLD) return 200;
    if (fault->code == MCP_NO_METHOD) return 404;
    return fault->code == MCP_INTERNAL ? 500 : 400;
}

/* 2026-07-28 has no code of its own for what is not found. */
static void settle_code(struct mcp_fault *fault, enum mcp_era era) {
    if (fault->code == MCP_NOT_FOUND && era == MCP_MODERN) fault->code = MCP_BAD_PARAMS;
}

struct answer *mcp_fault_answer(struct mcp_fault *fault, const struct mcp_call *call) {
    struct buffer body = {0};
    enum mcp_era era = call ? call->era : MCP_MODERN;
    settle_code(fault, era);
    int http = status_of(fault, era);
    mcp_fault_write(fault, call ? call->message.id.data : NULL, &body);
    struct answer *answer = answer_text(http, JSON_TYPE, &body);
    if (fault->retry_after > 0) answer_add_header(answer, "Retry-After", "%d", fault->retry_after);
    mcp_fault_free(fault);
    return answer;
}

bool mcp_fault_from(struct mcp_fault *fault, struct failure *failure) {
    bool busy = failure->http >= 500;
    mcp_fault_set(fault, busy ? MCP_INTERNAL : MCP_BAD_PARAMS, "%s", failure->message);
    if (failure->http == 404) fault->code = MCP_NOT_FOUND;
    fault->retry_after = failure->retry_after;
    failure_free(failure);
    return false;
}

/* Parameters. */

const char *mcp_read_text(const struct json *object, const char *name, struct mcp_fault *fault) {
    const struct json *value = json_member(object, name);
    const char *text = json_word(value);
    if (text && text[0]) return text;
    mcp_fault_set(fault, MCP_BAD_PARAMS, "%s must be a string that is not empty, without NUL%s",
                  name, value ? "" : ", and is missing");
    return NULL;
}

bool mcp_read_cursor(const struct mcp_call *call, const char *list, struct buffer *last,
                     struct mcp_fault *fault) {
    const struct json *cursor = json_member(call->message.params, "cursor");
    if (json_is_absent(cursor)) return true;
    if (json_is_text(cursor) && mcp_cursor_parse(list, json_text(cursor), last)) return true;
    return mcp_fault_set(fault, MCP_BAD_PARAMS,
                         "cursor is none of this list: send the nextCursor of the page before");
}

/* Results. */

void mcp_put_members(struct json_writer *w, struct text_span object) {
    struct json *json;
    struct error e;
    if (json_parse(&json, object, "the answer", &e)) return;
    for (struct json_entry it = {0}; json_next(json, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    json_close(json);
}

void mcp_put_server(struct json_writer *w) {
    put_key_object(w, "io.modelcontextprotocol/serverInfo");
    put_key_string(w, "name", "retro-server");
    put_key_string(w, "version", RETRO_VERSION);
    put_object_end(w);
}

static void begin_result(struct mcp_call *call, struct buffer *out) {
    struct json_writer *w = &call->w;
    put_begin(w, out);
    put_object(w);
    put_key_string(w, "jsonrpc", "2.0");
    put_key(w, "id");
    put_raw(w, (struct text_span){call->message.id.data, call->message.id.size});
    put_key_object(w, "result");
    if (call->era == MCP_OLD) return;
    put_key_string(w, "resultType", "complete");
    put_key_object(w, "_meta");
    mcp_put_server(w);
    put_object_end(w);
    if (call->method->scope == NULL) return;
    put_key_int(w, "ttlMs", (int64_t)call->method->seconds * 1000);
    put_key_string(w, "cacheScope", call->method->scope);
}

static void end_result(struct mcp_call *call) {
    put_object_end(&call->w);
    put_object_end(&call->w);
}

/* Why the answer that was waited for is none. */
static void read_failure(const struct mcp_call *call, struct failure *failure) {
    struct json *json = NULL;
    struct error e;
    const char *message = NULL;
    if (json_parse(&json, (struct text_span){call->body.data, call->body.size}, "", &e) ==
        STATUS_OK)
        message = json_word(json_member(json_member(json, "error"), "message"));
    failure_set(failure, call->inner->http, NULL, NULL, "%s",
                message ? message : "the request failed");
    if (call->inner->http == 503) failure->retry_after = 1;
    json_close(json);
}

static void write_failure(struct mcp_call *call, struct buffer *out) {
    struct failure failure;
    struct mcp_fault fault = {0};
    read_failure(call, &failure);
    begin_result(call, out);
    if (call->excuse && call->excuse(call, failure.message)) {
        call->outcome = mcp_tool_failed;
        end_result(call);
        failure_free(&failure);
        return;
    }
    buffer_clear(out);
    call->outcome = mcp_faulty;
    mcp_fault_from(&fault, &failure);
    settle_code(&fault, call->era);
    call->base.http = status_of(&fault, call->era);
    mcp_fault_write(&fault, call->message.id.data, out);
    mcp_fault_free(&fault);
}

static void write_result(struct mcp_call *call, struct buffer *out) {
    if (call->inner->http >= 300) {
        write_failure(call, out);
        return;
    }
    begin_result(call, out);
    call->outcome = mcp_answered;
    call->wrap(call, (struct text_span){call->body.data, call->body.size});
    end_result(call);
}

/* Progress. The answer becomes a stream with the first that is told of it; one that is over before
 * stays one object. */

/* A message of a stream. */
static void frame(const struct mcp_call *call, const struct buffer *message, struct buffer *out) {
    if (call->lines)
        buffer_printf(out, "%s\n", message->data);
    else
        buffer_printf(out, "event: message\ndata: %s\n\n", message->data);
}

static void begin_stream(struct mcp_call *call) {
    if (call->base.stream) return;
    call->base.stream = true;
    answer_set_header(&call->base, "Content-Type", "text/event-stream");
    answer_add_header(&call->base, "X-Accel-Buffering", "no");
}

static void write_progress(struct mcp_call *call, const struct json *token, int total,
                           struct buffer *out) {
    struct buffer message = {0};
    struct json_writer w;
    put_begin(&w, &message);
    put_object(&w);
    put_key_string(&w, "jsonrpc", "2.0");
    put_key_string(&w, "method", "notifications/progress");
    put_key_object(&w, "params");
    put_key(&w, "progressToken");
    put_json(&w, token);
    put_key_int(&w, "progress", call->done);
    put_key_int(&w, "total", total);
    put_key_string(&w, "message", "passages embedded");
    put_object_end(&w);
    put_object_end(&w);
    begin_stream(call);
    frame(call, &message, out);
    buffer_free(&message);
}

/* Whether something was told. A progress is always more than the one before. */
static bool tell_progress(struct mcp_call *call, struct buffer *out) {
    const struct json *token = json_member(call->message.meta, "progressToken");
    int done = 0, total = 0;
    if (call->told == NULL || call->batched || !(json_is_text(token) || json_is_int(token)))
        return false;
    call->told(call->inner, &done, &total);
    if (done <= call->done) return false;
    call->done = done;
    write_progress(call, token, total, out);
    return true;
}

static enum answer_progress call_poll(struct answer *base, struct buffer *out) {
    struct mcp_call *call = (struct mcp_call *)base;
    struct buffer message = {0};
    enum answer_progress progress = call->inner->ops->poll(call->inner, &call->body);
    if (progress != ANSWER_COMPLETE) return tell_progress(call, out) ? ANSWER_MORE : progress;
    if (call->lines && mcp_session_gave_up(call->mcp, &call->pending)) return ANSWER_COMPLETE;
    if (!base->stream) {
        write_result(call, out);
        return ANSWER_COMPLETE;
    }
    write_result(call, &message);
    frame(call, &message, out);
    buffer_free(&message);
    return ANSWER_COMPLETE;
}

static void call_cancel(struct answer *base) {
    struct mcp_call *call = (struct mcp_call *)base;
    call->inner->ops->cancel(call->inner);
}

static void call_close(struct answer *base) {
    struct mcp_call *call = (struct mcp_call *)base;
    if (call->session) mcp_session_forget(call->mcp, call->session, &call->pending);
    mcp_call_free(call);
}

static void note_end(const struct mcp_call *call) {
    if (call->message.kind == MCP_REQUEST)
        traffic_note_mcp(call->api->traffic, call->method ? call->method->name : mcp_unknown,
                         call->tool ? call->tool : "", call->outcome ? call->outcome : "left");
}

void mcp_call_free(struct mcp_call *call) {
    note_end(call);
    if (call->inner) answer_close(call->inner);
    mcp_session_release(call->mcp, call->session);
    principal_release(&call->who);
    mcp_message_free(&call->message);
    buffer_free(&call->body);
    free(call->address);
    free(call);
}

static struct answer *answer_now(struct mcp_call *call, struct buffer *out) {
    end_result(call);
    if (call->outcome == NULL) call->outcome = mcp_answered;
    struct answer *answer = answer_text(200, JSON_TYPE, out);
    if (call->method->open == mcp_initialize && call->session && !call->lines)
        answer_add_header(answer, "Mcp-Session-Id", "%s", mcp_session_id(call->session));
    mcp_call_free(call);
    return answer;
}

struct answer *mcp_call_open(struct mcp_call *call) {
    static const struct answer_ops ops = {call_poll, call_cancel, call_close};
    struct mcp_fault fault = {0};
    struct buffer out = {0};
    begin_result(call, &out);
    struct answer *inner = call->method->open(call, &fault);
    if (inner == NULL && fault.code == 0) return answer_now(call, &out);
    buffer_free(&out);
    if (inner == NULL) {
        call->outcome = mcp_faulty;
        inner = mcp_fault_answer(&fault, call);
        mcp_call_free(call);
        return inner;
    }
    if (call->method->streams) {
        call->outcome = mcp_answered;
        mcp_call_free(call); /* the stream has all that it needs of it */
        return inner;
    }
    answer_init(&call->base, &ops, JSON_TYPE);
    call->inner = inner;
    call->pending = (struct mcp_pending){.id = call->message.id.data, .answer = &call->base};
    if (call->session) mcp_session_remember(call->mcp, call->session, &call->pending);
    return &call->base;
}
