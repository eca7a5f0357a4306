/* server/doors/responses/responses_json.c: a response in OpenAI's shape, as it begins and as it
 * ends. */
#include <string.h>

#include "config/base/text.h"
#include "server/doors/responses/responses.h"

/* Items. */

void responses_item_id(const struct responses_answer *answer, const struct responses_choice *choice,
                       int i, char id[RESPONSE_ID_BYTES]) {
    static const char *const prefixes[] = {[ITEM_SEARCH] = "fs",
                                           [ITEM_REASONING] = "rs",
                                           [ITEM_MESSAGE] = "msg",
                                           [ITEM_CALL] = "fc",
                                           [ITEM_MCP_CALL] = "mcp"};
    snprintf(id, RESPONSE_ID_BYTES, "%s_%016llx%04d", prefixes[choice->items[i].kind],
             (unsigned long long)answer->chat.base.id, i % 10000);
}

struct text_span responses_item_text(const struct responses_choice *choice, int i) {
    const struct responses_item *item = &choice->items[i];
    const struct chat_reply *reply = &choice->chat.reply;
    const struct buffer *from = item->kind == ITEM_REASONING ? &reply->reasoning : &reply->content;
    if (item->kind == ITEM_MCP_CALL) {
        const struct buffer *arguments = &choice->chat.turns->calls[item->call].arguments;
        return (struct text_span){arguments->data, arguments->size};
    }
    if (item->kind == ITEM_CALL) {
        const struct buffer *arguments = &reply->calls[item->call].arguments;
        return (struct text_span){arguments->data, arguments->size};
    }
    return (struct text_span){from->data + item->start, item->end - item->start};
}

static void put_citations(struct json_writer *w, const struct responses_told *told, int i) {
    struct responses_citation citation = {0};
    while (responses_next_citation(told, i, &citation)) responses_put_citation(w, told, &citation);
}

void responses_write_part(struct json_writer *w, const struct responses_told *told, int i,
                          bool begins) {
    struct text_span text = responses_item_text(told->choice, i);
    bool message = told->choice->items[i].kind == ITEM_MESSAGE;
    put_object(w);
    put_key_string(w, "type", message ? "output_text" : "reasoning_text");
    put_key_string_n(w, "text", text.text, begins ? 0 : text.size);
    if (message) {
        put_key_array(w, "annotations");
        if (!begins) put_citations(w, told, i);
        put_array_end(w);
        put_key_array(w, "logprobs");
        if (!begins && told->answer->chat.request.logprobs)
            chat_put_tokens(w, &told->answer->chat, &told->choice->chat.base);
        put_array_end(w);
    }
    put_object_end(w);
}

static void put_parts(struct json_writer *w, const struct responses_told *told, int i,
                      bool begins) {
    put_key_array(w, "content");
    if (!begins) responses_write_part(w, told, i, false);
    put_array_end(w);
}

static const char *item_status(const struct responses_told *told, int i, bool begins) {
    const struct responses_choice *choice = told->choice;
    bool cut = choice->chat.base.progress.finish == FINISH_LENGTH && i == choice->n - 1 &&
               choice->items[i].kind != ITEM_CALL && choice->items[i].kind != ITEM_MCP_CALL;
    if (!begins && choice->items[i].kind == ITEM_MCP_CALL &&
        choice->chat.turns->calls[choice->items[i].call].failed)
        return "failed";
    return begins ? "in_progress" : cut ? "incomplete" : "completed";
}

void responses_put_name(struct json_writer *w, const struct responses_told *told, int call) {
    const char *word = told->choice->chat.reply.calls[call].name;
    const struct responses_name *name = responses_name_find(&told->answer->names, word);
    if (name == NULL) {
        put_key_string(w, "name", word);
        return;
    }
    put_key_string_n(w, "name", name->name.text, name->name.size);
    put_key_string_n(w, "namespace", name->space.text, name->space.size);
}

static void put_call(struct json_writer *w, const struct responses_told *told, int i, bool begins) {
    const struct responses_choice *choice = told->choice;
    int number = choice->items[i].call;
    const struct tool_call *call = &choice->chat.reply.calls[number];
    char id[CALL_ID_BYTES];
    chat_call_id(&told->answer->chat, &choice->chat, number, id);
    put_key_string(w, "call_id", id);
    responses_put_name(w, told, number);
    put_key_string_n(w, "arguments", call->arguments.data, begins ? 0 : call->arguments.size);
}

