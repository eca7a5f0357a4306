/* tests/fuzz/fuzz_tools.c: what a server of tools sends (server/tools/tool_reply.h): messages,
 * events of a stream that comes in pieces, lists of tools, results of calls. The first byte says
 * which. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "server/tools/tool_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A request of the server's is answered by JSON on one line. */
static void check_refusal(const struct tool_reply *reply) {
    struct buffer out = {0};
    struct json *json;
    struct error e;
    tool_reply_put_refusal(reply, &out);
    CHECK(json_parse(&json, (struct text_span){out.data, out.size}, "", &e) == STATUS_OK);
    CHECK(memchr(out.data, '\n', out.size) == NULL);
    json_close(json);
    buffer_free(&out);
}

static void try_message(struct text_span text) {
    struct tool_reply reply;
    struct error e = {0};
    struct buffer words = {0};
    if (tool_reply_read(&reply, text, 7, &e) != STATUS_OK) {
        CHECK(e.text[0] != '\0');
    } else if (reply.kind == TOOL_REPLY_REQUEST) {
        check_refusal(&reply);
    } else if (reply.kind == TOOL_REPLY_ANSWER && reply.result == NULL) {
        CHECK(tool_reply_error(&reply, &e) == STATUS_INVALID);
    } else if (reply.kind == TOOL_REPLY_ANSWER) {
        tool_result_read(reply.result, &words);
        CHECK(words.size == 0 || utf8_is_valid(words.data, words.size));
    }
    tool_reply_free(&reply);
    buffer_free(&words);
}

/* The events of a stream that comes in pieces of `step` bytes, one behind the other. */
static void read_events(struct text_span stream, size_t step, struct buffer *out) {
    struct tool_events events = {0};
    struct buffer event = {0};
    for (size_t there = 0; there < stream.size;) {
        there = stream.size - there < step ? stream.size : there + step;
        while (tool_events_next(&events, (struct text_span){stream.text, there}, &event)) {
            buffer_append(out, event.data, event.size);
            buffer_append(out, "", 1);
        }
    }
    tool_events_free(&events);
    buffer_free(&event);
}

static void try_events(struct text_span stream) {
    struct buffer whole = {0}, pieces = {0};
    read_events(stream, stream.size + 1, &whole);
    read_events(stream, 1, &pieces);
    CHECK(whole.size == pieces.size);
    CHECK(whole.size == 0 || memcmp(whole.data, pieces.data, whole.size) == 0);
    buffer_free(&whole);
    buffer_free(&pieces);
}

/* Only what is allowed is told, as JSON whose names all clients take. */
static void try_list(struct text_span text) {
    char *allowed[] = {"echo", "a b", "\xC3\xA4"};
    const struct tool_names names = {"notes", allowed, 3};
    struct tool_list *list = tool_list_open();
    struct json *json, *told;
    struct error e;
    if (json_parse(&json, text, "", &e) == STATUS_OK && tool_list_add(list, json, &names, &e))
        CHECK(e.text[0] != '\0');
    for (int i = 0; i < list->n; i++) {
        struct text_span tool = {list->tools[i].json.data, list->tools[i].json.size};
        CHECK(json_parse(&told, tool, "", &e) == STATUS_OK);
        const char *name = json_word(json_member(json_member(told, "function"), "name"));
        CHECK(name && strncmp(name, "notes__", 7) == 0 && strlen(name) <= 64);
        json_close(told);
    }
    json_close(json);
    tool_list_release(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct text_span text = {(const char *)data + 1, size - 1};
    switch (data[0] % 3) {
        case 0: try_message(text); break;
        case 1: try_events(text); break;
        default: try_list(text);
    }
    return 0;
}
