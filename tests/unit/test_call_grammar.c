/* tests/unit/test_call_grammar.c: calls in channels as a grammar. Every text of the grammar is read
 * back as the calls that it has. */
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

static enum status open_guide(struct grammar **g, const char *members, bool answer,
                              struct error *e) {
    struct grammar_draft d = {0};
    struct json_rules rules = {.draft = &d};
    struct buffer text = {0};
    struct json *guide;
    int expr = EXPR_NOTHING;
    *g = NULL;
    buffer_printf(&text, "{\"format\": %d, %s}", CALLS_HARMONY, members);
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
        buffer_printf(&tools, "\"forced\": true, \"tools\": [{\"function\": {\"name\": \"%s\"}}]",
                      names[i]);
        assert_int_equal(open_guide(&g, tools.data, false, &e), STATUS_INVALID);
        assert_non_null(strstr(e.text, "cannot name the tool"));
        buffer_free(&tools);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_channels),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
