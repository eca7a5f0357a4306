/* tests/unit/test_grammar.c: grammars of bytes: what they match, what is refused, and the masks of
 * tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "retro/grammar/gbnf.h"
#include "tests/grammars.h"

static struct tokenizer *tokenizer;
static struct vocab vocab;

static enum status open_gbnf(struct grammar **g, const char *text, struct error *e) {
    struct grammar_draft d = {0};
    grammar_draft_open(&d);
    *g = NULL;
    enum status status = gbnf_parse(&d, (struct text_span){text, strlen(text)}, e);
    if (status == STATUS_OK) status = grammar_open(g, &d, &vocab, e);
    grammar_draft_free(&d);
    return status;
}

static struct grammar *make_gbnf(const char *text) {
    struct grammar *g;
    struct error e;
    if (open_gbnf(&g, text, &e)) fail_msg("%s: %s", text, e.text);
    return g;
}

static enum grammar_match match_of(struct grammar *g, const char *text) {
    enum grammar_match match;
    struct error e;
    if (grammar_try(g, text, strlen(text), &match, &e)) fail_msg("%s: %s", text, e.text);
    return match;
}

/* Texts, each behind + (whole), - (no beginning) or ~ (a beginning). */
static void expect_matches(const char *grammar, const char *const *texts) {
    struct grammar *g = make_gbnf(grammar);
    for (; *texts; texts++) {
        enum grammar_match wanted = **texts == '+'   ? MATCH_WHOLE
                                    : **texts == '~' ? MATCH_BEGINNING
                                                     : MATCH_NONE;
        if (match_of(g, *texts + 1) != wanted) fail_msg("%s: %s", grammar, *texts);
    }
    grammar_release(g);
}
#define EXPECT_MATCHES(grammar, ...) \
    expect_matches(grammar, (const char *const[]){__VA_ARGS__, NULL})

static void test_matches(void **state) {
    (void)state;
    EXPECT_MATCHES("root ::= \"a\" | \"bc\"", "+a", "+bc", "~b", "~", "-c", "-ab");
    EXPECT_MATCHES("root ::= [a-c]+ [^x]? # comment\n", "+a", "+abcabcz", "-x", "-ax", "+az",
                   "-azz");
    EXPECT_MATCHES("root ::= (\"x\" | y)* \"!\"\ny ::= \"(\" root \")\"\n", "+!", "+x(x!)!",
                   "~x(x!", "-x)", "~((!)!)");
    EXPECT_MATCHES("root ::= \"a\"{3} [0-9]{2,4} \"b\"{1,}", "+aaa12b", "+aaa1234bbb", "-aaa12345",
                   "~aaa1", "-aaaa");
    EXPECT_MATCHES("root ::= \"a\"{0,100000} \"b\"", "+b", "+aaaaaaaab", "~aaa");
    EXPECT_MATCHES("root ::= ([a-z]{2,40} \"-\"){2,50} \".\"", "~ab-", "+ab-cd-.", "-a-", "-ab-.");
    EXPECT_MATCHES("root ::= \"\\x41\\u00e4\\U0001F600\" .", "~A\xC3\xA4\xF0\x9F\x98\x80",
                   "+A\xC3\xA4\xF0\x9F\x98\x80z", "+A\xC3\xA4\xF0\x9F\x98\x80\xE2\x82\xAC",
                   "~A\xC3\xA4\xF0\x9F\x98\x80\xE2\x82", "-A\xC3\xA5");
    EXPECT_MATCHES("root ::= [\\u0400-\\u04ff\\U00010000-\\U0010ffff]+", "+\xD0\x80", "-\xD4\x80",
                   "+\xF4\x8F\xBF\xBF", "-\xF4\x90", "-\xED\xA0", "~\xF0");
    EXPECT_MATCHES("root ::= a b a\na ::= \"x\"?\nb ::= \"y\" |\n\"z\"", "+y", "+xyx", "+zx",
                   "-xx");
    EXPECT_MATCHES("root ::= \"a\" root \"b\" | \"\"", "+", "+aabb", "~aab", "-b", "-abb");
    EXPECT_MATCHES("root ::= \"a\" root | \"a\"", "+aaaaaaaa");
    EXPECT_MATCHES("root ::= dead | \"a\"\ndead ::= \"b\" dead", "+a", "-b");
}

