/* tests/unit/test_call_grammar.c: calls in channels, between tags, as lists of Python's and as
 * Gemma writes them as grammars. Every text of the grammar is read back as the calls that it has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "retro/chat/call_grammar.h"
#include "retro/chat/chat_reply.h"
#include "tests/grammars.h"

static struct tokenizer *tokenizer;
static struct vocab vocab;

#define TOOLS \
    "\"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", " \
    "\"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"], " \
    "\"additionalProperties\": false}}}, {\"function\": {\"name\": \"get_it\"}}]"
#define THINKS "<|channel|>analysis<|message|>a <b>\n<|end|><|start|>assistant"
#define WORDS "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
#define CALL_F "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}"
#define CALL_IT " to=functions.get_it<|channel|>commentary json<|message|>{}"
#define NEXT "<|end|><|start|>assistant"
#define FINAL "<|channel|>final<|message|>"

static enum status open_format(struct grammar **g, enum call_format format, const char *members,
                               bool answer, struct error *e) {
    struct grammar_draft d = {0};
    struct json_rules rules = {.draft = &d};
    struct buffer text = {0};
    struct json *guide;
    int expr = EXPR_NOTHING;
    *g = NULL;
    buffer_printf(&text, "{\"format\": %d, %s}", format, members);
    assert_int_equal(json_parse(&guide, (struct text_span){text.data, text.size}, "guide", e),
                     STATUS_OK);
    grammar_draft_open(&d);
    int root = draft_rule_open(&d, "root");
    int said = answer ? json_any_object(&rules) : EXPR_NOTHING;
    enum status status = call_grammar_draft(&d, &vocab, guide, said, &expr, e);
    draft_rule_set(&d, root, expr);
    if (status == STATUS_OK) status = grammar_open(g, &d, &vocab, e);
    grammar_draft_free(&d);
    json_close(guide);
    buffer_free(&text);
    return status;
}

static enum status open_guide(struct grammar **g, const char *members, bool answer,
                              struct error *e) {
    return open_format(g, CALLS_HARMONY, members, answer, e);
}

/* Of what is read back. */
static int count_calls(const char *text) {
    struct chat_reply reply = {.channels = true, .format = CALLS_HARMONY};
    chat_reply_read(&reply, text, strlen(text), true);
    int n = reply.n_calls;
    chat_reply_free(&reply);
    return n;
}

static const struct guide_case {
    const char *text;
    bool forced, named, free, answers; /* whether each guide takes it as a whole */
    int calls;
} cases[] = {
    {CALL_F, true, true, true, true, 1},
    {CALL_F "<|call|>", true, true, true, true, 1},
    {THINKS CALL_F, true, true, true, true, 1},
    {THINKS THINKS CALL_F, false, false, true, true, 1},
    {WORDS CALL_F, false, false, true, true, 1},
    {CALL_IT, true, false, true, true, 1},
    {CALL_IT NEXT CALL_F NEXT CALL_IT "<|call|>", true, false, true, true, 3},
    {CALL_F NEXT CALL_F, true, false, true, true, 2},
    {FINAL "Any \xC3\xA4 text.", false, false, true, false, 0},
    {FINAL "{\"x\": [1]}", false, false, true, true, 0},
    {THINKS WORDS FINAL "{}", false, false, true, true, 0},
    {"Words.", false, false, false, false, 0},
    {"<|channel|>commentary to=functions.g<|message|>{}", false, false, false, false, 1},
    {"<|channel|>commentary to=functions.f<|message|>{\"a\": \"b\"}", false, false, false, false,
     1},
    {"<|channel|>commentary to=python<|message|>{\"a\": 1}", false, false, false, false, 0},
};

static bool allows_any(const uint32_t *mask) {
    uint32_t any = 0;
    for (int i = 0; i < (tokenizer_vocab_size(tokenizer) + 31) / 32; i++) any |= mask[i];
    return any != 0;
}

