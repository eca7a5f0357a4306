/* tests/growth/cases_chat.c: conversations: read, put through a template, and turned into token
 * ids; and templates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/chat/chat.h"
#include "server/api/chat/chat_fit.h"
#include "tests/growth/growth.h"

static struct tokenizer *tokenizer;

static const char template_source[] =
    "{%- if tools %}{{ tools|tojson }}{% endif %}{%- for message in messages %}{{ '<|start|>' + "
    "message.role + '\\n' + "
    "(message.content|trim if message.content is string else '') + '<|end|>' }}{%- if "
    "message.tool_calls %}{%- for "
    "call in message.tool_calls %}{{ call.function.arguments|tojson }}{% endfor %}{% endif %}{% "
    "endfor %}";

/* A tokenizer with a thousand marks of which the text could begin any. */
static void open_tokenizer(void) {
    struct buffer json = {0};
    struct error e;
    if (tokenizer) return;
    buffer_append_string(&json, "{\"added_tokens\":[");
    for (int i = 0; i < 1000; i++)
        buffer_printf(&json,
                      "%s{\"id\":%d,\"content\":\"<|%s%d|>\",\"special\":%s,\"lstrip\":false,"
                      "\"rstrip\":false,"
                      "\"single_word\":false,\"normalized\":false}",
                      i ? "," : "", 300 + i, i % 2 ? "reserved_" : "kept_", i,
                      i % 2 ? "true" : "false");
    buffer_append_string(
        &json,
        ",{\"id\":1500,\"content\":\"<|start|>\",\"special\":true,\"lstrip\":false,\"rstrip\":"
        "false,"
        "\"single_word\":false,\"normalized\":false}],\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\xC4\xA0\":0");
    for (int c = '!'; c <= '~'; c++)
        if (c != '"' && c != '\\') buffer_printf(&json, ",\"%c\":%d", c, c);
    buffer_append_string(&json, "}}}");
    if (tokenizer_open_json(&tokenizer, json.data, json.size, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    buffer_free(&json);
}

static void encode(const struct chat *chat, const struct chat_input *in,
                   const struct template_output *text) {
    const struct template *t;
    struct tokens ids = {0};
    struct error e;
    CHECK(chat_pick(chat, in, &t, &e) == STATUS_OK);
    chat_encode(t, tokenizer, text, &ids, &e);
    tokens_free(&ids);
}

static void run_with(const char *source, struct text_span request) {
    struct template_output out = {0};
    struct chat_input in;
    struct chat *chat;
    struct json *json;
    struct error e;
    CHECK(chat_open_text(&chat, (struct text_span){source, strlen(source)}, NULL, NULL, &e) ==
          STATUS_OK);
    CHECK(json_parse(&json, request, "request", &e) == STATUS_OK &&
          chat_input_read(&in, json, &e) == STATUS_OK);
    if (chat_render(chat, &in, &out, &e) == STATUS_OK) encode(chat, &in, &out);
    template_output_free(&out);
    json_close(json);
    chat_close(chat);
}

static void run_request(struct text_span request) { run_with(template_source, request); }

/* Of the latest turns no more is read than fits; of a text that is too long neither. */
static void run_fitting(struct text_span request) {
    struct json *json;
    struct error e;
    CHECK(json_parse(&json, request, "request", &e) == STATUS_OK);
    chat_count_dropped(tokenizer, json_member(json, "messages"), (struct chat_budget){2000, 4});
    json_close(json);
}

static void put_message(struct buffer *out, int n, const char *text) {
    open_tokenizer();
    buffer_append_string(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    put_times(out, n, text);
    buffer_append_string(out, "\"}]}");
}

static void make_message(int n, struct buffer *out) { put_message(out, n, "some words "); }
static void make_word(int n, struct buffer *out) { put_message(out, n, "a"); }
static void make_angles(int n, struct buffer *out) { put_message(out, n, "<"); }
static void make_half_marks(int n, struct buffer *out) { put_message(out, n, "<|reserved_1"); }
static void make_marks(int n, struct buffer *out) { put_message(out, n, "<|start|>"); }
static void make_blanks(int n, struct buffer *out) { put_message(out, n, " "); }
static void make_messages(int n, struct buffer *out) {
    put_message(out, 1, "a");
    out->size -= 2;
    put_times(out, n, ",{\"role\":\"assistant\",\"content\":\"b\"}");
    buffer_append_string(out, "]}");
}
static void make_members(int n, struct buffer *out) {
    open_tokenizer();
    buffer_append_string(out, "{\"messages\":[{\"role\":\"user\"");
    for (int i = 0; i < n; i++) buffer_printf(out, ",\"m%d\":1", i);
    buffer_append_string(out, ",\"content\":\"a\"}]}");
}
static void make_tools(int n, struct buffer *out) {
    put_message(out, 1, "a");
    out->size -= 1;
    buffer_append_string(out, ",\"tools\":[");
    for (int i = 0; i < n; i++)
        buffer_printf(out,
                      "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{}}}",
                      i ? "," : "", i);
    buffer_append_string(out, "]}");
}

/* Templates. */

static void run_template(struct text_span source) {
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    char *text = xstrndup(source.text, source.size);
    run_with(text, (struct text_span){request, sizeof request - 1});
    free(text);
}

static void make_names(int n, struct buffer *out) {
    open_tokenizer();
    for (int i = 0; i < n; i++)
        buffer_printf(out, "{%% set name%d = 'content' %%}{{ name%d }}", i, i);
}
static void make_concatenation(int n, struct buffer *out) {
    open_tokenizer();
    buffer_append_string(out, "{{ 'a'");
    put_times(out, n, " ~ 'b'");
    buffer_append_string(out, " }}");
}
static void make_dict(int n, struct buffer *out) {
    open_tokenizer();
    buffer_append_string(out, "{% set d = {");
    for (int i = 0; i < n; i++) buffer_printf(out, "'k%d': 1, ", i);
    buffer_append_string(out, "} %}{% for k in d %}{{ d[k] }}{% endfor %}");
}

static const struct growth_case cases[] = {
    {"chat/message", 400, make_message, run_request},
    {"chat/word", 4000, make_word, run_request},
    {"chat/angles", 2000, make_angles, run_request},
    {"chat/half-marks", 200, make_half_marks, run_request},
    {"chat/marks", 100, make_marks, run_request},
    {"chat/blanks", 4000, make_blanks, run_request},
    {"chat/messages", 50, make_messages, run_request},
    {"chat/members", 500, make_members, run_request},
    {"chat/fitting-turns", 200, make_messages, run_fitting},
    {"chat/fitting-word", 40000, make_word, run_fitting},
    {"chat/tools", 60, make_tools, run_request},
    {"jinja/names", 400, make_names, run_template},
    {"jinja/concatenation", 1000, make_concatenation, run_template},
    {"jinja/dict", 400, make_dict, run_template},
};
const struct growth_table chat_growth = GROWTH_TABLE(cases);
