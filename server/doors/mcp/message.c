/* server/doors/mcp/message.c: see message.h. */
#include "server/doors/mcp/message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char mcp_modern_version[] = "2026-07-28", mcp_newest_old_version[] = "2025-11-25",
           mcp_batch_version[] = "2025-03-26";
static const char *const old_versions[] = {mcp_newest_old_version, "2025-06-18", mcp_batch_version,
                                           "2024-11-05"};

const char *mcp_version_known(const char *version) {
    for (size_t i = 0; i < ARRAY_COUNT(old_versions); i++)
        if (strcmp(old_versions[i], version) == 0) return old_versions[i];
    return NULL;
}

void mcp_versions_write(struct json_writer *w) {
    put_array(w);
    put_string(w, mcp_modern_version);
    for (size_t i = 0; i < ARRAY_COUNT(old_versions); i++) put_string(w, old_versions[i]);
    put_array_end(w);
}

/* Faults. */

bool mcp_fault_set(struct mcp_fault *fault, int code, const char *format, ...) {
    va_list args;
    *fault = (struct mcp_fault){.code = code};
    va_start(args, format);
    CHECK(vasprintf(&fault->message, format, args) >= 0); /* as xmalloc */
    va_end(args);
    return false;
}

void mcp_fault_free(struct mcp_fault *fault) {
    free(fault->message);
    free(fault->requested);
    *fault = (struct mcp_fault){0};
}

void mcp_fault_write(const struct mcp_fault *fault, const char *id, struct buffer *out) {
    struct json_writer w;
    bool named = id && id[0];
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "jsonrpc", "2.0");
    put_key(&w, "id");
    put_raw(&w, (struct text_span){named ? id : "null", strlen(named ? id : "null")});
    put_key_object(&w, "error");
    put_key_int(&w, "code", fault->code);
    put_key_string(&w, "message", fault->message);
    if (fault->requested) {
        put_key_object(&w, "data");
        put_key(&w, "supported");
        mcp_versions_write(&w);
        put_key_string(&w, "requested", fault->requested);
        put_object_end(&w);
    }
    put_object_end(&w);
    put_object_end(&w);
}

/* Reading. */

struct json *mcp_body_parse(struct text_span text, struct mcp_fault *fault) {
    struct json *json;
    struct error e;
    if (json_count_values(text) > MCP_MOST_VALUES) {
        mcp_fault_set(fault, MCP_NO_REQUEST, "the message holds more than %d values",
                      MCP_MOST_VALUES);
        return NULL;
    }
    if (json_parse_any(&json, text, "the message", &e)) {
        mcp_fault_set(fault, MCP_NOT_JSON, "%s", e.text);
        return NULL;
    }
    return json;
}

static bool read_id(struct mcp_message *message, const struct json *id, struct mcp_fault *fault) {
    struct json_writer w;
    enum json_kind kind = json_kind(id);
    if (kind != JSON_KIND_TEXT && kind != JSON_KIND_INT)
        return mcp_fault_set(fault, MCP_NO_REQUEST, "id must be a string or an integer, not %s",
                             json_kind_name(id));
    put_begin(&w, &message->id);
    put_json(&w, id);
    return true;
}

static bool read_params(struct mcp_message *message, const struct json *json,
                        struct mcp_fault *fault) {
    const struct json *params = json_member(json, "params"), *meta;
    if (params && json_kind(params) != JSON_KIND_OBJECT)
        return mcp_fault_set(fault, MCP_BAD_PARAMS, "params must be an object, not %s",
                             json_kind_name(params));
    message->params = params;
    meta = json_member(params, "_meta");
    if (meta && json_kind(meta) != JSON_KIND_OBJECT)
        return mcp_fault_set(fault, MCP_BAD_PARAMS, "params._meta must be an object, not %s",
                             json_kind_name(meta));
    message->meta = meta;
    return true;
}

bool mcp_message_read(struct mcp_message *message, const struct json *json,
                      struct mcp_fault *fault) {
    const struct json *id = json_member(json, "id"), *method = json_member(json, "method");
    *message = (struct mcp_message){.kind = MCP_NOTIFICATION};
    if (json_kind(json) != JSON_KIND_OBJECT)
        return mcp_fault_set(fault, MCP_NO_REQUEST,
                             "the message must be one object of JSON-RPC, not %s",
                             json_kind_name(json));
    bool answers = json_member(json, "result") || json_member(json, "error");
    if (method == NULL && answers) {
        message->kind = MCP_RESPONSE;
        return true;
    }
    if (id && !read_id(message, id, fault)) return false;
    if (!json_text_is(json_member(json, "jsonrpc"), "2.0"))
        return mcp_fault_set(fault, MCP_NO_REQUEST, "jsonrpc must be \"2.0\"");
    message->kind = id ? MCP_REQUEST : MCP_NOTIFICATION;
    message->method = json_word(method);
    if (message->method == NULL)
        return mcp_fault_set(fault, MCP_NO_REQUEST, "method must be a string");
    return read_params(message, json, fault);
}

void mcp_message_free(struct mcp_message *message) {
    buffer_free(&message->id);
    json_close(message->json);
    *message = (struct mcp_message){0};
}
