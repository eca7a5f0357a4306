/* tests/growth/cases_replies.c: answers of models, taken apart at once and as they come. A client
 * that chooses an answer's grammar chooses its text. */
#include "retro/chat/chat_reply.h"
#include "tests/growth/growth.h"

static void run_whole(enum call_format format, struct text_span text) {
    struct chat_reply reply = {.format = format, .channels = format == CALLS_HARMONY};
    chat_reply_read(&reply, text.text, text.size, true);
    chat_reply_free(&reply);
}

/* A few bytes at a time, as tokens come. */
static void run_stream(enum call_format format, struct text_span text) {
    struct chat_reply reply = {.format = format, .channels = format == CALLS_HARMONY};
    if (format == CALLS_HERMES) reply.thoughts = THOUGHTS_TAGGED;
    for (size_t size = 4; size < text.size; size += 4)
        chat_reply_read(&reply, text.text, size, false);
    chat_reply_read(&reply, text.text, text.size, true);
    chat_reply_free(&reply);
}

/* A beginning, and n times what follows it. */
#define READ(name, format, begin, more) \
    static void make_##name(int n, struct buffer *out) { \
        buffer_append_string(out, begin); \
        put_times(out, n, more); \
    } \
    static void run_##name(struct text_span text) { run_whole(format, text); } \
    static void stream_##name(struct text_span text) { run_stream(format, text); }

#define DEEPSEEK_CALL "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
#define HARMONY_CALL "<|channel|>commentary to=functions.f<|message|>"

/* Marks, each of which may begin a call as far as the end. */
READ(hermes_marks, CALLS_HERMES, "", "<tool_call>")
READ(hermes_texts, CALLS_HERMES, "", "<tool_call>{\"\\\"")
READ(mistral_marks, CALLS_MISTRAL, "", "[TOOL_CALLS]")
READ(mistral_texts, CALLS_MISTRAL, "", "[TOOL_CALLS]f[ARGS]{\"\\\"")
READ(function_marks, CALLS_FUNCTION, "", "<tool_call><function=f><parameter=a>")
READ(glm_marks, CALLS_GLM, "", "<tool_call>f<arg_key>")
READ(deepseek_marks, CALLS_DEEPSEEK, "", DEEPSEEK_CALL "{\"\\\"")
READ(python_marks, CALLS_PYTHON, "", "<|tool_call_start|>[f(a='")
READ(gemma_marks, CALLS_GEMMA, "", "<|tool_call>call:f{a:[")
READ(granite_marks, CALLS_GRANITE, "", "<|tool_call|>[{\"\\\"")
READ(olmo_marks, CALLS_OLMO, "", "<function_calls>f(a='")
READ(apertus_marks, CALLS_APERTUS, "", "<|tools_prefix|>[{\"\\\"")
READ(harmony_marks, CALLS_HARMONY, "", "<|start|>")
READ(harmony_calls, CALLS_HARMONY, "", "<|start|>assistant" HARMONY_CALL "{\"\\\"")

/* A call that goes on, with what may be its end. */
READ(hermes_ends, CALLS_HERMES, "<tool_call>{\"", "</tool_call>")
READ(mistral_words, CALLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"", "words ")
READ(function_ends, CALLS_FUNCTION, "<tool_call><function=f><parameter=a>", "</tool_call>")
READ(deepseek_ends, CALLS_DEEPSEEK, DEEPSEEK_CALL "{\"", "<｜tool▁calls▁end｜>")
READ(python_ends, CALLS_PYTHON, "<|tool_call_start|>[f(a='", "<|tool_call_end|>")
READ(python_list, CALLS_PYTHON, "<|tool_call_start|>[f(a=[", "'b',")
READ(gemma_ends, CALLS_GEMMA, "<|tool_call>call:f{a:<|\"|>", "<tool_call|>")
READ(granite_words, CALLS_GRANITE, "<|tool_call|>[{\"", "words ")
READ(olmo_ends, CALLS_OLMO, "<function_calls>f(a='", "</function_calls>")
READ(olmo_lines, CALLS_OLMO, "<function_calls>", "f(a=1)\n")
READ(apertus_ends, CALLS_APERTUS, "<|tools_prefix|>[{\"", "<|tools_suffix|>")
READ(harmony_words, CALLS_HARMONY, HARMONY_CALL "{\"", "words ")

/* Blanks, which wait for what comes. */
READ(blanks, CALLS_HERMES, "words", " \n")
READ(thoughts, CALLS_HERMES, "<think>a", " \n")

/* The places of citations between calls. */
static void make_places(int n, struct buffer *out) {
    put_times(out, n, "w [1] <tool_call>{\"name\": \"f\"}</tool_call>");
}
static void run_places(struct text_span text) {
    struct chat_reply reply = {.format = CALLS_HERMES};
    chat_reply_read(&reply, text.text, text.size, true);
    for (int i = 0; i < reply.n_pieces; i++) chat_reply_place(&reply, reply.pieces[i].written + 1);
    chat_reply_free(&reply);
}

#define BOTH(name) \
    {"reply/" #name, 1000, make_##name, run_##name}, { \
        "stream/" #name, 1000, make_##name, stream_##name \
    }
static const struct growth_case cases[] = {
    BOTH(hermes_marks),
    BOTH(hermes_texts),
    BOTH(mistral_marks),
    BOTH(mistral_texts),
    BOTH(function_marks),
    BOTH(glm_marks),
    BOTH(deepseek_marks),
    BOTH(python_marks),
    BOTH(gemma_marks),
    BOTH(harmony_marks),
    BOTH(harmony_calls),
    BOTH(hermes_ends),
    BOTH(mistral_words),
    BOTH(function_ends),
    BOTH(deepseek_ends),
    BOTH(python_ends),
    BOTH(python_list),
    BOTH(gemma_ends),
    BOTH(harmony_words),
    BOTH(blanks),
    BOTH(granite_marks),
    BOTH(granite_words),
    BOTH(olmo_marks),
    BOTH(olmo_ends),
    BOTH(olmo_lines),
    BOTH(apertus_marks),
    BOTH(apertus_ends),
    BOTH(thoughts),
    {"reply/places", 1000, make_places, run_places},
};
const struct growth_table reply_growth = GROWTH_TABLE(cases);
