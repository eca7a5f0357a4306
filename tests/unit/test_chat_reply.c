/* tests/unit/test_chat_reply.c: answers of models taken apart into thoughts, words and calls, in
 * each format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "retro/chat/chat_reply.h"

struct reply_case {
    enum call_format format;
    bool reasons;
    const char *text, *reasoning, *content;
    const char *calls[3]; /* "name arguments" */
};

static const struct reply_case cases[] = {
    {CALLS_NONE, false, " <think>a</think> b ", "", " <think>a</think> b ", {0}},
    {CALLS_NONE, true, " <think>\n a \n</think>\n\nb ", "a", "b ", {0}},
    {CALLS_NONE, true, "<thin", "", "<thin", {0}},
    {CALLS_NONE, true, "<think>never ends </thin", "never ends </thin", "", {0}},
    {CALLS_HERMES,
     false,
     "x \n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>\n",
     "",
     "x",
     {"f {\"a\": [1, \"}\"]}"}},
    {CALLS_HERMES,
     false,
     "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\"}",
     "",
     "",
     {"f {}", "g {}"}},
    {CALLS_HERMES,
     false,
     "a <tool_call>{\"nome\": 1}</tool_call>",
     "",
     "a <tool_call>{\"nome\": 1}</tool_call>",
     {0}},
    {CALLS_HERMES,
     true,
     "<think>t</think>w<tool_call>{\"name\": \"f\"}</tool_call>",
     "t",
     "w",
     {"f {}"}},
    {CALLS_MISTRAL,
     false,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]",
     "",
     "",
     {"f {\"a\": 1}", "g {}"}},
    {CALLS_MISTRAL,
     false,
     "w[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{}",
     "",
     "w",
     {"f {\"a\": 1}", "g {}"}},
    {CALLS_MISTRAL, false, "[TOOL_CALLS]f[ARGS]{\"a\": ", "", "[TOOL_CALLS]f[ARGS]{\"a\": ", {0}},
    {CALLS_LLAMA,
     false,
     " {\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
     "",
     "",
     {"f {\"a\": \"b\"}"}},
    {CALLS_LLAMA,
     false,
     "<|python_tag|>{\"name\": \"f\"}; {\"name\": \"g\"}",
     "",
     "",
     {"f {}", "g {}"}},
    {CALLS_LLAMA, false, "see {\"name\": \"f\"}", "", "see {\"name\": \"f\"}", {0}},
    {CALLS_LLAMA, false, "{\"answer\": 42}", "", "{\"answer\": 42}", {0}},
    {CALLS_FUNCTION,
     false,
     "I look.\n\n<tool_call>\n<function=f>\n<parameter=path>\na "
     "b\nc\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
     "",
     "I look.",
     {"f {\"path\": \"a b\\nc\", \"n\": 3}"}},
    {CALLS_FUNCTION,
     false,
     "<tool_call><function=g></function></tool_call>\n<tool_call><function=f><parameter=path></"
     "function></parameter></function></tool_call>",
     "",
     "",
     {"g {}", "f {\"path\": \"</function>\"}"}},
    {CALLS_FUNCTION,
     false,
     "<tool_call><function=f><parameter=flag>True</parameter><parameter=other>7</"
     "parameter><parameter=list>[1, {\"a\": null}]</parameter></function></tool_call>",
     "",
     "",
     {"f {\"flag\": true, \"other\": \"7\", \"list\": [1, {\"a\": null}]}"}},
    {CALLS_FUNCTION,
     false,
     "<tool_call><function=f><parameter=n>many</parameter><parameter=maybe>null</parameter></"
     "function></tool_call>",
     "",
     "",
     {"f {\"n\": \"many\", \"maybe\": null}"}},
    {CALLS_FUNCTION,
     false,
     "<tool_call><function=f><parameter=some>7</parameter><parameter=either>7</parameter></"
     "function><function=g></function></tool_call>",
     "",
     "",
     {"f {\"some\": \"7\", \"either\": 7}", "g {}"}},
    {CALLS_GLM,
     false,
     "<tool_call>f<arg_key>some</arg_key><arg_value>null</arg_value><arg_key>either</arg_key>"
     "<arg_value>true</arg_value></tool_call><tool_call>f<arg_key>some</arg_key>"
     "<arg_value>\"a\"</arg_value></tool_call>",
     "",
     "",
     {"f {\"some\": null, \"either\": \"true\"}", "f {\"some\": \"a\"}"}},
    /* The outer tag in a value is text, however slowly its own comes. */
    {CALLS_FUNCTION,
     false,
     "<tool_call>\n<function=f>\n<parameter=path>\na</tool_call>b\n</parameter>\n</function>\n</"
     "tool_call>",
     "",
     "",
     {"f {\"path\": \"a</tool_call>b\"}"}},
    {CALLS_FUNCTION,
     false,
     "x <tool_call><function=f><parameter=n>3</tool_call> y",
     "",
     "x <tool_call><function=f><parameter=n>3</tool_call> y",
     {0}},
    {CALLS_FUNCTION,
     false,
     "<tool_call>{\"name\": \"f\"}</tool_call>",
     "",
     "<tool_call>{\"name\": \"f\"}</tool_call>",
     {0}},
    {CALLS_GLM,
     false,
     "w\n<tool_call>f\n<arg_key>path</arg_key>\n<arg_value>a "
     "\"b\"</arg_value>\n<arg_key>n</arg_key>\n<arg_value>-2.5</arg_value>\n</"
     "tool_call>\n<tool_call>g</tool_call>",
     "",
     "w",
     {"f {\"path\": \"a \\\"b\\\"\", \"n\": -2.5}", "g {}"}},
    {CALLS_GLM,
     false,
     "<tool_call>f<arg_key>n</arg_key></tool_call>",
     "",
     "<tool_call>f<arg_key>n</arg_key></tool_call>",
     {0}},
    {CALLS_MINIMAX,
     false,
     "w<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
     "name=\"path\">x</parameter>\n<parameter name=\"n\">1</parameter>\n</invoke>\n<invoke "
     "name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "",
     "w",
     {"f {\"path\": \"x\", \"n\": 1}", "g {}"}},
    {CALLS_MINIMAX,
     false,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
     "name=\"path\"></minimax:tool_call></parameter>\n</invoke>\n<invoke "
     "name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "",
     "",
     {"f {\"path\": \"</minimax:tool_call>\"}", "g {}"}},
    {CALLS_MINIMAX,
     false,
     "<minimax:tool_call><invoke name=\"f\"></minimax:tool_call>",
     "",
     "<minimax:tool_call><invoke name=\"f\"></minimax:tool_call>",
     {0}},
    {CALLS_DEEPSEEK,
     false,
     "w<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
     "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     "",
     "w",
     {"f {\"n\": 1}", "g {}"}},
    {CALLS_DEEPSEEK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"path\": "
     "\"a\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "",
     "",
     {"f {\"path\": \"a\"}"}},
    {CALLS_DEEPSEEK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {0}},
    {CALLS_PYTHON,
     false,
     "w<|tool_call_start|>[f(path=\"a\\n\\\"b\\\"\", n=-1.5), g(list=[1, (2,), {'a': None}], "
     "flag=True,)]<|tool_call_end|>",
     "",
     "w",
     {"f {\"path\": \"a\\n\\\"b\\\"\", \"n\": -1.5}",
      "g {\"list\": [1, [2], {\"a\": null}], \"flag\": true}"}},
    {CALLS_PYTHON,
     false,
     "<|tool_call_start|>[f(path='\\u00e9\\x41\\q')]<|tool_call_end|>",
     "",
     "",
     {"f {\"path\": \"éA\\\\q\"}"}},
    {CALLS_PYTHON,
     false,
     "<|tool_call_start|>[f(n=1+2)]<|tool_call_end|>",
     "",
     "<|tool_call_start|>[f(n=1+2)]<|tool_call_end|>",
     {0}},
    {CALLS_PYTHON,
     false,
     "<|tool_call_start|>[g(), f(]<|tool_call_end|> end",
     "",
     "<|tool_call_start|>[g(), f(]<|tool_call_end|> end",
     {0}},
    {CALLS_GEMMA,
     false,
     "w<|tool_call>call:f{path:<|\"|>a\n\"b\", {x}<|\"|>,n:-1.5,flag:true}<tool_call|>"
     "<|tool_call>call:g{list:[1,[<|\"|>2<|\"|>],{a:null,<|\"|>b c<|\"|>:\"q}\"}]}<tool_call|>",
     "",
     "w",
     {"f {\"path\": \"a\\n\\\"b\\\", {x}\", \"n\": -1.5, \"flag\": true}",
      "g {\"list\": [1, [\"2\"], {\"a\": null, \"b c\": \"q}\"}]}"}},
    {CALLS_GEMMA, false, "<|tool_call>call:f{}<tool_call|>", "", "", {"f {}"}},
    {CALLS_GEMMA,
     false,
     "<|tool_call>call:f{n:1+2}<tool_call|> end",
     "",
     "<|tool_call>call:f{n:1+2}<tool_call|> end",
     {0}},
    {CALLS_MISTRAL,
     true,
     "[THINK]I'm [TOOL_CALLS]f[ARGS]{} <so\n[/THINK]Hi[/THINK]",
     "I'm [TOOL_CALLS]f[ARGS]{} <so",
     "Hi[/THINK]",
     {0}},
    {CALLS_MISTRAL,
     true,
     "[THINK]t[/THINK][TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
     "t",
     "",
     {"f {\"a\": 1}", "g {}"}},
    {CALLS_MISTRAL, true, "[THINK]never ends [/THIN", "never ends [/THIN", "", {0}},
    {CALLS_MISTRAL, true, "[THINGS] a", "", "[THINGS] a", {0}},
    {CALLS_MISTRAL, false, "[THINK]a[/THINK]b", "", "[THINK]a[/THINK]b", {0}},
    {CALLS_GRANITE,
     false,
     "w\n<|tool_call|> [{\"name\": \"f\", \"arguments\": {\"path\": \"a]<|tool_call|>\"}}, "
     "{\"name\": \"g\", \"arguments\": {}}]\n",
     "",
     "w",
     {"f {\"path\": \"a]<|tool_call|>\"}", "g {}"}},
    {CALLS_GRANITE,
     true,
     "<think>t</think><|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 1e999}}] x",
     "t",
     "x",
     {"f {\"n\": 1e999}"}},
    {CALLS_GRANITE,
     false,
     "<|tool_call|>[{\"name\": \"f\"}, {\"nome\": 1}] x",
     "",
     "<|tool_call|>[{\"name\": \"f\"}, {\"nome\": 1}] x",
     {0}},
    {CALLS_GRANITE, false, "<|tool_call|>none", "", "<|tool_call|>none", {0}},
    {CALLS_GRANITE, false, "<|tool_call|>[{\"name\": \"f", "", "<|tool_call|>[{\"name\": \"f", {0}},
    {CALLS_GRANITE, false, "<|tool_call|>\n", "", "<|tool_call|>\n", {0}},
    {CALLS_OLMO,
     true,
     "<think>t</think>w\n<function_calls>f(path=\"a\\n)</function_calls>\", n=-1.5, flag=true)\n"
     "g(list=[1, {'a': None}], maybe=null)\n</function_calls> x",
     "t",
     "wx",
     {"f {\"path\": \"a\\n)</function_calls>\", \"n\": -1.5, \"flag\": true}",
      "g {\"list\": [1, {\"a\": null}], \"maybe\": null}"}},
    {CALLS_OLMO, false, "<function_calls>\nf()\n", "", "", {"f {}"}},
    {CALLS_OLMO,
     false,
     "<function_calls>f(n=1+2)</function_calls> end",
     "",
     "<function_calls>f(n=1+2)</function_calls> end",
     {0}},
    {CALLS_OLMO,
     false,
     "<function_calls>f()\ng(</function_calls> end",
     "",
     "<function_calls>f()\ng(</function_calls> end",
     {0}},
    {CALLS_OLMO,
     false,
     "<function_calls>f(), g()</function_calls>",
     "",
     "<function_calls>f(), g()</function_calls>",
     {0}},
    {CALLS_OLMO,
     false,
     "<function_calls></function_calls>",
     "",
     "<function_calls></function_calls>",
     {0}},
    {CALLS_APERTUS,
     true,
     "<|inner_prefix|>t\n<|inner_suffix|>w\n<|tools_prefix|>[{\"f\": {\"path\": "
     "\"]<|tools_suffix|>\"}}, {\"g\": {}}]<|tools_suffix|> x",
     "t",
     "wx",
     {"f {\"path\": \"]<|tools_suffix|>\"}", "g {}"}},
    /* A call ends thoughts, where they are read. */
    {CALLS_APERTUS,
     true,
     "<|inner_prefix|>t <|tools \n<|tools_prefix|>[{\"f\": {}}]<|tools_suffix|>",
     "t <|tools",
     "",
     {"f {}"}},
    {CALLS_APERTUS,
     true,
     "<|inner_prefix|>never ends <|tools_pre",
     "never ends <|tools_pre",
     "",
     {0}},
    {CALLS_APERTUS,
     false,
     "<|tools_prefix|>[{\"f\": {}, \"g\": {}}]<|tools_suffix|> x",
     "",
     "<|tools_prefix|>[{\"f\": {}, \"g\": {}}]<|tools_suffix|> x",
     {0}},
    {CALLS_APERTUS,
     false,
     "<|tools_prefix|>[{\"f\": {}}, {\"g\": 1}]<|tools_suffix|>",
     "",
     "<|tools_prefix|>[{\"f\": {}}, {\"g\": 1}]<|tools_suffix|>",
     {0}},
    {CALLS_APERTUS,
     false,
     "<|tools_prefix|>[{}]<|tools_suffix|>",
     "",
     "<|tools_prefix|>[{}]<|tools_suffix|>",
     {0}},
    /* Tags in texts of JSON and of lists are texts, however slowly their own come. */
    {CALLS_HERMES,
     false,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"path\": "
     "\"<tool_call>\\\"</tool_call>\"}}\n</tool_call> x",
     "",
     "x",
     {"f {\"path\": \"<tool_call>\\\"</tool_call>\"}"}},
    {CALLS_HERMES,
     false,
     "<tool_call>{\"name\": \"f</tool_call> x",
     "",
     "<tool_call>{\"name\": \"f</tool_call> x",
     {0}},
    {CALLS_DEEPSEEK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"path\": "
     "\"a<｜tool▁call▁end｜><｜tool▁calls▁end｜>```json\"}<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     "",
     "",
     {"f {\"path\": \"a<｜tool▁call▁end｜><｜tool▁calls▁end｜>```json\"}"}},
    {CALLS_DEEPSEEK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{\"a\": "
     "\"```json\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "",
     "",
     {"function {\"a\": \"```json\"}"}},
    {CALLS_DEEPSEEK_BLOCK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"path\": "
     "\"```<｜tool▁call▁end｜><｜tool▁calls▁end｜\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "",
     "",
     {"f {\"path\": \"```<｜tool▁call▁end｜><｜tool▁calls▁end｜\"}"}},
    {CALLS_DEEPSEEK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{} x<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{} x<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     {0}},
    {CALLS_PYTHON,
     false,
     "<|tool_call_start|>[f(path='<|tool_call_end|>\\u00e9', "
     "list=[\"<|tool_call_end|>\"])]<|tool_call_end|> x",
     "",
     "x",
     {"f {\"path\": \"<|tool_call_end|>é\", \"list\": [\"<|tool_call_end|>\"]}"}},
    {CALLS_PYTHON,
     false,
     "<|tool_call_start|>[f(path='a]<|tool_call_end|> x",
     "",
     "<|tool_call_start|>[f(path='a]<|tool_call_end|> x",
     {0}},
    {CALLS_GEMMA,
     false,
     "<|tool_call>call:f{path:<|\"|><tool_call|><|\"|>,list:[\"<tool_call|>\",12]}<tool_call|> x",
     "",
     "x",
     {"f {\"path\": \"<tool_call|>\", \"list\": [\"<tool_call|>\", 12]}"}},
    {CALLS_GEMMA,
     false,
     "<|tool_call>call:f{path:<|\"|>a}<tool_call|> x",
     "",
     "<|tool_call>call:f{path:<|\"|>a}<tool_call|> x",
     {0}},
    {CALLS_GEMMA,
     false,
     "<|tool_call>f{n:1}<tool_call|><|tool_call>call:f{n:1} x<tool_call|>",
     "",
     "<|tool_call>f{n:1}<tool_call|><|tool_call>call:f{n:1} x<tool_call|>",
     {0}},
    /* Arguments that no type of C holds, or whose names are doubled, go on as they are spelt. */
    {CALLS_HERMES,
     false,
     "<tool_call>{\"name\": \"f\", "
     "\"arguments\":\n{\"n\":123456789012345678901,\n\"n\":-1e999,\"t\""
     ":\"12345, 6\\\"\"}}</tool_call>",
     "",
     "",
     {"f {\"n\": 123456789012345678901, \"n\": -1e999, \"t\": \"12345, 6\\\"\"}"}},
    {CALLS_HERMES,
     false,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 0123456789012345678901}}</tool_call>",
     "",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 0123456789012345678901}}</tool_call>",
     {0}},
    {CALLS_MISTRAL,
     false,
     "[TOOL_CALLS]f[ARGS]{\"n\": 1.5e99999}",
     "",
     "",
     {"f {\"n\": 1.5e99999}"}},
    {CALLS_MISTRAL,
     false,
     "[TOOL_CALLS][{\"n\\u0061me\": \"f\", \"arguments\": {\"a\": 9223372036854775808}}, "
     "{\"name\": "
     "\"g\", \"name\": \"h\"}]",
     "",
     "",
     {"f {\"a\": 9223372036854775808}", "h {}"}},
    {CALLS_LLAMA,
     false,
     "{\"name\": \"f\", \"parameters\": {\"n\": -9223372036854775809}}",
     "",
     "",
     {"f {\"n\": -9223372036854775809}"}},
    {CALLS_FUNCTION,
     false,
     "<tool_call><function=f><parameter=n>123456789012345678901</parameter><parameter=n>1e999</"
     "parameter><parameter=either>98765432109876543210</parameter></function></tool_call>",
     "",
     "",
     {"f {\"n\": 123456789012345678901, \"n\": 1e999, \"either\": 98765432109876543210}"}},
    {CALLS_DEEPSEEK,
     false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
     "123456789012345678901}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "",
     "",
     {"f {\"n\": 123456789012345678901}"}},
    {CALLS_PYTHON,
     false,
     "<|tool_call_start|>[f(n=123456789012345678901, n=[1e999])]<|tool_call_end|>",
     "",
     "",
     {"f {\"n\": 123456789012345678901, \"n\": [1e999]}"}},
    {CALLS_GEMMA,
     false,
     "<|tool_call>call:f{n:123456789012345678901,n:1e999}<tool_call|>",
     "",
     "",
     {"f {\"n\": 123456789012345678901, \"n\": 1e999}"}},
    /* Arguments that are told as a text are JSON themselves, or stay a text. */
    {CALLS_HERMES,
     false,
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\":\\n1}\"}</tool_call>"
     "<tool_call>{\"name\": \"g\", \"arguments\": \" \"}</tool_call>"
     "<tool_call>{\"name\": \"h\", \"arguments\": \"1}, \\\"x\\\": {\"}</tool_call>",
     "",
     "",
     {"f {\"a\": 1}", "g {}", "h 1}, \"x\": {"}},
    {CALLS_GEMMA, true, "<|channel>thought\nI'm\n <so\n<channel|>\nHi", "I'm\n <so", "Hi", {0}},
    {CALLS_GEMMA, true, "<|channel>thought<channel|>Hi<channel|>", "", "Hi<channel|>", {0}},
    {CALLS_GEMMA,
     true,
     " <|channel>thought\na<channel|><|tool_call>call:f{}<tool_call|>",
     "a",
     "",
     {"f {}"}},
    {CALLS_GEMMA, true, "<|channel>final\nx", "", "<|channel>final\nx", {0}},
    {CALLS_GEMMA, true, "<|channel>thou", "", "<|channel>thou", {0}},
    {CALLS_GEMMA, true, "<|channel>thought\nnever ends <chan", "never ends <chan", "", {0}},
    {CALLS_GEMMA,
     false,
     "<|channel>thought\na<channel|>b",
     "",
     "<|channel>thought\na<channel|>b",
     {0}},
};