/* A call that the server has carried out. */
static void put_own_call(struct json_writer *w, const struct responses_told *told, int i,
                         bool begins) {
    const struct chat_call *call = &told->choice->chat.turns->calls[told->choice->items[i].call];
    put_key_string(w, "server_label", call->server);
    put_key_string(w, "name", call->tool);
    put_key_string_n(w, "arguments", call->arguments.data, begins ? 0 : call->arguments.size);
    put_key_null(w, "approval_request_id");
    put_key(w, "output");
    if (begins || call->failed)
        put_null(w);
    else
        put_string_n(w, call->result.data, call->result.size);
    put_key(w, "error");
    if (!begins && call->failed)
        put_string_n(w, call->result.data, call->result.size);
    else
        put_null(w);
}

void responses_write_item(struct json_writer *w, const struct responses_told *told, int i,
                          bool begins) {
    static const char *const types[] = {[ITEM_SEARCH] = "file_search_call",
                                        [ITEM_REASONING] = "reasoning",
                                        [ITEM_MESSAGE] = "message",
                                        [ITEM_CALL] = "function_call",
                                        [ITEM_MCP_CALL] = "mcp_call"};
    enum responses_kind kind = told->choice->items[i].kind;
    char id[RESPONSE_ID_BYTES];
    responses_item_id(told->answer, told->choice, i, id);
    put_object(w);
    put_key_string(w, "id", id);
    put_key_string(w, "type", types[kind]);
    put_key_string(w, "status", item_status(told, i, begins));
    if (kind == ITEM_REASONING) {
        put_key_array(w, "summary");
        put_array_end(w);
        put_key_null(w, "encrypted_content");
    }
    if (kind == ITEM_MESSAGE) put_key_string(w, "role", "assistant");
    if (kind == ITEM_SEARCH)
        responses_put_call(w, told, begins);
    else if (kind == ITEM_CALL)
        put_call(w, told, i, begins);
    else if (kind == ITEM_MCP_CALL)
        put_own_call(w, told, i, begins);
    else
        put_parts(w, told, i, begins);
    put_object_end(w);
}

/* Settings, as they were understood. */

static bool is_told_tool(const struct json *tool) {
    const struct json *type = json_member(tool, "type");
    return json_text_is(type, "function") || json_text_is(type, "namespace") ||
           json_text_is(type, "file_search") || json_text_is(type, "mcp");
}

