/* tests/growth/cases_doors.c: requests to the doors of other protocols: long conversations, blocks,
 * tools and documents; and answers with many numbers in brackets. */
#include <stdlib.h>

#include "server/api/core/traffic.h"
#include "server/api/text/cited_numbers.h"
#include "server/doors/messages/messages.h"
#include "server/doors/ollama/ollama.h"
#include "server/doors/responses/responses.h"
#include "server/tools/tool_reply.h"
#include "tests/growth/growth.h"

static const struct served_model model = {.id = "m",
                                          .limits = {.vocab = 1 << 20,
                                                     .context = 1 << 20,
                                                     .max_prompts = 1 << 20,
                                                     .max_choices = 1,
                                                     .max_stops = 1 << 20,
                                                     .retrieval = {.max_filter_bytes = 1 << 20},
                                                     .max_prompts_option = "server.max_prompts"}};

typedef bool door_reader(struct chat_answer *answer, struct api *api,
                         const struct api_request *request, struct failure *failure);

static void run_door(door_reader *read, void (*release)(struct chat_answer *answer), size_t bytes,
                     struct text_span body) {
    static struct api api;
    if (api.traffic == NULL)
        api = (struct api){
            .models = &model, .n_models = 1, .largest = model.limits, .traffic = traffic_open()};
    struct chat_answer *answer = xcalloc(1, bytes);
    struct api_request request = {.path = "/", .body = body.text, .size = body.size};
    struct failure f = {0};
    CHECK(read(answer, &api, &request, &f));
    release(answer);
    chat_request_free(&answer->request);
    free(answer);
}

static void run_messages(struct text_span body) {
    run_door(messages_read, messages_free, sizeof(struct messages_answer), body);
}

static void run_responses(struct text_span body) {
    run_door(responses_read, responses_free, sizeof(struct responses_answer), body);
}

static void run_ollama(struct text_span body) {
    run_door(ollama_read_chat, ollama_free, sizeof(struct ollama_answer), body);
}

static void run_cuts(struct text_span text) {
    struct cited_piece piece;
    for (size_t at = 0; cited_cut(text, at, true, &piece);) at = piece.end;
}

#define MESSAGES_BEGIN "{\"model\":\"m\",\"max_tokens\":1,\"messages\":["

static void make_turns(int n, struct buffer *out) {
    buffer_append_string(out, MESSAGES_BEGIN "{\"role\":\"user\",\"content\":\"a\"}");
    put_times(out, n,
              ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_1\","
              "\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":"
              "\"tool_result\",\"tool_use_id\":\"toolu_1\",\"content\":\"r\"}]}");
    buffer_append_string(out, "]}");
}

static void make_blocks(int n, struct buffer *out) {
    buffer_append_string(out, MESSAGES_BEGIN "{\"role\":\"user\",\"content\":[");
    put_times(out, n, "{\"type\":\"text\",\"text\":\"some words\"},");
    buffer_append_string(out, "{\"type\":\"text\",\"text\":\"end\"}]}]}");
}

static void make_document(int n, struct buffer *out) {
    buffer_append_string(out, MESSAGES_BEGIN
                         "{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"citations\":{"
                         "\"enabled\":true},\"source\":{\"type\":\"text\",\"data\":\"");
    put_times(out, n, "A sentence of some words. ");
    buffer_append_string(out, "\"}}]}]}");
}

static void make_unknown(int n, struct buffer *out) {
    buffer_append_string(out, MESSAGES_BEGIN "{\"role\":\"user\",\"content\":\"a\"}]");
    for (int i = 0; i < n; i++) buffer_printf(out, ",\"field%d\":1", i);
    buffer_append_string(out, "}");
}

static void make_items(int n, struct buffer *out) {
    buffer_append_string(out, "{\"input\":[{\"role\":\"user\",\"content\":\"a\"}");
    put_times(out, n,
              ",{\"type\":\"reasoning\",\"summary\":[]},{\"type\":\"function_call\",\"call_id\":"
              "\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\","
              "\"call_id\":\"c\",\"output\":\"r\"}");
    buffer_append_string(out, "]}");
}

static void make_functions(int n, struct buffer *out) {
    buffer_append_string(out, "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}");
    for (int i = 0; i < n; i++)
        buffer_printf(out, ",{\"type\":\"function\",\"name\":\"f%d\",\"parameters\":{}}", i);
    buffer_append_string(
        out, "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{}");
    for (int i = 0; i < n; i++) buffer_printf(out, ",{\"name\":\"f%d\"}", i);
    buffer_append_string(out, "]}}");
}

static void make_namespaces(int n, struct buffer *out) {
    buffer_append_string(out, "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}");
    for (int i = 0; i < n; i++)
        buffer_printf(out,
                      ",{\"type\":\"namespace\",\"name\":\"n%d\",\"tools\":[{\"type\":"
                      "\"function\",\"name\":\"f\",\"parameters\":{}}]}",
                      i);
    buffer_append_string(out, "]}");
}

