/* tests/unit/test_schema.c: JSON Schema as a grammar: the cases of the JSON Schema Test Suite
 * (tests/schemas/LICENSE), and what is written under schemas by chance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/json/json_writer.h"
#include "retro/grammar/schema.h"
#include "tests/grammars.h"

static struct tokenizer *tokenizer;
static struct vocab vocab;

static enum status open_schema(struct grammar **g, const struct json *schema, bool strict,
                               struct error *e) {
    struct grammar_draft d = {0};
    struct json_rules rules = {.draft = &d};
    const struct schema_options o = {.strict = strict};
    int root, expr;
    *g = NULL;
    grammar_draft_open(&d);
    root = draft_rule_open(&d, "root");
    enum status status = schema_compile(&rules, schema, &o, &expr, e);
    draft_rule_set(&d, root, expr);
    if (status == STATUS_OK) status = grammar_open(g, &d, &vocab, e);
    grammar_draft_free(&d);
    return status;
}

static enum status open_text(struct grammar **g, const char *schema, bool strict, struct error *e) {
    struct json *json;
    if (json_parse_any(&json, (struct text_span){schema, strlen(schema)}, "schema", e))
        fail_msg("%s", e->text);
    enum status status = open_schema(g, json, strict, e);
    json_close(json);
    return status;
}

static enum grammar_match match_of(struct grammar *g, const struct buffer *text) {
    enum grammar_match match;
    struct error e;
    if (grammar_try(g, text->data, text->size, &match, &e)) fail_msg("%s", e.text);
    return match;
}

/* The test suite. */

struct suite_count {
    int groups, refused, accepted, rejected, narrow, wrong;
};

/* The value compact, with blanks, and on many lines. */
static void write_styles(struct buffer *styles, const struct json *value) {
    struct json_writer w;
    put_begin(&w, &styles[0]);
    put_json(&w, value);
    put_begin_spaced(&w, &styles[1]);
    put_json(&w, value);
    put_begin_indented(&w, &styles[2], 4);
    put_json(&w, value);
}

/* Valid instances that are not written: integers as 1.0, bounded numbers with an exponent, and rare
 * forms of formats.
 */
static bool is_narrow(const struct json *group, const struct json *test) {
    static const char *const narrow[] = {"a float with zero fractional part is an integer",
                                         "boundary point float is valid",
                                         "float zero is valid",
                                         "float one is valid",
                                         "float -2.0 is valid",
                                         "float is valid",
                                         "[0.0] is valid",
                                         "[1.0] is valid"};
    static const char *const formats[] = {"date-time", "time", "ipv6", "email", "hostname", "uri"};
    const char *file = json_word(json_member(group, "file")), *format = strstr(file, "format/");
    for (size_t i = 0; i < ARRAY_COUNT(narrow); i++)
        if (json_text_is(json_member(test, "description"), narrow[i])) return true;
    for (size_t i = 0; format && i < ARRAY_COUNT(formats); i++)
        if (strcmp(format + 7, formats[i]) == 0) return true;
    return false;
}

static void run_case(struct grammar *g, const struct json *group, const struct json *test,
                     struct suite_count *count) {
    struct buffer styles[3] = {{0}};
    bool valid = json_bool(json_member(test, "valid"));
    write_styles(styles, json_member(test, "data"));
    for (int i = 0; i < 3; i++) {
        bool whole = match_of(g, &styles[i]) == MATCH_WHOLE;
        if (whole == valid) continue;
        if (valid && is_narrow(group, test)) {
            count->narrow++;
            break;
        }
        count->wrong++;
        print_error("%s: %s: %s: %.*s is %s\n", json_word(json_member(group, "file")),
                    json_word(json_member(group, "description")),
                    json_word(json_member(test, "description")), (int)styles[i].size,
                    styles[i].data, whole ? "accepted" : "rejected");
        break;
    }
    if (valid)
        count->accepted++;
    else
        count->rejected++;
    for (int i = 0; i < 3; i++) buffer_free(&styles[i]);
}