/* Of the cases with tags: the types that arguments have. */
static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\", "
    "\"properties\": {\"path\": {\"type\": \"string\"}, \"n\": {\"type\": \"number\"}, \"flag\": "
    "{\"type\": \"boolean\"}, \"list\": {}, \"maybe\": {\"type\": [\"string\", \"null\"]}, "
    "\"some\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}, \"either\": "
    "{\"oneOf\": "
    "[{\"type\": \"number\"}, {\"type\": \"string\"}]}}}}}]";

static void check_text(const struct buffer *text, const char *want) {
    assert_int_equal(text->size, strlen(want));
    if (text->size > 0) assert_memory_equal(text->data, want, text->size);
}

/* The content is made of pieces of the text, in order, and each byte is found. */
static void check_pieces(const struct chat_reply *r, const char *text) {
    size_t said = 0;
    for (int i = 0; i < r->n_pieces; i++) {
        const struct reply_piece *piece = &r->pieces[i];
        assert_int_equal(piece->said, said);
        assert_memory_equal(text + piece->written, r->content.data + said, piece->size);
        assert_int_equal(chat_reply_place(r, piece->written), said);
        assert_int_equal(chat_reply_place(r, piece->written + 1), said + 1);
        said += piece->size;
        assert_int_equal(chat_reply_place(r, piece->written + piece->size), said);
    }
    assert_int_equal(said, r->content.size);
    assert_int_equal(chat_reply_place(r, 0), 0);
    assert_int_equal(chat_reply_place(r, strlen(text)), said);
}

