/* tests/growth/cases_grammar.c: what an answer must be, as clients write it: JSON Schema, regular
 * expressions, GBNF. */
#include "retro/grammar/gbnf.h"
#include "retro/grammar/quote_source.h"
#include "retro/grammar/regex_parse.h"
#include "retro/grammar/schema.h"
#include "tests/grammars.h"
#include "tests/growth/growth.h"

static struct tokenizer *tokenizer;
static struct vocab vocab;

static void open_vocabulary(void) {
    if (tokenizer) return;
    tokenizer = open_test_tokenizer();
    vocab_open(&vocab, tokenizer, tokenizer_vocab_size(tokenizer), NULL, 0);
}

static void compile(struct grammar_draft *d) {
    struct grammar *g;
    struct error e;
    if (grammar_open(&g, d, &vocab, &e) == STATUS_OK) grammar_release(g);
    grammar_draft_free(d);
}

static void run_schema_of(struct text_span text, bool shallow) {
    struct grammar_draft d = {0};
    struct json_rules rules = {.draft = &d, .shallow = shallow};
    struct schema_options o = {.strict = false};
    struct json *json;
    struct error e;
    int expr = EXPR_NOTHING;
    grammar_draft_open(&d);
    int root = draft_rule_open(&d, "root");
    CHECK(json_parse_any(&json, text, "schema", &e) == STATUS_OK);
    if (schema_compile(&rules, json, &o, &expr, &e)) expr = EXPR_EMPTY;
    draft_rule_set(&d, root, expr);
    json_close(json);
    compile(&d);
}

static void run_schema(struct text_span text) { run_schema_of(text, false); }
/* As in calls, with a rule for each level. */
static void run_levels(struct text_span text) { run_schema_of(text, true); }

static void run_gbnf(struct text_span text) {
    struct grammar_draft d = {0};
    struct error e;
    grammar_draft_open(&d);
    if (gbnf_parse(&d, text, &e)) {
        grammar_draft_free(&d);
        return;
    }
    compile(&d);
}

static int write_chars(void *context, const struct char_range *ranges, int n) {
    return expr_chars(context, ranges, n);
}

static void draft_regex(struct grammar_draft *d, struct text_span text) {
    const struct regex_writer writer = {write_chars, d, true};
    struct error e;
    int expr = EXPR_NOTHING;
    grammar_draft_open(d);
    int root = draft_rule_open(d, "root");
    regex_parse(d, text, &writer, &expr, &e);
    draft_rule_set(d, root, expr);
}

static void run_regex(struct text_span text) {
    struct grammar_draft d = {0};
    draft_regex(&d, text);
    compile(&d);
}

/* An answer is read by it. */
static void run_answer(struct text_span text) {
    static const char answer[] = "aaaaaaa";
    struct grammar_draft d = {0};
    struct grammar *g;
    struct error e;
    enum grammar_match match;
    draft_regex(&d, text);
    CHECK(grammar_open(&g, &d, &vocab, &e) == STATUS_OK);
    CHECK(grammar_try(g, answer, sizeof answer - 1, &match, &e) == STATUS_OK);
    grammar_release(g);
    grammar_draft_free(&d);
}

/* "first" item, item, ... "last" */
static void put_list(struct buffer *out, int n, const char *first, const char *item,
                     const char *last) {
    open_vocabulary();
    buffer_append_string(out, first);
    for (int i = 0; i < n; i++) {
        if (i > 0) buffer_append_string(out, ",");
        buffer_printf(out, item, i, i);
    }
    buffer_append_string(out, last);
}

static void make_enum(int n, struct buffer *out) {
    put_list(out, n, "{\"enum\":[", "\"v%d\"", "]}");
}
static void make_numbers(int n, struct buffer *out) { put_list(out, n, "{\"enum\":[", "%d", "]}"); }
static void make_same(int n, struct buffer *out) { put_list(out, n, "{\"enum\":[", "\"v\"", "]}"); }
static void make_two_enums(int n, struct buffer *out) {
    put_list(out, n, "{\"enum\":[", "\"v%d\"", "],");
    put_list(out, n, "\"allOf\":[{\"enum\":[", "\"v%d\"", "]}]}");
}
static void make_required(int n, struct buffer *out) {
    put_list(out, n, "{\"required\":[", "\"name%d\"", "]}");
}
static void make_properties(int n, struct buffer *out) {
    put_list(out, n, "{\"properties\":{", "\"name%d\":{\"type\":\"string\"}", "}}");
}
static void make_known(int n, struct buffer *out) {
    put_list(out, n, "{\"additionalProperties\":false,\"properties\":{", "\"name%d\":{}", "},");
    put_list(out, n, "\"required\":[", "\"name%d\"", "]}");
}
static void make_one_of(int n, struct buffer *out) {
    put_list(out, n, "{\"oneOf\":[",
             "{\"properties\":{\"kind\":{\"const\":\"k%d\"},\"b\":{\"type\":\"string\"}},"
             "\"required\":[\"b\",\"kind\"]}",
             "]}");
}
static void make_wide_one_of(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "{\"oneOf\":[");
    for (int i = 0; i < 100; i++) {
        buffer_printf(out, "%s{\"enum\":[", i ? "," : "");
        for (int k = 0; k < n; k++) buffer_printf(out, "%s\"v%d-%d\"", k ? "," : "", i, k);
        buffer_append_string(out, "]}");
    }
    buffer_append_string(out, "]}");
}
static void make_all_of(int n, struct buffer *out) {
    put_list(out, n, "{\"allOf\":[", "{\"minLength\":%d}", "]}");
}
static void make_definitions(int n, struct buffer *out) {
    put_list(out, n, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
             "\"d%d\":{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d%d\"}}}", "}}");
}
/* Each definition refers to the next. */
static void make_chain(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < n; i++)
        buffer_printf(out, "\"d%d\":{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d%d\"}}},", i,
                      i + 1);
    buffer_printf(out, "\"d%d\":{}}}", n);
}
static void make_prefixes(int n, struct buffer *out) {
    put_list(out, n, "{\"prefixItems\":[", "{\"const\":%d}", "]}");
}
static void make_pattern(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "{\"type\":\"string\",\"pattern\":\"^");
    for (int i = 0; i < n; i++)
        buffer_printf(out, "%s[a-%c]x{%d}", i ? "|" : "", 'b' + i % 20, 1 + i % 40);
    buffer_append_string(out, "$\"}");
}

