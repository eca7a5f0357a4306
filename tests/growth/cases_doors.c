/* tests/growth/cases_doors.c: requests to the doors of other protocols: long conversations, blocks,
 * tools and documents; and answers with many numbers in brackets. */
#include <stdlib.h>

#include "server/api/core/traffic.h"
#include "server/api/text/cited_numbers.h"
#include "server/doors/messages/messages.h"
#include "server/doors/ollama/ollama.h"
#include "server/doors/responses/responses.h"
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

static void make_calls(int n, struct buffer *out) {
    buffer_append_string(out,
                         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}");
    put_times(out, n,
              ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
              "\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"r\"}");
    buffer_append_string(out, "]}");
}

static void make_brackets(int n, struct buffer *out) { put_times(out, n, "a [1, 2] [[3 [4,"); }

static const struct growth_case cases[] = {
    {"door/messages_turns", 500, make_turns, run_messages},
    {"door/messages_blocks", 500, make_blocks, run_messages},
    {"door/messages_document", 1000, make_document, run_messages},
    {"door/messages_unknown", 1000, make_unknown, run_messages},
    {"door/responses_items", 500, make_items, run_responses},
    {"door/responses_tools", 500, make_functions, run_responses},
    {"door/ollama_turns", 500, make_calls, run_ollama},
    {"door/brackets", 2000, make_brackets, run_cuts},
};
const struct growth_table door_growth = GROWTH_TABLE(cases);