static void check_case(const struct reply_case *c, const struct json *types, bool slow) {
    struct chat_reply r = {.format = c->format, .tools = types};
    size_t size = strlen(c->text);
    int n = 0;
    if (c->reasons)
        r.thoughts = c->format == CALLS_GEMMA     ? THOUGHTS_CHANNEL
                     : c->format == CALLS_MISTRAL ? THOUGHTS_BRACKETED
                     : c->format == CALLS_APERTUS ? THOUGHTS_INNER
                                                  : THOUGHTS_TAGGED;
    for (size_t i = slow ? 1 : size; i < size; i++) chat_reply_read(&r, c->text, i, false);
    chat_reply_read(&r, c->text, size, true);
    check_text(&r.reasoning, c->reasoning);
    check_text(&r.content, c->content);
    check_pieces(&r, c->text);
    while (n < 3 && c->calls[n]) n++;
    assert_int_equal(r.n_calls, n);
    for (int i = 0; i < n; i++) {
        struct buffer call = {0};
        buffer_printf(&call, "%s %s", r.calls[i].name, r.calls[i].arguments.data);
        assert_string_equal(call.data, c->calls[i]);
        buffer_free(&call);
    }
    chat_reply_free(&r);
}

static void test_cases(void **state) {
    (void)state;
    struct error e;
    struct json *types;
    assert_int_equal(json_parse(&types, (struct text_span){tools, strlen(tools)}, "tools", &e), 0);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        check_case(&cases[i], types, false);
        check_case(&cases[i], types, true);
    }
    json_close(types);
}