static void make_rules(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "root ::= rule0\n");
    for (int i = 0; i < n; i++) buffer_printf(out, "rule%d ::= \"a\" rule%d?\n", i, i + 1);
    buffer_printf(out, "rule%d ::= \"b\"\n", n);
}
/* Each rule is written before those it refers to, so that what it matches is known last. */
static void make_backward_rules(int n, struct buffer *out) {
    open_vocabulary();
    for (int i = 0; i < n; i++)
        buffer_printf(out, "rule%d ::= \"a\" rule%d\n", i * 7919 % n, (i * 7919 + 1) % n);
    buffer_append_string(out, "root ::= rule0 | \"x\"\n");
}
static void make_literal(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "root ::= \"");
    put_times(out, n, "ab\xC3\xA4");
    buffer_append_string(out, "\"");
}
static void make_sets(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "root ::= ");
    for (int i = 0; i < n; i++)
        buffer_printf(out, "[%c%c%c] ", 'a' + i % 26, 'a' + i / 26 % 26, 'A' + i / 676 % 26);
}
static void make_ranges(int n, struct buffer *out) {
    open_vocabulary();
    buffer_append_string(out, "root ::= [");
    for (int i = 0; i < n; i++) buffer_printf(out, "\\U%08X", 0x10000 + i * 2);
    buffer_append_string(out, "]");
}
static void make_alternatives(int n, struct buffer *out) {
    open_vocabulary();
    for (int i = 0; i < n; i++) buffer_printf(out, "%sword%d", i ? "|" : "", i);
}
static void make_repeats(int n, struct buffer *out) {
    open_vocabulary();
    for (int i = 0; i < n; i++) buffer_printf(out, "(ab?){%d,%d}", i % 50, 1000 + i);
}
static void make_options(int n, struct buffer *out) {
    open_vocabulary();
    put_times(out, n, "a?");
}

/* All alternatives are possible until they end. */
static void make_alike(int n, struct buffer *out) {
    open_vocabulary();
    for (int i = 0; i < n; i++) buffer_printf(out, "%saaaaaaa%d", i ? "|" : "", i);
}
static void make_recursive(int n, struct buffer *out) {
    put_list(out, n, "{\"properties\":{", "\"name%d\":{\"$ref\":\"#\"}", "}}");
}

/* Passages that an answer may quote, as long as a client or a document likes. */

static void run_quotes(struct text_span text) {
    static const bool writes[QUOTE_WRITINGS] = {true, true};
    struct quote_source source;
    struct error e;
    quote_source_open(&source, &vocab, writes, 3);
    CHECK(quote_source_add(&source, &(struct passage_text){.text = text}, 0, &e) == STATUS_OK);
    quote_source_index(&source);
    quote_source_close(&source);
}

static void make_words(int n, struct buffer *out) {
    open_vocabulary();
    put_times(out, n, "a b, (c) \"d\"\n");
}
static void make_dashes(int n, struct buffer *out) {
    open_vocabulary();
    put_times(out, n, "--");
    buffer_append_string(out, "a");
    put_times(out, n, "--");
}
static void make_broken(int n, struct buffer *out) {
    open_vocabulary();
    put_times(out, n, "a\xff b \xe4\xb8 ");
}

static const struct growth_case cases[] = {
    {"schema/enum", 400, make_enum, run_schema},
    {"schema/enum-numbers", 500, make_numbers, run_schema},
    {"schema/enum-equal", 500, make_same, run_schema},
    {"schema/enum-twice", 200, make_two_enums, run_schema},
    {"schema/required", 1200, make_required, run_schema},
    {"schema/properties", 25, make_properties, run_schema},
    {"schema/required-properties", 150, make_known, run_schema},
    {"schema/oneOf", 25, make_one_of, run_schema},
    {"schema/oneOf-enums", 5, make_wide_one_of, run_schema},
    {"schema/allOf", 200, make_all_of, run_schema},
    {"schema/definitions", 300, make_definitions, run_schema},
    {"schema/chain", 8, make_chain, run_schema},
    {"schema/prefixItems", 100, make_prefixes, run_schema},
    {"schema/pattern", 20, make_pattern, run_schema},
    {"schema/recursive", 25, make_recursive, run_levels},
    {"gbnf/rules", 100, make_rules, run_gbnf},
    {"gbnf/rules-backward", 300, make_backward_rules, run_gbnf},
    {"gbnf/literal", 800, make_literal, run_gbnf},
    {"gbnf/sets", 1000, make_sets, run_gbnf},
    {"gbnf/ranges", 1000, make_ranges, run_gbnf},
    {"regex/alternatives", 500, make_alternatives, run_regex},
    {"regex/repeats", 500, make_repeats, run_regex},
    {"regex/options", 2000, make_options, run_regex},
    {"regex/alike", 1000, make_alike, run_answer},
    {"quotes/words", 2000, make_words, run_quotes},
    {"quotes/dashes", 20000, make_dashes, run_quotes},
    {"quotes/broken", 2000, make_broken, run_quotes},
};
const struct growth_table grammar_growth = GROWTH_TABLE(cases);