/* Tools that are told of, each of which goes and comes. */
static void make_changes(int n, struct buffer *out) {
    buffer_append_string(out, MESSAGES_BEGIN "{\"role\":\"user\",\"content\":[");
    for (int i = 0; i < n; i++)
        buffer_printf(out, "{\"type\":\"tool_reference\",\"tool_name\":\"f%d\"},", i);
    buffer_append_string(out, "{\"type\":\"text\",\"text\":\"end\"}]}],\"tools\":[");
    for (int i = 0; i < n; i++)
        buffer_printf(out, "{\"name\":\"f%d\",\"defer_loading\":true,\"input_schema\":{}},", i);
    buffer_append_string(out, "{\"name\":\"g\",\"input_schema\":{}}]}");
}

static void make_calls(int n, struct buffer *out) {
    buffer_append_string(out,
                         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}");
    put_times(out, n,
              ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
              "\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"r\"}");
    buffer_append_string(out, "]}");
}

static void make_brackets(int n, struct buffer *out) { put_times(out, n, "a [1, 2] [[3 [4,"); }

/* Bytes of a server of tools: a stream of many events, of one long event, of one line without an
 * end; a list of tools; a result of many blocks. */
static void run_events(struct text_span stream) {
    struct tool_events events = {0};
    struct buffer event = {0};
    for (size_t there = 0; there < stream.size;) {
        there = stream.size - there < 4096 ? stream.size : there + 4096;
        while (tool_events_next(&events, (struct text_span){stream.text, there}, &event)) continue;
    }
    tool_events_free(&events);
    buffer_free(&event);
}

static void make_events(int n, struct buffer *out) { put_times(out, n, "data: {\"a\":1}\n\n"); }

static void make_event(int n, struct buffer *out) { put_times(out, n, "data: some words\n"); }

static void make_line(int n, struct buffer *out) { put_times(out, n, "data some words "); }

static void run_tool_message(struct text_span text) {
    char *allowed[] = {"f"};
    const struct tool_names names = {"s", allowed, 1};
    struct tool_list *list = tool_list_open();
    struct buffer words = {0};
    struct tool_reply reply;
    struct error e;
    CHECK(tool_reply_read(&reply, text, 1, &e) == STATUS_OK && reply.result);
    if (json_member(reply.result, "tools"))
        CHECK(tool_list_add(list, reply.result, &names, &e) == STATUS_OK);
    else
        tool_result_read(reply.result, &words);
    tool_reply_free(&reply);
    tool_list_release(list);
    buffer_free(&words);
}

#define REPLY_BEGIN "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{"

static void make_tool_list(int n, struct buffer *out) {
    buffer_append_string(out, REPLY_BEGIN "\"tools\":[");
    put_times(out, n, "{\"name\":\"g\",\"inputSchema\":{}},");
    buffer_append_string(out, "{\"name\":\"f\",\"inputSchema\":{}}]}}");
}

static void make_result(int n, struct buffer *out) {
    buffer_append_string(out, REPLY_BEGIN "\"content\":[");
    put_times(out, n, "{\"type\":\"text\",\"text\":\"some words\"},{\"type\":\"image\"},");
    buffer_append_string(out, "{}]}}");
}

static void make_mcp_items(int n, struct buffer *out) {
    buffer_append_string(out, "{\"input\":[{\"role\":\"user\",\"content\":\"a\"}");
    put_times(out, n,
              ",{\"type\":\"mcp_call\",\"id\":\"i\",\"server_label\":\"s\",\"name\":\"f\","
              "\"arguments\":\"{}\",\"output\":\"r\"}");
    buffer_append_string(out, "]}");
}

static const struct growth_case cases[] = {
    {"door/messages_turns", 500, make_turns, run_messages},
    {"door/messages_blocks", 500, make_blocks, run_messages},
    {"door/messages_document", 1000, make_document, run_messages},
    {"door/messages_unknown", 1000, make_unknown, run_messages},
    {"door/messages_changes", 500, make_changes, run_messages},
    {"door/responses_namespaces", 500, make_namespaces, run_responses},
    {"door/responses_items", 500, make_items, run_responses},
    {"door/responses_tools", 500, make_functions, run_responses},
    {"door/ollama_turns", 500, make_calls, run_ollama},
    {"door/brackets", 2000, make_brackets, run_cuts},
    {"tools/events", 4000, make_events, run_events},
    {"tools/event", 4000, make_event, run_events},
    {"tools/line", 4000, make_line, run_events},
    {"tools/list", 2000, make_tool_list, run_tool_message},
    {"tools/result", 2000, make_result, run_tool_message},
    {"responses/mcp-calls", 200, make_mcp_items, run_responses},
};
const struct growth_table door_growth = GROWTH_TABLE(cases);