static void run_group(const struct json *group, struct suite_count *count) {
    struct grammar *g;
    struct error e;
    const struct json *tests = json_member(group, "tests");
    count->groups++;
    if (open_schema(&g, json_member(group, "schema"), false, &e)) {
        count->refused++;
        if (getenv("SHOW_REFUSED"))
            print_message("%s: %s\n", json_word(json_member(group, "description")), e.text);
        /* A schema without any value has no grammar, rightly. */
        bool any = false;
        for (size_t i = 0; i < json_count(tests); i++)
            any = any || json_bool(json_member(json_item(tests, i), "valid"));
        if (strstr(e.text, "no text matches") && any) {
            count->wrong++;
            print_error("%s: %s\n", json_word(json_member(group, "description")), e.text);
        }
        return;
    }
    for (size_t i = 0; i < json_count(tests); i++) run_case(g, group, json_item(tests, i), count);
    grammar_release(g);
}

static void test_suite(void **state) {
    (void)state;
    struct suite_count count = {0};
    struct json *suite;
    struct error e;
    if (json_parse_file(&suite, "tests/schemas/suite.json", &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < json_count(suite); i++) run_group(json_item(suite, i), &count);
    json_close(suite);
    print_message(
        "%d schemas, %d refused; %d valid and %d invalid instances, %d of them not written so\n",
        count.groups, count.refused, count.accepted, count.rejected, count.narrow);
    assert_int_equal(count.wrong, 0);
}

static void expect_refused(const char *schema, const char *words) {
    struct grammar *g;
    struct error e = {0};
    if (open_text(&g, schema, false, &e) == STATUS_OK) fail_msg("no error: %s", schema);
    if (strstr(e.text, words) == NULL) fail_msg("%s: %s", schema, e.text);
}

static void test_refused(void **state) {
    (void)state;
    expect_refused("{\"properties\":{\"a\":{\"uniqueItems\":true}}}",
                   "#/properties/a: the keyword uniqueItems");
    expect_refused("{\"oneOf\":[{\"type\":\"string\"},{\"minLength\":2}]}", "oneOf");
    expect_refused("{\"pattern\":\"(?=a)b\"}", "look-around");
    expect_refused("{\"format\":\"iri\"}", "format");
    expect_refused("{\"$ref\":\"other.json\"}", "$ref");
    expect_refused("{\"$ref\":\"#/$defs/a\"}", "nothing is there");
    expect_refused(
        "{\"$defs\":{\"a\":{\"properties\":{\"b\":{\"$ref\":\"#/$defs/a\"}},\"required\":[\"b\"],"
        "\"type\":\"object\"}},\"$ref\":\"#/$defs/a\"}",
        "no text matches");
    expect_refused("{\"type\":\"strnig\"}", "type: expected");
    expect_refused("false", "no text matches");
}

static void put_list(struct buffer *out, int n, const char *format) {
    for (int i = 0; i < n; i++) {
        if (i > 0) buffer_append_string(out, ",");
        buffer_printf(out, format, i, i);
    }
}

/* Work that grows faster than the schema is refused before it takes long. */
static void test_too_much_work(void **state) {
    struct buffer text = {0};
    (void)state;
    buffer_append_string(&text, "{\"required\":[");
    put_list(&text, 60000, "\"name%d\"");
    buffer_append_string(&text, "]}");
    buffer_append(&text, "", 1);
    expect_refused(text.data, "more than 1024 named members");

    buffer_clear(&text);
    buffer_append_string(&text, "{\"allOf\":[");
    put_list(&text, 60000, "{\"minLength\":%d}");
    buffer_append_string(&text, "]}");
    buffer_append(&text, "", 1);
    expect_refused(text.data, "more than 4000000 comparisons");

    /* Lists of one size are compared one by one. */
    buffer_clear(&text);
    buffer_append_string(&text, "{\"enum\":[");
    put_list(&text, 3000, "[%d]");
    buffer_append_string(&text, "],\"allOf\":[{\"enum\":[");
    put_list(&text, 3000, "[%d]");
    buffer_append_string(&text, "]}]}");
    buffer_append(&text, "", 1);
    expect_refused(text.data, "more than 4000000 comparisons");
    buffer_free(&text);
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
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_much_work),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
