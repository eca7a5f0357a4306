/* tests/unit/test_harmony.c: answers in channels taken apart into thoughts, words and calls, at
 * once and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "retro/chat/harmony.h"

#define THINKS(words) "<|channel|>analysis<|message|>" words "<|end|>"
#define NEXT "<|start|>assistant"
#define FINAL(words) "<|channel|>final<|message|>" words

static const struct channel_case {
    const char *text, *reasoning, *content;
    const char *calls[3]; /* "name arguments" */
} cases[] = {
    {FINAL("x <y> "), "", "x <y> ", {0}},
    {FINAL("x<|return|>"), "", "x", {0}},
    {THINKS(" a\n") NEXT FINAL("b"), " a\n", "b", {0}},
    {THINKS("a") NEXT THINKS("b") NEXT FINAL("c"), "a\nb", "c", {0}},
    {"<|channel|>analysis<|message|>never ends <|e", "never ends <|e", "", {0}},
    {"<|channel|>analysis<|message|>a" NEXT FINAL("b"), "a", "b", {0}},
    {THINKS("a") NEXT "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
                      "{\"x\": [1, \"}\"]}<|call|>",
     "a",
     "",
     {"f {\"x\": [1, \"}\"]}"}},
    {" to=functions.g<|channel|>commentary json<|message|>{}", "", "", {"g {}"}},
    {"<|channel|>commentary to=functions.f<|message|> {\"x\": \"<|call|><|start|>\"}<|call|>",
     "",
     "",
     {"f {\"x\": \"<|call|><|start|>\"}"}},
    {"<|channel|>commentary to=functions.f<|message|>{\"x\": \"<|call|>", "", "{\"x\": \"", {0}},
    {" to=functions.f<|channel|>commentary<|message|>{\"a\": 1}<|call|>" NEXT
     " to=functions.g<|channel|>commentary<|message|>{}<|call|>",
     "",
     "",
     {"f {\"a\": 1}", "g {}"}},
    {"<|channel|>commentary<|message|>I look.<|end|>" NEXT
     "<|channel|>commentary to=functions.f<|message|>{}",
     "",
     "I look.",
     {"f {}"}},
    /* A call that is none stays text: no JSON, a list, no tool of the request's. */
    {"<|channel|>commentary to=functions.f<|message|>{\"a\": <|call|>", "", "{\"a\": ", {0}},
    {"<|channel|>commentary to=functions.f<|message|>[1]<|call|>", "", "[1]", {0}},
    {"<|channel|>commentary to=python<|message|>print(1)<|call|>", "", "print(1)", {0}},
    {"<|channel|>commentary to=functions.<|message|>{}", "", "{}", {0}},
    /* Texts without channels. */
    {"plain words", "", "plain words", {0}},
    {" to be", "", " to be", {0}},
    {"<|chan", "", "<|chan", {0}},
    {"<|channel|>final", "", "<|channel|>final", {0}},
    {"<|start|>nobody", "", "<|start|>nobody", {0}},
    {THINKS("a") NEXT " to=f", "a", "<|start|>assistant to=f", {0}},
    {"", "", "", {0}},
};

static void check_text(const struct buffer *text, const char *want) {
    assert_int_equal(text->size, strlen(want));
    if (text->size > 0) assert_memory_equal(text->data, want, text->size);
}

static void check_case(const struct channel_case *want, size_t step) {
    struct chat_reply reply = {.channels = true};
    size_t size = strlen(want->text);
    int n = 0;
    for (size_t there = 0; there < size; there += step)
        chat_reply_read(&reply, want->text, there, false);
    chat_reply_read(&reply, want->text, size, true);
    check_text(&reply.reasoning, want->reasoning);
    check_text(&reply.content, want->content);
    while (n < 3 && want->calls[n]) n++;
    assert_int_equal(reply.n_calls, n);
    for (int i = 0; i < n; i++) {
        struct buffer call = {0};
        buffer_printf(&call, "%s %s", reply.calls[i].name, reply.calls[i].arguments.data);
        assert_string_equal(call.data, want->calls[i]);
        buffer_free(&call);
    }
    chat_reply_free(&reply);
}

static void test_channels(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        for (size_t step = 1; step < 8; step++) check_case(&cases[i], step);
}

/* Words are told before the message ends; a mark that has begun waits. */
static void test_stream(void **state) {
    (void)state;
    static const char text[] = FINAL("words <|en");
    struct chat_reply reply = {.channels = true};
    chat_reply_read(&reply, text, strlen(text), false);
    check_text(&reply.content, "words ");
    chat_reply_free(&reply);
}

/* A text that only looks like a header is not kept for ever. */
static void test_long_header(void **state) {
    (void)state;
    struct chat_reply reply = {.channels = true};
    struct buffer text = {0};
    buffer_append_string(&text, "<|channel|>");
    while (text.size < 2000) buffer_append_string(&text, "analysis ");
    chat_reply_read(&reply, text.data, text.size, false);
    assert_int_equal(reply.content.size, text.size);
    chat_reply_free(&reply);
    buffer_free(&text);
}

/* A header of the length that is just allowed is one however its end comes. */
static void test_longest_header(void **state) {
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        struct chat_reply reply = {.channels = true};
        struct buffer text = {0};
        buffer_append_string(&text, "<|channel|>analysis");
        while (text.size < 510) buffer_append_string(&text, " ");
        buffer_append_string(&text, "<|message|>thought");
        for (size_t i = 1; slow && i < text.size; i++) chat_reply_read(&reply, text.data, i, false);
        chat_reply_read(&reply, text.data, text.size, true);
        check_text(&reply.reasoning, "thought");
        check_text(&reply.content, "");
        chat_reply_free(&reply);
        buffer_free(&text);
    }
}

static void test_templates(void **state) {
    (void)state;
    const char *words = "<|start|>x<|channel|>final<|message|>";
    assert_true(harmony_is_written((struct text_span){words, strlen(words)}));
    assert_false(harmony_is_written((struct text_span){words, 12}));
    assert_false(harmony_is_written((struct text_span){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_long_header), cmocka_unit_test(test_longest_header),
        cmocka_unit_test(test_templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