/* Token by token; whether the end may follow. */
static bool takes(struct grammar *g, const char *text) {
    static const struct matcher_begin at_once = {.after = -1, .optional = -1};
    static const int32_t ends[] = {TEST_END};
    struct matcher m;
    struct tokens ids = {0};
    struct error e;
    const uint32_t *mask;
    bool all = true;
    assert_int_equal(
        tokenizer_encode(tokenizer, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &ids, &e),
        STATUS_OK);
    tokens_append(&ids, TEST_END, 0);
    matcher_open(&m, g, &at_once, tokenizer_vocab_size(tokenizer), ends, 1);
    for (int i = 0; i < ids.n && all; i++) {
        int32_t id = ids.ids[i];
        assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
        assert_true(allows_any(mask)); /* every text that is begun can be ended */
        all = mask[id / 32] >> id % 32 & 1;
        if (all && i + 1 < ids.n) assert_int_equal(matcher_note(&m, id, &e), STATUS_OK);
    }
    matcher_close(&m);
    tokens_free(&ids);
    return all;
}

static void check_guide(struct grammar *g, const char *text, bool whole) {
    if (takes(g, text) != whole) fail_msg("%s: %s", text, whole ? "refused" : "taken");
}

static void test_channels(void **state) {
    (void)state;
    struct grammar *forced, *named, *strict, *answers;
    struct error e;
    assert_int_equal(open_guide(&forced, TOOLS ", \"forced\": true", false, &e), STATUS_OK);
    assert_int_equal(open_guide(&named, TOOLS ", \"forced\": true, \"name\": \"f\"", false, &e),
                     STATUS_OK);
    assert_int_equal(open_guide(&strict, TOOLS ", \"forced\": false", false, &e), STATUS_OK);
    assert_int_equal(open_guide(&answers, TOOLS ", \"forced\": true", true, &e), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        check_guide(forced, cases[i].text, cases[i].forced);
        check_guide(named, cases[i].text, cases[i].named);
        check_guide(strict, cases[i].text, cases[i].free);
        check_guide(answers, cases[i].text, cases[i].answers);
        assert_int_equal(count_calls(cases[i].text), cases[i].calls);
    }
    grammar_release(forced);
    grammar_release(named);
    grammar_release(strict);
    grammar_release(answers);
}

/* A name that a header cannot hold would be read back as another. */
static void test_names(void **state) {
    (void)state;
    static const char *const names[] = {"a b", "f<|message|>", ""};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct grammar *g;
        struct error e;
        struct buffer tools = {0};
        buffer_printf(&tools, "\"forced\": true, \"tools\": [{\"function\": {\"name\": \"%s\"%s}}]",
                      names[i], i > 0 ? ", \"parameters\": {\"type\": \"object\"}" : "");
        assert_int_equal(open_guide(&g, tools.data, false, &e), STATUS_INVALID);
        assert_non_null(strstr(e.text, "cannot name the tool"));
        buffer_free(&tools);
    }
}

#define ALL_KINDS \
    "\"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", " \
    "\"properties\": {\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}, " \
    "\"b\": {\"type\": \"boolean\"}}, \"required\": [\"a\"], " \
    "\"additionalProperties\": false}}}, {\"function\": {\"name\": \"g\", \"parameters\": " \
    "{\"type\": \"object\", \"properties\": {}}}}]"
#define CALLS "<｜tool▁calls▁begin｜>"
#define CALLS_ENDED "<｜tool▁calls▁end｜>"
#define ONE "<｜tool▁call▁begin｜>"
#define ONE_ENDED "<｜tool▁call▁end｜>"
#define SEPARATED "<｜tool▁sep｜>"
#define TEXT(words) "<|\"|>" words "<|\"|>"