/* A value as deep as any JSON may be is one level too deep for the arguments around it. */
static void test_deep_value(void **state) {
    (void)state;
    static const char before[] = "<tool_call><function=f><parameter=n>",
                      after[] = "</parameter></function></tool_call>";
    const char *unclear =
        "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"n\": "
        "{\"type\": \"array\"}}}}}]";
    struct error e;
    struct json *types;
    assert_int_equal(json_parse(&types, (struct text_span){unclear, strlen(unclear)}, "tools", &e),
                     0);
    for (int depth = JSON_DEPTH_LIMIT - 1; depth <= JSON_DEPTH_LIMIT; depth++) {
        struct chat_reply r = {.format = CALLS_FUNCTION, .tools = types};
        struct buffer text = {0};
        buffer_append_string(&text, before);
        for (int i = 0; i < depth; i++) buffer_append_string(&text, "[");
        for (int i = 0; i < depth; i++) buffer_append_string(&text, "]");
        buffer_append_string(&text, after);
        chat_reply_read(&r, text.data, text.size, true);
        assert_int_equal(r.n_calls, depth < JSON_DEPTH_LIMIT ? 1 : 0);
        chat_reply_free(&r);
        buffer_free(&text);
    }
    json_close(types);
}

static struct text_span span_of(const char *words) {
    return (struct text_span){words, strlen(words)};
}