static void expect_error(const char *grammar, const char *words) {
    struct grammar *g;
    struct error e = {0};
    if (open_gbnf(&g, grammar, &e) == STATUS_OK) fail_msg("no error: %s", grammar);
    if (strstr(e.text, words) == NULL) fail_msg("%s: %s", grammar, e.text);
    assert_null(g);
}

static void test_errors(void **state) {
    (void)state;
    expect_error("", "no rule named root");
    expect_error("a ::= \"b\"", "no rule named root");
    expect_error("root ::= b", "b is used and not defined");
    expect_error("root ::= root \"a\" | \"a\"", "root begins with itself");
    expect_error("root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\"", "begins with itself");
    expect_error("root ::= \"a\" root", "no text matches");
    expect_error("root ::= \"\"", "only the empty text");
    expect_error("root ::= \"a", "line 1, column 12");
    expect_error("root ::= \"a\"\nx ::= [z-a]", "line 2");
    expect_error("root ::= (\"a\"", "\")\"");
    expect_error("root = \"a\"", "\"::=\"");
    expect_error("root ::= \"a\" )", "the end of the line");
    expect_error("root ::= \"a\"\nroot ::= \"b\"", "each rule once");
    expect_error("root ::= <think>", "tokens");
    expect_error("root ::= \"a\"{2,1}", "bounds");
    expect_error("root ::= \"a\"{1000001}", "1000000");
    expect_error("root ::= (\"a\"?){2,1000}", "may be empty");
    expect_error("root ::= \"\\q\"", "backslash");
    expect_error("root ::= \"\\ud800\"", "code point");
}

/* Nested repetitions that would be a thousand million nodes, and rules that begin with each other
 * without end. */
static void test_limits(void **state) {
    (void)state;
    struct buffer text = {0};
    EXPECT_MATCHES("root ::= (((\"a\"{1000} \"b\"){1000}) \"c\"){1000}", "~aaaaaaaa");
    buffer_append_string(&text, "root ::= r0\n");
    for (int i = 0; i < 600; i++) buffer_printf(&text, "r%d ::= r%d \"x\" | \"y\"\n", i, i + 1);
    buffer_append_string(&text, "r600 ::= \"z\"\n");
    expect_error(text.data, "begin with each other");
    buffer_free(&text);
}

/* More ways to read what was written than are followed. */
static void test_ambiguous(void **state) {
    (void)state;
    struct grammar *g = make_gbnf(
        "root ::= a*\na ::= b \"1\" | c \"2\"\nb ::= \"x\" a \"3\" | \"x\" a \"4\" | \"x\"\nc ::= "
        "\"x\" a \"5\" | "
        "\"x\" a \"6\" | \"x\"\n");
    struct error e = {0};
    enum grammar_match match;
    char text[40];
    memset(text, 'x', sizeof text);
    assert_int_equal(grammar_try(g, text, sizeof text, &match, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "ambiguous"));
    assert_int_equal(match_of(g, "x1"), MATCH_WHOLE); /* and it can be used again */
    grammar_release(g);
}

