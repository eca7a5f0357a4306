/* tests/fuzz/fuzz_chat.c: any bytes as a chat template, rendered with a conversation: the text is
 * valid UTF-8 and every byte of it is marked; or there is an error with words. Inputs that begin
 * with a digit are answers of a model, from 8 on in channels: taken apart as they come, and all at
 * once, they give the same. */
#include <string.h>

#include "config/base/utf8.h"
#include "retro/chat/chat.h"
#include "retro/chat/chat_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" s\\u00a0\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": "
    "\"text\", \"text\": \"p\"}]}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
    "[{\"type\": "
    "\"function\","
    "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true, null, "
    "\"\\u00e9<\"]}}}]}, {\"role\": "
    "\"tool\", "
    "\"content\": \"<think>x</think>y\"}], \"tools\": [{\"type\": \"function\", \"function\": "
    "{\"name\": \"f\"}}], "
    "\"documents\": [{\"title\": \"t\", \"text\": \"d\"}], \"chat_template_kwargs\": {\"s\": \"A "
    "b\\nc\", \"n\": 3, "
    "\"l\": [3, 1, 2], \"d\": {\"k\": \"v\", \"B\": 1}}}";

static void check_render(struct text_span source) {
    struct error e = {0};
    struct chat *chat;
    struct chat_input in;
    struct json *request;
    struct template_output out = {0};
    if (chat_open_text(&chat, source, "<s>", "</s>", &e)) {
        CHECK(chat == NULL && e.text[0] != '\0');
        return;
    }
    CHECK(json_parse(&request, (struct text_span){conversation, sizeof conversation - 1}, "request",
                     &e) == STATUS_OK);
    CHECK(chat_input_read(&in, request, &e) == STATUS_OK);
    e = (struct error){0};
    if (chat_render(chat, &in, &out, &e) == STATUS_OK)
        CHECK(out.text.size == out.marks.size &&
              utf8_is_valid(out.text.data ? out.text.data : "", out.text.size));
    else
        CHECK(e.status != STATUS_OK);
    template_output_free(&out);
    json_close(request);
    chat_close(chat);
}

static bool same(const struct buffer *a, const struct buffer *b) {
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

/* Of calls between tags: the types of arguments. */
static const char types[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"n\": {\"type\": "
    "\"number\"}, "
    "\"s\": {\"type\": \"string\"}, \"x\": {}}}}}]";

/* The formats of how they begin, and behind nine those between tags. */
static void check_reply(int how, struct text_span text) {
    struct error e;
    struct json *tools;
    CHECK(json_parse(&tools, (struct text_span){types, sizeof types - 1}, "types", &e) == 0);
    int format = how > 9 ? CALLS_FUNCTION + how - 10 : how & 3;
    enum thought_form thoughts =
        format == CALLS_GEMMA     ? THOUGHTS_CHANNEL
        : format == CALLS_APERTUS ? THOUGHTS_INNER
        : how < 10 && how & 4     ? format == CALLS_MISTRAL ? THOUGHTS_BRACKETED : THOUGHTS_TAGGED
                                  : THOUGHTS_NONE;
    struct chat_reply once = {.format = (enum call_format)format,
                              .tools = tools,
                              .thoughts = thoughts,
                              .channels = how < 10 && how & 8},
                      slow = once;
    chat_reply_read(&once, text.text, text.size, true);
    for (size_t n = 0; n <= text.size; n++) chat_reply_read(&slow, text.text, n, n == text.size);
    CHECK(once.read == text.size && slow.read == text.size);
    CHECK(same(&once.content, &slow.content) && same(&once.reasoning, &slow.reasoning));
    CHECK(once.n_calls == slow.n_calls);
    for (int i = 0; i < once.n_calls; i++)
        CHECK(strcmp(once.calls[i].name, slow.calls[i].name) == 0 &&
              same(&once.calls[i].arguments, &slow.calls[i].arguments));
    chat_reply_free(&once);
    chat_reply_free(&slow);
    json_close(tools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span text = {(const char *)data, size};
    enum { LAST = '0' + 9 + CALL_FORMATS - CALLS_FUNCTION };
    if (size > 0 && data[0] >= '0' && data[0] <= LAST && size < 2000)
        check_reply(data[0] - '0', (struct text_span){text.text + 1, size - 1});
    else
        check_render(text);
    return 0;
}
