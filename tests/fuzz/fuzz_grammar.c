/* tests/fuzz/fuzz_grammar.c: bytes as a grammar: GBNF, or behind {, [, true and false a JSON
 * Schema, behind @ one of values in the notation with marks, or behind / a regular expression.
 * Either there is an error with words, or some tokens are written under it, each of a mask, and
 * what is written is a beginning of a text. */
#include <string.h>

#include "retro/grammar/gbnf.h"
#include "retro/grammar/regex_parse.h"
#include "retro/grammar/schema.h"
#include "tests/grammars.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tokenizer *tokenizer;
static struct vocab vocab;

static int write_chars(void *context, const struct char_range *ranges, int n) {
    return expr_chars(context, ranges, n);
}

static enum status draft_regex(struct grammar_draft *d, struct text_span text, struct error *e) {
    const struct regex_writer writer = {write_chars, d, text.size % 2 == 0};
    int root = draft_rule_open(d, "root"), expr;
    enum status status = regex_parse(d, text, &writer, &expr, e);
    draft_rule_set(d, root, expr);
    return status;
}

static enum status draft_schema(struct grammar_draft *d, struct text_span text, bool raw,
                                struct error *e) {
    struct json_rules rules = {.draft = d, .raw = raw};
    const struct schema_options o = {.strict = text.size % 2 == 0};
    int root = draft_rule_open(d, "root"), expr = EXPR_NOTHING;
    struct json *json;
    if (json_parse_any(&json, text, "schema", e)) return e->status;
    if (raw) rules.mark = expr_of_mark(d, &vocab, MARK_GEMMA_TEXT);
    enum status status = schema_compile(&rules, json, &o, &expr, e);
    draft_rule_set(d, root, expr);
    json_close(json);
    return status;
}

static enum status draft_any(struct grammar_draft *d, struct text_span text, struct error *e) {
    char first = text.size > 0 ? text.text[0] : ' ';
    if (first == '/') return draft_regex(d, (struct text_span){text.text + 1, text.size - 1}, e);
    if (first == '{' || first == '[') return draft_schema(d, text, false, e);
    if (first == '@')
        return draft_schema(d, (struct text_span){text.text + 1, text.size - 1}, true, e);
    return gbnf_parse(d, text, e);
}

/* Tokens that the input's bytes choose among those allowed. */
static void write_tokens(struct grammar *g, const uint8_t *data, size_t size) {
    static const struct matcher_begin at_once = {.after = -1, .optional = -1};
    struct matcher m;
    struct error e = {0};
    struct buffer text = {0};
    enum grammar_match match;
    const uint32_t *mask;
    int n = tokenizer_vocab_size(tokenizer);
    matcher_open(&m, g, &at_once, n, NULL, 0);
    for (size_t i = 0; i < 12 && matcher_mask(&m, &mask, &e) == STATUS_OK && !m.finished; i++) {
        int32_t token = data[size - 1 - i % size] * 7 % n, tried = 0;
        while (tried < n && !mask_has(mask, token)) {
            token = (token + 1) % n;
            tried++;
        }
        if (tried == n) break;
        tokenizer_piece(tokenizer, token, &text);
        if (matcher_note(&m, token, &e)) break;
    }
    if (e.status == STATUS_OK && grammar_try(g, text.data, text.size, &match, &e) == STATUS_OK)
        CHECK(match != MATCH_NONE);
    matcher_close(&m);
    buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct grammar_draft d = {0};
    struct grammar *g = NULL;
    struct error e = {0};
    if (tokenizer == NULL) {
        tokenizer = open_test_tokenizer();
        open_test_vocab(&vocab, tokenizer);
    }
    if (size == 0 || size > 4096) return 0;
    grammar_draft_open(&d);
    enum status status = draft_any(&d, (struct text_span){(const char *)data, size}, &e);
    if (status == STATUS_OK) status = grammar_open(&g, &d, &vocab, &e);
    grammar_draft_free(&d);
    CHECK((status == STATUS_OK) == (g != NULL) && (g || e.text[0]));
    if (g) write_tokens(g, data, size);
    grammar_release(g);
    return 0;
}