static const char json_grammar[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" "
    "[0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
    "[1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

/* Every mask has exactly the tokens whose text may come next. */
static void test_masks(void **state) {
    (void)state;
    static const char *const grammars[] = {
        json_grammar,
        "root ::= line (\"\\n\" line)*\nline ::= [^\\n]+",
        "root ::= ([a-c]{3,30} [ ,]){2,9} \"\\\"\"",
        "root ::= \"a\" root \"b\" | [c-f\\u00e4]+",
        "root ::= (a | b)+ \"}\"\na ::= \"ab\"* \"c\"\nb ::= \"ab\" a?",
        "root ::= num (\", \" num){0,500}\nnum ::= \"-\"? [0-9]{1,20} (\".\" [0-9]{1,300})?",
        "root ::= [^\\x00-\\x1f]{20,2000} \".\"",
    };
    srand(1);
    for (size_t i = 0; i < ARRAY_COUNT(grammars); i++) {
        struct grammar *g = make_gbnf(grammars[i]);
        for (int round = 0; round < 12; round++) {
            struct test_walk walk = {0};
            if (!walk_grammar(g, tokenizer, 30, true, &walk)) fail_msg("%s", grammars[i]);
            struct error e;
            enum grammar_match match;
            assert_int_equal(grammar_try(g, walk.text.data, walk.text.size, &match, &e), STATUS_OK);
            if (match == MATCH_NONE || (walk.whole && match != MATCH_WHOLE))
                fail_msg("%s: %d", grammars[i], match);
            buffer_free(&walk.text);
        }
        grammar_release(g);
    }
}

static void note(struct matcher *m, int32_t token) {
    struct error e;
    const uint32_t *mask;
    assert_int_equal(matcher_mask(m, &mask, &e), STATUS_OK);
    assert_true(mask_has(mask, token));
    assert_int_equal(matcher_note(m, token, &e), STATUS_OK);
}

/* Control tokens are never text; the end is allowed where the text may end, and nothing else where
 * nothing follows. */
static void test_ends(void **state) {
    (void)state;
    static const struct matcher_begin at_once = {.after = -1, .optional = -1};
    static const int32_t ends[] = {TEST_END};
    struct grammar *g = make_gbnf("root ::= .{1,2}");
    struct matcher m;
    struct error e;
    const uint32_t *mask;
    matcher_open(&m, g, &at_once, tokenizer_vocab_size(tokenizer), ends, 1);
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    for (int32_t id = TEST_END; id < TEST_WORDS; id++) assert_false(mask_has(mask, id));
    note(&m, 'a');
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    assert_true(mask_has(mask, TEST_END) && !mask_has(mask, TEST_THINK) && !m.finished);
    note(&m, 'b');
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    assert_true(mask_has(mask, TEST_END) && m.finished);
    for (int32_t id = 0; id < TEST_END; id++) assert_false(mask_has(mask, id));
    matcher_close(&m);
    grammar_release(g);
}

/* Thoughts are free but for their end, after which the grammar begins; they may be left out where
 * they are optional. */
static void test_thoughts(void **state) {
    (void)state;
    static const struct matcher_begin thinks = {.after = TEST_THINK_END,
                                                .optional = -1,
                                                .free = true},
                                      may = {.after = TEST_THINK_END, .optional = TEST_THINK};
    static const int32_t ends[] = {TEST_END};
    struct grammar *g = make_gbnf("root ::= \"a\"");
    int n = tokenizer_vocab_size(tokenizer);
    struct matcher m;
    struct error e;
    const uint32_t *mask;
    matcher_open(&m, g, &thinks, n, ends, 1);
    note(&m, 'x');
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    assert_false(mask_has(mask, TEST_END));
    note(&m, TEST_THINK_END);
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    assert_false(mask_has(mask, 'x') || mask_has(mask, TEST_THINK));
    note(&m, 'a');
    matcher_close(&m);

    matcher_open(&m, g, &may, n, ends, 1);
    note(&m, 'a');
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    assert_true(m.finished && !mask_has(mask, TEST_THINK));
    matcher_close(&m);
    matcher_open(&m, g, &may, n, ends, 1);
    note(&m, TEST_THINK);
    note(&m, 'z');
    note(&m, TEST_THINK_END);
    note(&m, 'a');
    matcher_close(&m);
    grammar_release(g);
}

/* A memo that is full begins again with what was written. */
static void test_deep_text(void **state) {
    (void)state;
    static const struct matcher_begin at_once = {.after = -1, .optional = -1};
    struct grammar *g = make_gbnf("root ::= \"[\" root* \"]\"");
    struct matcher m;
    enum { DEPTH = 20000 };
    matcher_open(&m, g, &at_once, tokenizer_vocab_size(tokenizer), NULL, 0);
    for (int i = 0; i < DEPTH; i++) note(&m, '[');
    for (int i = 0; i < DEPTH; i++) note(&m, ']');
    const uint32_t *mask;
    struct error e;
    assert_int_equal(matcher_mask(&m, &mask, &e), STATUS_OK);
    assert_true(m.finished);
    matcher_close(&m);
    grammar_release(g);
}

static int open_all(void **state) {
    (void)state;
    tokenizer = open_test_tokenizer();
    open_test_vocab(&vocab, tokenizer);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    vocab_close(&vocab);
    tokenizer_close(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),  cmocka_unit_test(test_errors),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_ambiguous),
        cmocka_unit_test(test_masks),    cmocka_unit_test(test_ends),
        cmocka_unit_test(test_thoughts), cmocka_unit_test(test_deep_text),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