static void test_formats(void **state) {
    (void)state;
    assert_int_equal(call_format_of(span_of("x<tool_call>y")), CALLS_HERMES);
    assert_int_equal(call_format_of(span_of("<tool_call><function=")), CALLS_NONE);
    assert_int_equal(call_format_of(span_of("<tool_call><function=a><parameter=b>")),
                     CALLS_FUNCTION);
    assert_int_equal(call_format_of(span_of("<tool_call>a<arg_key>")), CALLS_GLM);
    assert_int_equal(call_format_of(span_of("<minimax:tool_call>")), CALLS_MINIMAX);
    assert_int_equal(call_format_of(span_of("<|tool_call_start|>")), CALLS_PYTHON);
    assert_int_equal(call_format_of(span_of("List of tools: <|tool_list_start|>[")), CALLS_PYTHON);
    assert_int_equal(call_format_of(span_of("<|tool_call>call:")), CALLS_GEMMA);
    assert_int_equal(call_format_of(span_of("respond only with <|tool_call|>")), CALLS_GRANITE);
    assert_int_equal(call_format_of(span_of("<|tools_prefix|>")), CALLS_APERTUS);
    assert_int_equal(thought_form_of(span_of("<|inner_prefix|><|inner_suffix|>")), THOUGHTS_INNER);
    assert_int_equal(call_format_of(span_of("<functions></functions> <function_calls>")),
                     CALLS_OLMO);
    assert_int_equal(call_format_of(span_of("<｜tool▁calls▁begin｜>")), CALLS_DEEPSEEK);
    assert_int_equal(call_format_of(span_of("<｜tool▁calls▁begin｜>```json")),
                     CALLS_DEEPSEEK_BLOCK);
    assert_int_equal(call_format_of(span_of("[TOOL_CALLS]")), CALLS_MISTRAL);
    assert_int_equal(call_format_of(span_of("\"parameters\": dictionary of argument name")),
                     CALLS_LLAMA);
    assert_int_equal(call_format_of(span_of("")), CALLS_NONE);
    assert_int_equal(thought_form_of(span_of("</think>")), THOUGHTS_TAGGED);
    assert_int_equal(thought_form_of(span_of("<|channel>thought\n<channel|>")), THOUGHTS_CHANNEL);
    assert_int_equal(thought_form_of(span_of("<|channel>")), THOUGHTS_NONE);
    assert_int_equal(thought_form_of(span_of("follow [THINK]Your thoughts[/THINK]")),
                     THOUGHTS_BRACKETED);
    assert_int_equal(thought_form_of(span_of("[THINK]")), THOUGHTS_NONE);
    assert_int_equal(thought_form_of((struct text_span){0}), THOUGHTS_NONE);
}