static const struct list_case {
    enum call_format format;
    const char *text, *arguments; /* of the first call; NULL: the grammar refuses the text */
    int calls;
    bool named; /* also where f alone may be called */
} list_cases[] = {
    {CALLS_MINIMAX,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n<parameter "
     "name=\"s\">x <y> \"z\"\n1</parameter>\n</invoke>\n</minimax:tool_call>",
     "{\"a\": 1, \"s\": \"x <y> \\\"z\\\"\\n1\"}", 1, true},
    {CALLS_MINIMAX,
     "<minimax:tool_call>\n<invoke name=\"g\">\n</invoke>\n<invoke name=\"f\">\n<parameter "
     "name=\"a\">2</parameter>\n</invoke>\n</minimax:tool_call>",
     "{}", 2, false},
    {CALLS_MINIMAX,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
     "name=\"a\">x</parameter>\n</invoke>\n</minimax:tool_call>",
     NULL, 0, false},
    {CALLS_MINIMAX, "<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>",
     NULL, 0, false},
    {CALLS_DEEPSEEK, CALLS ONE "f" SEPARATED "{\"a\": 1, \"b\": true}" ONE_ENDED CALLS_ENDED,
     "{\"a\": 1, \"b\": true}", 1, true},
    {CALLS_DEEPSEEK,
     CALLS ONE "f" SEPARATED "{\"a\": 1}" ONE_ENDED ONE "g" SEPARATED "{}" ONE_ENDED CALLS_ENDED,
     "{\"a\": 1}", 2, false},
    {CALLS_DEEPSEEK, CALLS ONE "h" SEPARATED "{}" ONE_ENDED CALLS_ENDED, NULL, 0, false},
    {CALLS_DEEPSEEK, CALLS CALLS_ENDED, NULL, 0, false},
    {CALLS_DEEPSEEK_BLOCK,
     CALLS ONE "function" SEPARATED "f\n```json\n{\"a\": 1, \"s\": \"```\"}\n```" ONE_ENDED "\n" ONE
               "function" SEPARATED "g\n```json\n{}\n```" ONE_ENDED CALLS_ENDED,
     "{\"a\": 1, \"s\": \"```\"}", 2, false},
    {CALLS_DEEPSEEK_BLOCK, CALLS ONE "f" SEPARATED "{\"a\": 1}" ONE_ENDED CALLS_ENDED, NULL, 0,
     false},
    {CALLS_PYTHON,
     "<|tool_call_start|>[f(a=1, s=\"\\u00e4\\/\\ud83d\\ude42 'x'\", "
     "b=True)]<|tool_call_end|>",
     "{\"a\": 1, \"s\": \"ä/🙂 'x'\", \"b\": true}", 1, true},
    {CALLS_PYTHON, "<|tool_call_start|>[g(), f(a=-7, b=false)]<|tool_call_end|>", "{}", 2, false},
    {CALLS_PYTHON, "<|tool_call_start|>[f(b=True, a=1)]<|tool_call_end|>", NULL, 0, false},
    {CALLS_PYTHON, "<|tool_call_start|>[f(a=1.5)]<|tool_call_end|>", NULL, 0, false},
    {CALLS_PYTHON, "<|tool_call_start|>[f(s='x', a=1)]<|tool_call_end|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:f{a:1,s:" TEXT("x |<y>, \"z\"\n{1}|") ",b:true}<tool_call|>",
     "{\"a\": 1, \"s\": \"x |<y>, \\\"z\\\"\\n{1}|\", \"b\": true}", 1, true},
    {CALLS_GEMMA,
     "<|tool_call>call:g{any:" TEXT("v") ",n:[{},-1.5e3,null]}<tool_call|>"
                                         "<|tool_call>call:f{b:false,a:-7}<tool_call|>",
     "{\"any\": \"v\", \"n\": [{}, -1.5e3, null]}", 2, false},
    {CALLS_GEMMA, "<|tool_call>call:f{s:" TEXT("x") "}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:f{a:1,c:2}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:f{a:1.5}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:f{a: 1}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:f{a:1,s:\"x\"}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:f{a:1,s:" TEXT("x|>y") "}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:g{:1}<tool_call|>", NULL, 0, false},
    {CALLS_GEMMA, "<|tool_call>call:h{}<tool_call|>", NULL, 0, false},
    {CALLS_GRANITE,
     "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1, \"s\": \"]<|tool_call|>\"}}]",
     "{\"a\": 1, \"s\": \"]<|tool_call|>\"}", 1, true},
    {CALLS_GRANITE,
     "<|tool_call|> [{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": "
     "{\"a\": 2}}]",
     "{}", 2, false},
    {CALLS_GRANITE, "<|tool_call|>[]", NULL, 0, false},
    {CALLS_OLMO, "<function_calls>f(a=1, s=\"x'\\n\", b=true)</function_calls>",
     "{\"a\": 1, \"s\": \"x'\\n\", \"b\": true}", 1, true},
    {CALLS_OLMO, "<function_calls>g()\nf(a=-7)</function_calls>", "{}", 2, false},
    {CALLS_OLMO, "<function_calls>[f(a=1)]</function_calls>", NULL, 0, false},
    {CALLS_OLMO, "<function_calls>f(a=1.5)</function_calls>", NULL, 0, false},
    {CALLS_OLMO, "<function_calls></function_calls>", NULL, 0, false},
    {CALLS_APERTUS,
     "<|tools_prefix|>[{\"f\": {\"a\": 1, \"s\": \"<|tools_suffix|>\"}}]<|tools_suffix|>",
     "{\"a\": 1, \"s\": \"<|tools_suffix|>\"}", 1, true},
    {CALLS_APERTUS, "<|tools_prefix|>[{\"g\": {}}, {\"f\": {\"a\": 2}}]<|tools_suffix|>", "{}", 2,
     false},
    {CALLS_APERTUS, "<|tools_prefix|>[{\"f\": {}}]<|tools_suffix|>", NULL, 0, false},
    {CALLS_APERTUS, "<|tools_prefix|>[{\"h\": {}}]<|tools_suffix|>", NULL, 0, false},
    {CALLS_APERTUS, "<|tools_prefix|>[]<|tools_suffix|>", NULL, 0, false},
    {CALLS_GRANITE, "<|tool_call|>{\"name\": \"g\", \"arguments\": {}}", NULL, 0, false},
    {CALLS_GRANITE, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}]", NULL, 0,
     false},
};