/* A function that is not held to its parameters is not strict, whatever was asked. */
static void put_tool(struct json_writer *w, const struct responses_answer *answer,
                     const struct json *tool) {
    const struct json *strict = json_member(tool, "strict");
    put_object(w);
    for (struct json_entry it = {0}; json_next(tool, &it);) {
        if (span_is(it.name, "strict")) continue;
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    if (json_text_is(json_member(tool, "type"), "function"))
        put_key_bool(w, "strict",
                     json_bool(strict) && answer->chat.request.writing.guide.kind == GUIDE_CALLS);
    put_object_end(w);
}

static void put_value(struct json_writer *w, const char *key, const struct json *value) {
    put_key(w, key);
    put_json(w, value);
}

static void put_tools(struct json_writer *w, const struct responses_answer *answer) {
    const struct responses_request *asked = &answer->asked;
    put_key_array(w, "tools");
    for (size_t i = 0; i < json_count(asked->tools); i++)
        if (is_told_tool(json_item(asked->tools, i)))
            put_tool(w, answer, json_item(asked->tools, i));
    put_array_end(w);
    if (json_is_absent(asked->tool_choice))
        put_key_string(w, "tool_choice", "auto");
    else
        put_value(w, "tool_choice", asked->tool_choice);
    put_key_bool(w, "parallel_tool_calls", !answer->chat.request.one_call);
}

static void put_text(struct json_writer *w, const struct json *text) {
    const struct json *format = json_member(text, "format");
    put_key_object(w, "text");
    put_key(w, "format");
    if (!json_is_absent(format)) {
        put_json(w, format);
    } else {
        put_object(w);
        put_key_string(w, "type", "text");
        put_object_end(w);
    }
    put_object_end(w);
}

static void put_metadata(struct json_writer *w, const struct json *metadata) {
    if (!json_is_absent(metadata)) {
        put_value(w, "metadata", metadata);
        return;
    }
    put_key_object(w, "metadata");
    put_object_end(w);
}

static void put_settings(struct json_writer *w, const struct responses_answer *answer) {
    const struct responses_request *asked = &answer->asked;
    const struct request_writing *writing = &answer->chat.request.writing;
    put_tools(w, answer);
    put_text(w, asked->text);
    put_key_float(w, "temperature", (float)writing->temperature);
    put_key_float(w, "top_p", (float)writing->top_p);
    put_key_int(w, "top_logprobs", answer->chat.request.top_logprobs);
    put_value(w, "max_output_tokens", asked->max_output_tokens);
    put_key_string(w, "truncation", answer->chat.request.truncates ? "auto" : "disabled");
    put_value(w, "previous_response_id", asked->previous);
    put_value(w, "instructions", asked->instructions);
    put_metadata(w, asked->metadata);
    put_key_object(w, "reasoning");
    put_value(w, "effort", json_member(asked->reasoning, "effort"));
    put_key_null(w, "summary");
    put_object_end(w);
    put_key_bool(w, "store", json_is_absent(asked->store) || json_bool(asked->store));
    put_key_bool(w, "background", false);
}

/* The end. */

/* Tokens that were written before the text began. */
static int count_thoughts(const struct choice *choice, const struct chat_reply *reply) {
    const struct sequence_answer *written = &choice->sequence->answer;
    int n = 0;
    if (reply->reasoning.size == 0) return 0;
    if (reply->content.size == 0 && reply->n_calls == 0) return choice->progress.n_ids;
    while (n < choice->progress.n_ids && written->text_ends[n] <= reply->content_start) n++;
    return n;
}

static void put_usage(struct json_writer *w, const struct responses_choice *choice) {
    const struct progress *progress = &choice->chat.base.progress;
    const struct earlier_turns *earlier = &choice->chat.base.earlier;
    int64_t read = earlier->n_read + progress->n_read, written = earlier->n_ids + progress->n_ids;
    put_key_object(w, "usage");
    put_key_int(w, "input_tokens", read);
    put_key_object(w, "input_tokens_details");
    put_key_int(w, "cached_tokens",
                earlier->n_cached + min_int(progress->n_cached, progress->n_read));
    put_key_int(w, "cache_write_tokens", 0);
    put_object_end(w);
    put_key_int(w, "output_tokens", written);
    put_key_object(w, "output_tokens_details");
    put_key_int(w, "reasoning_tokens", count_thoughts(&choice->chat.base, &choice->chat.reply));
    put_object_end(w);
    put_key_int(w, "total_tokens", read + written);
    put_object_end(w);
}

static bool is_cut(const struct responses_told *told) {
    return told->stage == RESPONSE_ENDS && told->choice->chat.base.progress.finish == FINISH_LENGTH;
}

static const char *status_of(const struct responses_told *told) {
    if (told->stage == RESPONSE_BEGINS) return "in_progress";
    if (told->stage == RESPONSE_FAILS) return "failed";
    return is_cut(told) ? "incomplete" : "completed";
}

const char *responses_end_type(const struct responses_told *told) {
    if (told->stage == RESPONSE_FAILS) return "response.failed";
    return is_cut(told) ? "response.incomplete" : "response.completed";
}

static void put_reasons(struct json_writer *w, const struct responses_told *told) {
    put_key(w, "error");
    if (told->failed) {
        put_object(w);
        put_key_string(w, "code", "server_error");
        put_key_string(w, "message", told->failed->message);
        put_object_end(w);
    } else {
        put_null(w);
    }
    put_key(w, "incomplete_details");
    if (is_cut(told)) {
        put_object(w);
        put_key_string(w, "reason", "max_output_tokens");
        put_object_end(w);
    } else {
        put_null(w);
    }
}

void responses_write(struct json_writer *w, const struct responses_told *told) {
    const struct responses_answer *answer = told->answer;
    bool ends = told->stage == RESPONSE_ENDS;
    put_object(w);
    put_key_string(w, "id", answer->id);
    put_key_string(w, "object", "response");
    put_key_int(w, "created_at", answer->chat.base.created);
    put_key_string(w, "status", status_of(told));
    if (ends) put_key_int(w, "completed_at", time(NULL));
    put_reasons(w, told);
    put_key_string(w, "model", answer->chat.base.model->id);
    put_key_array(w, "output");
    for (int i = 0; told->stage != RESPONSE_BEGINS && i < told->choice->n; i++)
        responses_write_item(w, told, i, false);
    put_array_end(w);
    put_settings(w, answer);
    if (ends)
        put_usage(w, told->choice);
    else
        put_key_null(w, "usage");
    put_object_end(w);
}