/* Marks that begin no call, and then a call. */
static void check_marks(const char *mark, const char *call, enum call_format format, int n,
                        bool slow, bool reads) {
    struct chat_reply r = {.format = format, .channels = format == CALLS_HARMONY};
    struct buffer text = {0};
    for (int i = 0; i < n; i++) buffer_append_string(&text, mark);
    buffer_append_string(&text, call);
    for (size_t i = 1; slow && i < text.size; i++) chat_reply_read(&r, text.data, i, false);
    chat_reply_read(&r, text.data, text.size, true);
    assert_int_equal(r.n_calls, reads);
    assert_int_equal(r.wrong, reads ? n : 64); /* none is read behind so many */
    if (!reads && format != CALLS_HARMONY) assert_int_equal(r.content.size, text.size);
    chat_reply_free(&r);
    buffer_free(&text);
}

/* Each mark that begins no call may be sought its end for in all that follows: that many are. */
static void test_many_marks(void **state) {
    static const struct {
        enum call_format format;
        const char *mark, *call;
    } marks[] = {
        {CALLS_HERMES, "<tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>"},
        {CALLS_HERMES, "<tool_call>{\"\\\"", "\"<tool_call>{\"name\": \"f\"}</tool_call>"},
        {CALLS_MISTRAL, "[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"f\"}]"},
        {CALLS_FUNCTION, "<tool_call>", "<tool_call><function=f></function></tool_call>"},
        {CALLS_PYTHON, "<|tool_call_start|>", "<|tool_call_start|>[f()]<|tool_call_end|>"},
        {CALLS_GEMMA, "<|tool_call>", "<|tool_call>call:f{}<tool_call|>"},
        {CALLS_APERTUS, "<|tools_prefix|>", "<|tools_prefix|>[{\"f\": {}}]<|tools_suffix|>"},
        {CALLS_OLMO, "<function_calls>", "<function_calls>f()</function_calls>"},
        {CALLS_GRANITE, "<|tool_call|>[{\"\\\"", "\"<|tool_call|>[{\"name\": \"f\"}]"},
        {CALLS_HARMONY, "<|channel|>commentary to=functions.f<|message|>x<|end|>",
         "<|channel|>commentary to=functions.f<|message|>{}"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++)
        for (int slow = 0; slow < 2; slow++) {
            check_marks(marks[i].mark, marks[i].call, marks[i].format, 5, slow, true);
            check_marks(marks[i].mark, marks[i].call, marks[i].format, 200, slow, false);
        }
}

/* How often a call was read that holds so many times what may be its end, as it came. */
static int count_tries(enum call_format format, const char *begin, const char *end, int n) {
    struct chat_reply r = {.format = format, .channels = format == CALLS_HARMONY};
    struct buffer text = {0};
    buffer_append_string(&text, begin);
    for (int i = 0; i < n; i++) {
        buffer_append_string(&text, end);
        chat_reply_read(&r, text.data, text.size, false);
    }
    int tries = r.tries;
    assert_int_equal(r.n_calls, 0);
    chat_reply_free(&r);
    buffer_free(&text);
    return tries;
}

/* A call that grows is read again once it has doubled, not with each token. */
static void test_long_calls(void **state) {
    static const struct {
        enum call_format format;
        const char *begin, *end;
    } calls[] = {
        {CALLS_HERMES, "<tool_call>{\"name\": \"", "</tool_call>"},
        {CALLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"", "words "},
        {CALLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": \"", "words "},
        {CALLS_GLM, "<tool_call>f<arg_key>a</arg_key><arg_value>", "</tool_call>"},
        {CALLS_FUNCTION, "<tool_call><function=f><parameter=a>", "</tool_call>"},
        {CALLS_DEEPSEEK, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"",
         "<｜tool▁calls▁end｜>"},
        {CALLS_PYTHON, "<|tool_call_start|>[f(a='", "<|tool_call_end|>"},
        {CALLS_GEMMA, "<|tool_call>call:f{a:<|\"|>", "<tool_call|>"},
        {CALLS_GRANITE, "<|tool_call|>[{\"name\": \"", "words] "},
        {CALLS_OLMO, "<function_calls>f(a='", "</function_calls>"},
        {CALLS_APERTUS, "<|tools_prefix|>[{\"f\": {\"a\": \"", "<|tools_suffix|>"},
        {CALLS_HARMONY, "<|channel|>commentary to=functions.f<|message|>{\"a\": \"", "<|end|>"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) {
        int some = count_tries(calls[i].format, calls[i].begin, calls[i].end, 1000),
            more = count_tries(calls[i].format, calls[i].begin, calls[i].end, 4000);
        assert_in_range(some, 33, 40);
        assert_int_equal(more - some, 2); /* of a text that is four times as long */
    }
}

/* Blanks at the end wait for a call; each is looked at once, also where a mark has begun. */
static void test_blanks(void **state) {
    static const char behind[] = "<tool_call>{\"name\": \"f\"}</tool_call>";
    (void)state;
    struct chat_reply r = {.format = CALLS_HERMES, .thoughts = THOUGHTS_TAGGED};
    struct buffer text = {0};
    buffer_append_string(&text, "words");
    for (int i = 0; i < 100; i++) {
        chat_reply_read(&r, text.data, text.size, false);
        assert_int_equal(r.blanks_end, i ? text.size : 0);
        buffer_append_string(&text, " \n");
    }
    for (size_t i = 0; i < sizeof behind - 1; i++) {
        buffer_append(&text, behind + i, 1);
        chat_reply_read(&r, text.data, text.size, false);
    }
    check_text(&r.content, "words");
    assert_int_equal(r.n_calls, 1);
    buffer_append_string(&text, "\n\n");
    chat_reply_read(&r, text.data, text.size, true);
    check_text(&r.content, "words");
    chat_reply_free(&r);
    buffer_free(&text);

    struct chat_reply plain = {0};
    chat_reply_read(&plain, "\n\n", 2, false);
    check_text(&plain.content, "\n\n"); /* nothing is waited for */
    chat_reply_free(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),      cmocka_unit_test(test_deep_value),
        cmocka_unit_test(test_formats),    cmocka_unit_test(test_many_marks),
        cmocka_unit_test(test_long_calls), cmocka_unit_test(test_blanks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