static void check_reading(const struct list_case *list_case) {
    struct chat_reply reply = {.format = list_case->format};
    struct json *guide;
    struct error e;
    static const char text[] = "{" ALL_KINDS "}";
    assert_int_equal(json_parse(&guide, (struct text_span){text, sizeof text - 1}, "guide", &e),
                     STATUS_OK);
    reply.tools = json_member(guide, "tools");
    chat_reply_read(&reply, list_case->text, strlen(list_case->text), true);
    assert_int_equal(reply.n_calls, list_case->calls);
    assert_string_equal(reply.calls[0].arguments.data, list_case->arguments);
    chat_reply_free(&reply);
    json_close(guide);
}

static void test_lists(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(list_cases); i++) {
        const struct list_case *list_case = &list_cases[i];
        struct grammar *any, *named, *one;
        struct error e;
        assert_int_equal(
            open_format(&any, list_case->format, ALL_KINDS ", \"forced\": true", false, &e),
            STATUS_OK);
        assert_int_equal(open_format(&named, list_case->format,
                                     ALL_KINDS ", \"forced\": true, \"name\": \"f\"", false, &e),
                         STATUS_OK);
        assert_int_equal(open_format(&one, list_case->format,
                                     ALL_KINDS ", \"forced\": true, \"one\": true", false, &e),
                         STATUS_OK);
        check_guide(any, list_case->text, list_case->arguments != NULL);
        check_guide(one, list_case->text, list_case->calls == 1);
        check_guide(named, list_case->text, list_case->named);
        if (list_case->arguments) check_reading(list_case);
        grammar_release(any);
        grammar_release(one);
        grammar_release(named);
    }
}

/* A name that Python's lists cannot have, of a tool or of a parameter, and keywords that no format
 * holds. */
#define ENUM_OF(text) \
    "\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\", " \
    "\"enum\": [\"" text "\"]}}}"
#define VALUES_OF(keywords) \
    "\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": " \
    "{\"type\": [\"string\", \"null\"], " keywords "}}, \"required\": [\"a\"]}"
static void test_list_refusals(void **state) {
    (void)state;
    static const struct {
        enum call_format format;
        const char *tool, *words;
    } refused[] = {
        {CALLS_PYTHON, "\"name\": \"a b\"", "cannot name the tool \"a b\""},
        {CALLS_PYTHON, "\"name\": \"f\", \"parameters\": {\"properties\": {\"a=\": {}}}",
         "cannot name the parameter \"a=\""},
        {CALLS_PYTHON, "\"name\": \"f\", \"parameters\": {\"anyOf\": []}",
         "the keyword anyOf cannot be held to"},
        {CALLS_PYTHON, "\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"not\": {}}}}",
         "parameters of f: #/properties/a: "},
        {CALLS_MINIMAX,
         "\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\", "
         "\"pattern\": \"x\"}}}",
         "the keyword pattern cannot be held to"},
        {CALLS_MINIMAX, "\"name\": \"a\\\">b\"", "cannot name the tool \"a\">b\""},
        {CALLS_FUNCTION, "\"name\": \"a>b\"", "cannot name the tool \"a>b\""},
        {CALLS_GLM, "\"name\": \"a<b\"", "cannot name the tool \"a<b\""},
        {CALLS_GLM, "\"name\": \"\"", "cannot name the tool \"\""},
        {CALLS_FUNCTION, "\"name\": \"a\\n\"", "cannot name the tool \"a\n\""},
        {CALLS_DEEPSEEK, "\"name\": \" a\"", "cannot name the tool \" a\""},
        {CALLS_DEEPSEEK_BLOCK, "\"name\": \"a" SEPARATED "\"", "cannot name the tool"},
        {CALLS_GLM, "\"name\": \"f\", \"parameters\": {\"properties\": {\"a</arg_key>\": {}}}",
         "cannot name the parameter \"a</arg_key>\""},
        {CALLS_FUNCTION, "\"name\": \"f\", \"parameters\": {\"properties\": {\" a\": {}}}",
         "cannot name the parameter \" a\""},
        {CALLS_MINIMAX, ENUM_OF("\\na"), "cannot have the value \"\na\""},
        {CALLS_GLM, ENUM_OF("a</arg_value>"), "cannot have the value \"a</arg_value>\""},
        {CALLS_FUNCTION, ENUM_OF("a</parameter>b"), "cannot have the value \"a</parameter>b\""},
        {CALLS_GEMMA, "\"name\": \"a{b\"", "cannot name the tool \"a{b\""},
        {CALLS_GEMMA, ENUM_OF("a|>b"), "cannot hold the text \"a|>b\""},
        {CALLS_GEMMA,
         "\"name\": \"f\", \"parameters\": {\"properties\": {\"a|>\": {}}, \"type\": \"object\"}",
         "cannot hold the text \"a|>\""},
        {CALLS_GEMMA,
         "\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\", "
         "\"pattern\": \"a[|]b\"}}}",
         "cannot hold the text \"|\""},
        {CALLS_GEMMA,
         "\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\", "
         "\"format\": \"quote\"}}}",
         "hold no quotes"},
        {CALLS_FUNCTION, "\"name\": \"f\", \"parameters\": \"x\"",
         "parameters of f: expected an object, found"},
        {CALLS_PYTHON, "\"name\": \"f\", \"parameters\": [{}]",
         "parameters of f: expected an object, found"},
        {CALLS_GLM, "\"name\": \"f\", \"parameters\": {\"type\": \"string\"}",
         "parameters of f: type: expected \"object\", found"},
        {CALLS_MINIMAX, "\"name\": \"f\", \"parameters\": {\"properties\": [\"a\"]}",
         "parameters of f: properties: expected an object, found"},
        {CALLS_GLM, "\"name\": \"f\", \"parameters\": {\"required\": \"a\"}",
         "parameters of f: required: expected an array, found"},
        {CALLS_PYTHON, "\"name\": \"f\", \"parameters\": {\"required\": [\"a\"]}",
         "parameters of f: required: properties has no \"a\""},
        {CALLS_GLM, VALUES_OF("\"enum\": [\"null\", null]"),
         "cannot have the value \"null\": where null may stand"},
        {CALLS_MINIMAX, VALUES_OF("\"enum\": [null, \"None\"]"), "cannot have the value \"None\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) {
        struct grammar *g;
        struct error e;
        struct buffer tools = {0};
        buffer_printf(&tools, "\"forced\": true, \"tools\": [{\"function\": {%s}}]",
                      refused[i].tool);
        assert_int_not_equal(open_format(&g, refused[i].format, tools.data, false, &e), STATUS_OK);
        if (strstr(e.text, refused[i].words) == NULL)
            fail_msg("expected \"%s\" in: %s", refused[i].words, e.text);
        buffer_free(&tools);
    }
}

/* References begin at the tool's parameters, wherever a format cuts these. */
static void test_references(void **state) {
    static const char members[] =
        "\"forced\": true, \"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\", \"properties\": {\"a\": {\"$ref\": \"#/$defs/some\"}}, \"required\": [\"a\"], "
        "\"$defs\": {\"some\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/one\"}, "
        "\"minItems\": 1}, \"one\": {\"enum\": [7]}}}}}]";
    static const struct {
        enum call_format format;
        const char *before, *behind;
    } around[] = {
        {CALLS_FUNCTION, "<tool_call>\n<function=f>\n<parameter=a>\n",
         "\n</parameter>\n</function>\n</tool_call>"},
        {CALLS_GLM, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>",
         "</arg_value>\n</tool_call>"},
        {CALLS_MINIMAX, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">",
         "</parameter>\n</invoke>\n</minimax:tool_call>"},
        {CALLS_PYTHON, "<|tool_call_start|>[f(a=", ")]<|tool_call_end|>"},
        {CALLS_GEMMA, "<|tool_call>call:f{a:", "}<tool_call|>"},
    };
    static const struct {
        const char *value;
        bool allowed;
    } values[] = {{"[7,7]", true}, {"[]", false}, {"[8]", false}, {"7", false}};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(around); i++) {
        struct grammar *g;
        struct error e;
        if (open_format(&g, around[i].format, members, false, &e)) fail_msg("%s", e.text);
        for (size_t j = 0; j < ARRAY_COUNT(values); j++) {
            struct buffer text = {0};
            buffer_printf(&text, "%s%s%s", around[i].before, values[j].value, around[i].behind);
            check_guide(g, text.data, values[j].allowed);
            buffer_free(&text);
        }
        grammar_release(g);
    }
}

/* A call of so many levels below its parameters, which are the first. */
static void put_levels(struct buffer *text, const char *open, const char *close, int n) {
    buffer_append_string(text, "{\"name\": \"f\", \"parameters\": {");
    for (int i = 1; i < n; i++) buffer_append_string(text, open);
    for (int i = 1; i < n; i++) buffer_append_string(text, close);
    buffer_append_string(text, "}}");
}

/* Schemas that refer to themselves allow no call that is too deep to be read. */
static void test_levels(void **state) {
    static const char members[] =
        "\"forced\": true, \"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}, \"l\": {\"$ref\": "
        "\"#/$defs/list\"}, "
        "\"any\": {}}, \"additionalProperties\": false, \"$defs\": {\"list\": {\"type\": "
        "\"array\", "
        "\"items\": {\"anyOf\": [{\"$ref\": \"#/$defs/list\"}, {\"$ref\": \"#\"}]}}}}}}]";
    static const struct {
        const char *open, *close;
        int levels; /* of one of them */
    } nested[] = {{"\"a\": {", "}", 1}, {"\"l\": [[{", "}]]", 3}, {"\"a\": {\"any\": {", "}}", 2}};
    (void)state;
    struct grammar *g;
    struct error e;
    if (open_format(&g, CALLS_LLAMA, members, false, &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < ARRAY_COUNT(nested); i++) {
        int most = 1 + (JSON_SHALLOW - 1) / nested[i].levels;
        struct buffer text = {0}, deeper = {0};
        struct chat_reply reply = {.format = CALLS_LLAMA};
        put_levels(&text, nested[i].open, nested[i].close, most);
        put_levels(&deeper, nested[i].open, nested[i].close, most + 1);
        check_guide(g, text.data, true);
        check_guide(g, deeper.data, false);
        chat_reply_read(&reply, text.data, text.size, true);
        assert_int_equal(reply.n_calls, 1);
        chat_reply_free(&reply);
        buffer_free(&text);
        buffer_free(&deeper);
    }
    grammar_release(g);
}

/* Everything that a schema says of values, in the notation with marks. */
static void test_gemma_values(void **state) {
    static const char members[] =
        "\"forced\": true, \"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\", \"properties\": {\"a b\": {\"enum\": [\"x\", 2, [\"y\", {\"k l\": true}], "
        "null]}, "
        "\"p\": {\"type\": \"string\", \"pattern\": \"^[a|]+$\"}, \"d\": {\"format\": \"date\", "
        "\"type\": \"string\"}, \"l\": {\"type\": \"string\", \"maxLength\": 2}, \"o\": {\"type\": "
        "\"object\", \"patternProperties\": {\"^x\": {\"type\": \"integer\"}}, "
        "\"additionalProperties\": false}}}}}]";
    static const struct {
        const char *inside, *arguments; /* NULL: the grammar refuses them */
    } values[] = {
        {"", "{}"},
        {TEXT("a b") ":" TEXT("x"), "{\"a b\": \"x\"}"},
        {TEXT("a b") ":[" TEXT("y") ",{" TEXT("k l") ":true}]",
         "{\"a b\": [\"y\", {\"k l\": true}]}"},
        {TEXT("a b") ":null,p:" TEXT("aa"), "{\"a b\": null, \"p\": \"aa\"}"},
        {"d:" TEXT("2026-11-28") ",l:" TEXT("\xC3\xA4\""),
         "{\"d\": \"2026-11-28\", \"l\": \"\xC3\xA4\\\"\"}"},
        {"o:{" TEXT("xy") ":1},other-1:{z:" TEXT("") "}",
         "{\"o\": {\"xy\": 1}, \"other-1\": {\"z\": \"\"}}"},
        {"a b:" TEXT("x"), NULL},
        {TEXT("a b") ":3", NULL},
        {"p:" TEXT("a|"), NULL}, /* within the pattern, but | might end a mark */
        {"p:" TEXT("b"), NULL},
        {"d:" TEXT("2026-13-28"), NULL},
        {"l:" TEXT("abc"), NULL},
        {"o:{" TEXT("y") ":1}", NULL},
        {"oth er:1", NULL},
        {"p:1", NULL},
    };
    (void)state;
    struct grammar *g;
    struct error e;
    if (open_format(&g, CALLS_GEMMA, members, false, &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        struct chat_reply reply = {.format = CALLS_GEMMA};
        struct buffer text = {0};
        buffer_printf(&text, "<|tool_call>call:f{%s}<tool_call|>", values[i].inside);
        check_guide(g, text.data, values[i].arguments != NULL);
        chat_reply_read(&reply, text.data, text.size, true);
        if (values[i].arguments) {
            assert_int_equal(reply.n_calls, 1);
            assert_string_equal(reply.calls[0].arguments.data, values[i].arguments);
        }
        chat_reply_free(&reply);
        buffer_free(&text);
    }
    grammar_release(g);
}

/* Between tags: null where it is among the values, a text else; read back as it is allowed. */
static void test_null(void **state) {
    static const struct {
        const char *keywords, *value, *arguments; /* NULL: the grammar refuses the value */
    } nulls[] = {
        {"\"enum\": [\"a\", null]", "null", "{\"a\": null}"},
        {"\"enum\": [\"a\", null]", "a", "{\"a\": \"a\"}"},
        {"\"enum\": [\"a\", null]", "b", NULL},
        {"\"enum\": [\"a\", \"null\"]", "null", "{\"a\": \"null\"}"},
        {"\"const\": null", "null", "{\"a\": null}"},
        {"\"const\": null", "a", NULL},
        {"\"const\": \"None\"", "None", "{\"a\": \"None\"}"},
        {"\"title\": \"any\"", "null", "{\"a\": null}"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(nulls); i++) {
        struct chat_reply reply = {.format = CALLS_GLM};
        struct buffer members = {0}, text = {0};
        struct grammar *g;
        struct json *guide;
        struct error e;
        buffer_printf(&members,
                      "{\"forced\": true, \"tools\": [{\"function\": {" VALUES_OF("%s") "}}]}",
                      nulls[i].keywords);
        buffer_printf(&text,
                      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
                      nulls[i].value);
        members.data[members.size - 1] = '\0';
        if (open_format(&g, CALLS_GLM, members.data + 1, false, &e)) fail_msg("%s", e.text);
        members.data[members.size - 1] = '}';
        check_guide(g, text.data, nulls[i].arguments != NULL);
        assert_int_equal(
            json_parse(&guide, (struct text_span){members.data, members.size}, "guide", &e),
            STATUS_OK);
        reply.tools = json_member(guide, "tools");
        chat_reply_read(&reply, text.data, text.size, true);
        assert_int_equal(reply.n_calls, 1);
        if (nulls[i].arguments)
            assert_string_equal(reply.calls[0].arguments.data, nulls[i].arguments);
        chat_reply_free(&reply);
        json_close(guide);
        grammar_release(g);
        buffer_free(&members);
        buffer_free(&text);
    }
}

/* Lists within each other, at the end of a call's arguments that are held to nothing. */
static void check_depth(enum call_format format, const char *before, const char *behind, int levels,
                        bool allowed) {
    static const char members[] =
        "\"forced\": true, \"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": "
        "{\"type\": \"object\", \"properties\": {\"a\": {}}}}}]";
    struct grammar *g;
    struct error e;
    struct buffer text = {0};
    struct chat_reply reply = {.format = format, .channels = format == CALLS_HARMONY};
    if (open_format(&g, format, members, false, &e)) fail_msg("%s", e.text);
    buffer_append_string(&text, before);
    for (int i = 0; i < levels; i++) buffer_append_string(&text, "[");
    buffer_append_string(&text, "1");
    for (int i = 0; i < levels; i++) buffer_append_string(&text, "]");
    buffer_append_string(&text, behind);
    assert_int_equal(takes(g, text.data), allowed);
    chat_reply_read(&reply, text.data, text.size, true);
    if (allowed) assert_int_equal(reply.n_calls, 1);
    chat_reply_free(&reply);
    buffer_free(&text);
    grammar_release(g);
}

/* Every call that is allowed is read: none is so deep that it becomes text. */
static void test_depths(void **state) {
    static const struct {
        enum call_format format;
        const char *before, *behind;
        int around; /* levels around the value: arguments that are one object are the first */
    } depths[] = {
        {CALLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "}}</tool_call>", 1},
        {CALLS_GEMMA, "<|tool_call>call:f{a:", "}<tool_call|>", 1},
        {CALLS_PYTHON, "<|tool_call_start|>[f(a=", ")]<|tool_call_end|>", 0},
        {CALLS_GLM, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>",
         0},
        {CALLS_HARMONY, "<|channel|>commentary to=functions.f<|message|>{\"a\":", "}", 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(depths); i++) {
        const char *before = depths[i].before, *behind = depths[i].behind;
        check_depth(depths[i].format, before, behind, 1, true);
        int most = JSON_SHALLOW - depths[i].around;
        check_depth(depths[i].format, before, behind, most, true);
        check_depth(depths[i].format, before, behind, most + 1, false);
    }
}

static int open_vocab(void **state) {
    (void)state;
    tokenizer = open_test_tokenizer();
    vocab_open(&vocab, tokenizer, tokenizer_vocab_size(tokenizer), NULL, 0);
    return 0;
}

static int close_vocab(void **state) {
    (void)state;
    vocab_close(&vocab);
    tokenizer_close(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels), cmocka_unit_test(test_names),
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_list_refusals),
        cmocka_unit_test(test_null),     cmocka_unit_test(test_references),
        cmocka_unit_test(test_levels),   cmocka_unit_test(test_gemma_values),
        cmocka_unit_test(test_depths)};
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
